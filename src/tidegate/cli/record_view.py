"""A message as it is shown: a row of a table, everything known of it, or JSON. Never a token."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli.terminal import printable
from tidegate.cli.times import moment, short_moment
from tidegate.model import File, Message, Record, State

STYLES = {State.DEAD: "red", State.PARKED: "yellow", State.DELIVERED: "green", State.SENDING: "cyan"}
TIMES = ("created_at", "not_before", "expires_at", "settled_at")


def as_json(record: Record) -> dict[str, Any]:
    """One flat object: the message's own fields, and what became of it. Files by name and size."""
    message = record.message
    fields = {name: getattr(message, name) for name in Message.__struct_fields__}
    known = {name: getattr(record, name) for name in Record.__struct_fields__ if name != "message"}
    shown = fields | {"params": without_files(message.params)} | known
    plain: dict[str, Any] = msgspec.to_builtins(shown)
    return plain


def without_files(value: object) -> object:
    """The same, with each file's name and size in the place of what it holds."""
    if isinstance(value, File):
        size = {} if value.content is None else {"bytes": len(value.content)}
        return {"file": value.name or value.path or "unnamed"} | size
    if isinstance(value, Mapping):
        return {name: without_files(item) for name, item in value.items()}
    return [without_files(item) for item in value] if isinstance(value, list | tuple) else value


def table(records: Sequence[Record], now: float) -> Table:
    """A row each; fits a terminal of 80 columns, where the texts are cut short first."""
    several = len({record.message.bot for record in records}) > 1
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=True, padding=(0, 1, 0, 0))
    for name in ("id", "state", *(["bot"] if several else []), "chat", "when"):
        rows.add_column(name, no_wrap=True)
    rows.add_column("what", no_wrap=True, overflow="ellipsis", ratio=1)
    for record in records:
        message, at = record.message, record.settled_at or record.created_at
        what = f"{record.reason}: {summary(message)}" if record.reason else summary(message)
        rows.add_row(
            message.id,
            Text(record.state, STYLES.get(record.state, "")),
            *([str(message.bot)] if several else []),
            printable(message.chat_id),
            short_moment(at, now),
            Text(printable(what)),
        )
    return rows


def details(record: Record, now: float) -> RenderableType:
    """Everything known, an item a line; what was never set is left out."""
    known = as_json(record)
    params, result = known.pop("params"), known.pop("result")
    if record.message.dedup_key is None:
        del known["dedup_for"]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, value in known.items():
        if value not in (None, False):
            shown = moment(value, now) if name in TIMES else printable(value)
            grid.add_row(name, Text(shown, STYLES.get(record.state, "") if name == "state" else ""))
    parts: list[RenderableType] = [grid]
    for title, value in (("params", params), ("result", result)):
        if value is not None:
            parts += [Text(title, style="dim"), Text(_indented(value))]
    return Group(*parts)


def summary(message: Message) -> str:
    """What it says, or what it is."""
    text = message.params.get("text") or message.params.get("caption")
    shown = str(text) if text else ""
    return shown if message.method == "sendMessage" else f"{message.method} {shown}".rstrip()


def _indented(value: object) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "\n".join(f"  {printable(line)}" for line in text.splitlines())
