"""`tidegate inbox replay` and `drop`."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tidegate.app import Tidegate
from tidegate.cli import terminal
from tidegate.cli.asking import make_sure
from tidegate.cli.batches import bar
from tidegate.cli.inbox.choice import Which, choose
from tidegate.cli.selection import amount
from tidegate.cli.stores import using_gate
from tidegate.inbound.arrivals import Parked, Source

FEW: Final = 100  # so many are replayed without a question
STEP: Final = 100  # lanes whose steps share commits

Act = Callable[[Source, str], Awaitable[bool]]


def replay(store: str | None, which: Which, *, yes: bool, as_json: bool) -> None:
    chosen = _chosen(store, which)
    if len(chosen) > FEW:
        make_sure(f"Replay {amount(len(chosen), 'arrival')}?", yes=yes)
    done = using_gate(store, lambda gate: work_on(chosen, gate.reception.inbox.replay, "Replaying"))
    _tell("replayed", done, as_json=as_json)


def drop(store: str | None, which: Which, *, yes: bool, as_json: bool) -> None:
    chosen = _chosen(store, which)
    if chosen:
        make_sure(f"Drop {amount(len(chosen), 'arrival')} for good?", yes=yes)
    done = using_gate(store, lambda gate: work_on(chosen, gate.reception.inbox.drop, "Dropping"))
    _tell("dropped", done, as_json=as_json)


def _chosen(store: str | None, which: Which) -> list[Parked]:
    async def look(gate: Tidegate) -> list[Parked]:
        return await choose(gate.reception.inbox, which)

    return using_gate(store, look)


async def work_on(chosen: Sequence[Parked], act: Act, title: str) -> int:
    """One lane in order, lanes side by side. Returns how many were still there."""
    lanes: dict[tuple[Source, str], list[str]] = {}
    for one in chosen:
        lanes.setdefault((one.arrival.source, one.arrival.lane), []).append(one.arrival.key)
    works = [_work_through(source, keys, act) for (source, _), keys in lanes.items()]
    done = 0
    with bar(title, len(chosen)) as tell:
        for start in range(0, len(works), STEP):
            done += sum(await asyncio.gather(*works[start : start + STEP]))
            tell(done)
    return done


async def _work_through(source: Source, keys: Sequence[str], act: Act) -> int:
    return sum([await act(source, key) for key in keys])


def _tell(what: str, count: int, *, as_json: bool) -> None:
    if as_json:
        terminal.put_json({what: count})
    else:
        terminal.put_line(f"{what.capitalize()} {amount(count, 'arrival')}.")
