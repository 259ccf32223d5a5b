"""Restarts, for people: how long each took, and the requests of its first seconds as a small picture."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.cli.meter import sparkline
from tidegate.cli.stress.fitting import Fitting, block
from tidegate.sim.polling.restoring import Groups, Restart

SECONDS_SHOWN = 14
PICTURE = f"requests, {SECONDS_SHOWN} s"
TOP = 10  # requests in a second; the tallest bar


def restarts_table(restarts: Sequence[Restart], groups: Groups, *, complete: bool = True) -> RenderableType:
    """Fits 80 columns, or comes in blocks; reads as well without colours. What was stopped is not judged."""
    title = f"Restarts: groups of {groups.size}, {groups.every:g} s apart (seed {restarts[0].seed})"
    return Group(
        Fitting(_table(restarts, title), _blocks(restarts, title)),
        Text(_legend(), style="dim"),
        _seconds(restarts),
        Text(_verdict(restarts) if complete else ""),
    )


def _table(restarts: Sequence[Restart], title: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0, title=title, title_justify="left")
    table.add_column("users", no_wrap=True, justify="right")
    table.add_column("start", no_wrap=True, style="bold")
    for name in _cells(restarts[0]):
        table.add_column(name, no_wrap=True, justify="left" if name == PICTURE else "right")
    for before, found in zip([None, *restarts], restarts, strict=False):
        new = before is None or before.users != found.users
        if before is not None and new:
            table.add_section()
        table.add_row(f"{found.users:,}" if new else "", found.start, *_cells(found).values())
    return table


def _blocks(restarts: Sequence[Restart], title: str) -> RenderableType:
    shown = (block(f"{found.start}, {found.users:,} users", _cells(found)) for found in restarts)
    return Group(Text(title, style="italic"), *shown)


def _cells(found: Restart) -> dict[str, Text]:
    style = "bold red" if found.refused else ""
    return {
        "groups": Text(f"{found.groups}"),
        "restored": Text(_after(found.restored_seconds, found.virtual_seconds)),
        "all asked": Text(_after(found.asked_seconds, found.virtual_seconds)),
        "peak": Text(f"{found.peak_rps:,}", style=style),
        "429s": Text(f"{found.refused:,}", style=style),
        PICTURE: Text(sparkline(found.per_second[:SECONDS_SHOWN], TOP), style=style or "green"),
    }


def _after(seconds: float | None, watched: float) -> str:
    return f"> {watched:.0f} s" if seconds is None else f"{seconds:.1f} s"


def _legend() -> str:
    return (
        "restored: everybody's polling has begun. all asked: the API has answered once for everybody. "
        f"peak: most requests in one second, 5 allowed; a full bar is {TOP} or more."
    )


def _verdict(restarts: Sequence[Restart]) -> str:
    bad = [found for found in restarts if found.start == "staggered" and not found.passed]
    if not bad:
        return "passed: staggered, nobody was refused, and everybody was asked for"
    return "failed: staggered, " + ", ".join(
        f"{found.users:,} users: {found.refused:,} refused" for found in bad
    )


def _seconds(restarts: Sequence[Restart]) -> RenderableType:
    """A staggered start second by second, as numbers."""
    found = next((one for one in restarts if one.start == "staggered"), None)
    if found is None:
        return Text()
    rows = (("restored", found.restored_per_second), ("requests", found.per_second))
    return Group(
        *(Text(f"{name} per second, {found.users:,} users: {_first(counts)}") for name, counts in rows)
    )


def _first(counts: Sequence[int]) -> str:
    rest = " …" if len(counts) > SECONDS_SHOWN else ""
    return " ".join(map(str, counts[:SECONDS_SHOWN])) + rest
