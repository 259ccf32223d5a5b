"""`tidegate queue stats`: how many messages are where, who sends them, what is held."""

from collections.abc import Mapping
from typing import Any

import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from tidegate.app import Tidegate
from tidegate.cli import terminal
from tidegate.cli.stores import Facts, facts_of, using_gate
from tidegate.outbox.base import Stats

# Counted by the sender for itself, not in the store.
OF_THE_SENDER = ("uncertain", "urgent")
NOBODY = "none runs, so nothing leaves: start one with tidegate worker"


def show(store: str | None, *, as_json: bool) -> None:
    async def look(gate: Tidegate) -> dict[str, Any]:
        return report(await gate.stats(), await facts_of(gate))

    found = using_gate(store, look)
    if as_json:
        terminal.put_json(found)
    else:
        terminal.put(picture(found))


def report(stats: Stats, facts: Facts) -> dict[str, Any]:
    """The first three keys are those of `GET /queue/stats`; `sender` is None if nobody sends.

    A store that many may send for has `processes`, others than this, and `delivers`, in place of a sender.
    """
    letters = stats.dead + stats.parked
    lines = {"high": stats.high, "normal": stats.normal, "low": stats.low, "retry": stats.retry}
    apart = (*lines, *OF_THE_SENDER)
    rest = {name: count for name, count in msgspec.structs.asdict(stats).items() if name not in apart}
    return {
        "stats": lines | {"dlq": letters},
        "total_queued": stats.waiting,
        "total_failed": letters,
        **rest,
        "sender": None if facts.sender is None else msgspec.to_builtins(facts.sender),
        **({} if facts.company is None else facts.company._asdict()),
        "bots": facts.bots,
        "paused": [{"bot": bot, "chat_id": chat} for bot, chat in facts.paused],
    }


def picture(found: dict[str, Any]) -> Table:
    grid = Table(box=box.SIMPLE, show_header=False, show_edge=False, pad_edge=False)
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", style="bold", no_wrap=True)
    grid.add_column(style="dim")
    lines = found["stats"]
    grid.add_row("waiting", f"{found['total_queued']:,}", _listed(lines, "high", "normal", "low", "retry"))
    for name, hint in (
        ("sending", ""),
        ("delivered", ""),
        ("dead", "tidegate dlq list"),
        ("parked", "the outcome is unknown: tidegate dlq list --state parked"),
        ("expired", "the deadline passed before their turn came"),
        ("cancelled", ""),
        ("replaced", "by newer ones with the same coalesce key"),
        ("refused", "429s heard"),
    ):
        grid.add_row(name, f"{found[name]:,}", hint if found[name] else "")
    if found["spooled"]:
        grid.add_row("spooled", f"{found['spooled']:,}", "on this machine, until Redis takes them")
    grid.add_section()
    if "processes" in found:
        grid.add_row("processes", f"{found['processes']:,}", _shared(delivers=found["delivers"]))
    else:
        grid.add_row("sender", "", _sender(found["sender"]))
    for place in found["paused"]:
        grid.add_row(
            "paused", "", Text(f"{_place(place)}: tidegate queue resume {_options(place)}", "yellow")
        )
    return grid


def _sender(sender: dict[str, Any] | None) -> Text:
    if sender is None:
        return Text(NOBODY, style="bold red")
    return Text(f"process {sender['pid']} ({sender['command']})", style="green")


def _shared(*, delivers: bool) -> Text:
    """In Redis, whoever likes delivers."""
    if not delivers:
        return Text(f"no worker: {NOBODY}", style="bold red")
    return Text("use this store beside this command; some deliver", style="green")


def _listed(counts: Mapping[str, int], *names: str) -> str:
    return " · ".join(f"{name} {counts[name]:,}" for name in names if counts[name])


def _place(place: Mapping[str, Any]) -> str:
    return f"bot {place['bot']}" + ("" if place["chat_id"] is None else f", chat {place['chat_id']}")


def _options(place: Mapping[str, Any]) -> str:
    return f"--bot {place['bot']}" + ("" if place["chat_id"] is None else f" --chat {place['chat_id']}")
