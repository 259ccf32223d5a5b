"""A parked arrival as it is shown: for a program, and everything known of it for a person."""

import base64
import json
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli.terminal import printable
from tidegate.cli.times import moment
from tidegate.inbound.arrivals import Arrival, Parked
from tidegate.inbound.http.hook import unpack

Json = dict[str, Any]


def as_json(one: Parked) -> Json:
    """`body`: the update; of an event as it was sent, in base64 if it is no text: `encoding` says so."""
    arrival = one.arrival
    known = {
        "source": arrival.source,
        "key": arrival.key,
        "lane": arrival.lane,
        "arrived_at": one.arrived_at,
        "parked_at": one.parked_at,
        "reason": one.reason,
    }
    return known | (_event(arrival.body) if arrival.source.startswith("hook:") else _update(arrival.body))


def chat_of(arrival: Arrival) -> str:
    """Empty for what is of no chat: events, and updates that are nobody's."""
    is_of_chat = arrival.source.startswith("bot:") and not arrival.lane.startswith("update ")
    return arrival.lane if is_of_chat else ""


def name_of(arrival: Arrival) -> str:
    """`bot 42`, `hook payments`."""
    return printable(arrival.source.replace(":", " ", 1))


def details(one: Parked, now: float) -> RenderableType:
    """An item a line, what is not known left out; then the headers and the body, whole."""
    known = as_json(one)
    items = {
        "source": name_of(one.arrival),
        "key": one.arrival.key,
        "chat": chat_of(one.arrival),
        "sent": _moment(known.get("timestamp"), now),
        "arrived": moment(one.arrived_at, now),
        "parked": moment(one.parked_at, now),
        "reason": one.reason,
    }
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in items.items():
        if value:
            grid.add_row(name, Text(printable(value), "red" if name == "reason" else ""))
    parts: list[RenderableType] = [grid]
    if known.get("headers"):
        headers = "\n".join(f"{name}: {value}" for name, value in known["headers"].items())
        parts += [Text("headers", style="dim"), _indented(headers)]
    if known.get("encoding") == "base64":
        return Group(*parts, Text("body, in base64", style="dim"), _indented(known["body"]))
    return Group(*parts, Text("body", style="dim"), _indented(_readable(known["body"])))


def _update(body: bytes) -> Json:
    try:
        return {"body": msgspec.json.decode(body)}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"body": body.decode(errors="replace")}


def _event(record: bytes) -> Json:
    try:
        event = unpack(record)
    except (msgspec.DecodeError, UnicodeDecodeError):  # what another version wrote: shown as it is
        return {"headers": {}, "timestamp": None} | _text_of(record)
    return {"headers": event.headers, "timestamp": event.timestamp} | _text_of(event.body)


def _text_of(body: bytes) -> Json:
    try:
        return {"body": body.decode(), "encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(body).decode(), "encoding": "base64"}


def _moment(at: float | None, now: float) -> str:
    return "" if at is None else moment(at, now)


def _readable(body: object) -> str:
    """JSON over several lines; anything else as it is."""
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            return str(body)
    return json.dumps(body, indent=2, ensure_ascii=False)


def _indented(text: str) -> Text:
    return Text("\n".join(f"  {printable(line)}" for line in text.splitlines()), overflow="fold")
