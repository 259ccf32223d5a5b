"""`tidegate inbox`: how many are where, and those that are parked."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.app import Tidegate
from tidegate.cli import terminal
from tidegate.cli.inbox.choice import source_of
from tidegate.cli.stores import using_gate
from tidegate.cli.terminal import printable
from tidegate.cli.times import short_moment
from tidegate.clock import Clock
from tidegate.inbound.arrivals import Parked
from tidegate.inbound.inbox.base import InboxStats


class Seen(NamedTuple):
    """One more parked one than asked for tells that there are more."""

    stats: InboxStats
    parked: list[Parked]


def show(store: str | None, *, bot: int | None, hook: str | None, limit: int, as_json: bool) -> None:
    source = source_of(bot, hook)

    async def look(gate: Tidegate) -> Seen:
        inbox = gate.reception.inbox
        return Seen(await inbox.stats(), await inbox.parked(source, limit=limit + 1))

    seen = using_gate(store, look)
    if as_json:
        terminal.put_json(report(seen, limit))
    else:
        terminal.put(picture(seen, limit, Clock().now()))


def report(seen: Seen, limit: int) -> dict[str, Any]:
    counts = {name: getattr(seen.stats, name) for name in InboxStats.__struct_fields__}
    listed = [
        {
            "source": one.arrival.source,
            "key": one.arrival.key,
            "lane": one.arrival.lane,
            "arrived_at": one.arrived_at,
            "parked_at": one.parked_at,
            "reason": one.reason,
            "body": one.arrival.body.decode(errors="replace"),
        }
        for one in seen.parked[:limit]
    ]
    return {"stats": counts, "parked": listed, "more": len(seen.parked) > limit}


def picture(seen: Seen, limit: int, now: float) -> RenderableType:
    waiting, handling, parked = seen.stats.waiting, seen.stats.handling, seen.stats.parked
    parts: list[RenderableType] = [Text(f"{waiting:,} wait, {handling:,} are handled now, {parked:,} parked")]
    if seen.parked:
        parts += [Text(), _table(seen.parked[:limit], now)]
    elif parked:
        parts.append(Text("None of those that are parked is of this source."))
    if len(seen.parked) > limit:
        parts.append(Text(f"These are the newest {limit:,}; there are more: --limit", style="dim"))
    return Group(*parts)


def _table(parked: Sequence[Parked], now: float) -> Table:
    """A row each; fits a terminal of 80 columns, where the reasons are cut short first."""
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=True, padding=(0, 1, 0, 0))
    for name in ("source", "key", "parked"):
        rows.add_column(name, no_wrap=True)
    rows.add_column("reason", no_wrap=True, overflow="ellipsis", ratio=1)
    for one in parked:
        rows.add_row(
            Text(printable(one.arrival.source.replace(":", " ", 1))),
            Text(printable(one.arrival.key)),
            short_moment(one.parked_at, now),
            Text(printable(one.reason), "red"),
        )
    return rows
