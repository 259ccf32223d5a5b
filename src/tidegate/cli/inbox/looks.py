"""`tidegate inbox` and `inbox show`: how many are where, and those that are parked."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.app import Tidegate
from tidegate.cli import terminal
from tidegate.cli.inbox.choice import Which, choose, source_of
from tidegate.cli.inbox.views import as_json as plain
from tidegate.cli.inbox.views import chat_of, details, name_of
from tidegate.cli.stores import using_gate
from tidegate.cli.terminal import printable
from tidegate.cli.times import distance
from tidegate.clock import Clock
from tidegate.inbound.arrivals import Parked
from tidegate.inbound.inbox.base import InboxStats
from tidegate.outbox.sqlite.store import SqliteOutbox


class Seen(NamedTuple):
    """One more parked one than asked for tells that there are more."""

    stats: InboxStats
    parked: list[Parked]
    is_left: bool = False  # what is in hand is that of a process that ended


def show(store: str | None, *, bot: int | None, hook: str | None, limit: int, as_json: bool) -> None:
    source = source_of(bot, hook)

    async def look(gate: Tidegate) -> Seen:
        inbox = gate.reception.inbox
        return Seen(
            await inbox.stats(), await inbox.parked(source, limit=limit + 1), await _nobody_handles(gate)
        )

    seen = using_gate(store, look)
    if as_json:
        terminal.put_json(report(seen, limit))
    else:
        terminal.put(picture(seen, limit, Clock().now()))


def show_one(store: str | None, which: Which, *, as_json: bool) -> None:
    async def look(gate: Tidegate) -> list[Parked]:
        return await choose(gate.reception.inbox, which)

    [one] = using_gate(store, look)
    if as_json:
        terminal.put_json(plain(one))
    else:
        terminal.put(details(one, Clock().now()))


async def _nobody_handles(gate: Tidegate) -> bool:
    """Who sends for a file handles what arrives. In Redis, what the dead held goes back by itself."""
    return isinstance(gate.outbox, SqliteOutbox) and await gate.outbox.sender() is None


def report(seen: Seen, limit: int) -> dict[str, Any]:
    counts = {name: getattr(seen.stats, name) for name in InboxStats.__struct_fields__}
    listed = [plain(one) for one in seen.parked[:limit]]
    left = seen.stats.handling if seen.is_left else 0
    return {"stats": counts, "left_behind": left, "parked": listed, "more": len(seen.parked) > limit}


def picture(seen: Seen, limit: int, now: float) -> RenderableType:
    parts: list[RenderableType] = [Text(line) for line in _counts(seen)]
    if seen.parked:
        parts += [Text(), _table(seen.parked[:limit], now)]
    elif seen.stats.parked:
        parts.append(Text("None of those that are parked is of this source."))
    if len(seen.parked) > limit:
        parts.append(Text(f"These are the newest {limit:,}; there are more: --limit", style="dim"))
    return Group(*parts)


def _counts(seen: Seen) -> list[str]:
    waiting, handling, parked = seen.stats.waiting, seen.stats.handling, seen.stats.parked
    busy = 0 if seen.is_left else handling
    waits, are = "waits" if waiting == 1 else "wait", "is" if busy == 1 else "are"
    lines = [f"{waiting:,} {waits}, {busy:,} {are} being handled, {parked:,} parked"]
    if seen.is_left and handling:
        were, they = ("was", "it is") if handling == 1 else ("were", "they are")
        ended = "in hand of a process that ended"
        lines.append(f"{handling:,} {were} {ended}: {they} handled at the next start")
    return lines


def _table(parked: Sequence[Parked], now: float) -> Table:
    """A row each; in a terminal of 80 columns the reasons take several lines, and are whole."""
    has_chats = any(chat_of(one.arrival) for one in parked)
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=True, padding=(0, 1, 0, 0))
    rows.add_column("source", overflow="fold", max_width=20)
    rows.add_column("key", overflow="fold", max_width=36)
    for name in (*(["chat"] if has_chats else []), "parked"):
        rows.add_column(name, no_wrap=True)
    rows.add_column("reason", overflow="fold", ratio=1, min_width=16)
    for one in parked:
        rows.add_row(
            Text(name_of(one.arrival)),
            Text(printable(one.arrival.key)),
            *([Text(printable(chat_of(one.arrival)))] if has_chats else []),
            distance(one.parked_at, now),
            Text(printable(one.reason), "red"),
        )
    return rows
