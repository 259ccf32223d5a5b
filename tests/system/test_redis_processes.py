"""Processes that share a Redis: one set of limits, one order, and nobody who leads."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from system.fleet import Scene, end_of, fleet, member, messages, opened, scene
from system.fleet_member import FAST, REAL, Done
from system.killing import clock, in_thread, line_of

WRONG_CLOCKS = ({"shift": 0.0, "seed": 1}, {"shift": 30.0, "seed": 2}, {"shift": -30.0, "seed": 3})


async def queued_and_direct(stage: Scene, *, queued: int, direct: float) -> tuple[Done, dict[str, Any]]:
    """Three processes with three clocks, until the queue is empty; `direct` calls each second beside it."""
    wanted = (
        messages([42], range(1, 201), queued // 200)
        if queued >= 200
        else messages([42], range(1, queued + 1), 1)
    )
    await stage.put(wanted)
    async with fleet(stage.terms, *({**one, "direct": direct / 3} for one in WRONG_CLOCKS)) as workers:
        async with opened(stage.terms) as gate:
            await gate.drained()
        each = await asyncio.gather(*map(end_of, workers))
    done = each[0] + each[1] + each[2]
    assert done.failed == {}
    report = await stage.check(wanted)
    assert report["doubled"] == 0
    assert stage.server.telegram.ledger.doubled == 0, "direct calls"
    assert report["out_of_order"] == 0
    assert report["accepted"] == queued + done.direct
    return done, report


async def test_three_processes_keep_to_the_limits_of_one_bot(tmp_path: Path) -> None:
    async with scene(tmp_path, REAL, chats=200) as stage:
        done, _ = await queued_and_direct(stage, queued=60, direct=15)

    assert done.direct > 0


@pytest.mark.proof
@pytest.mark.timeout(300)
async def test_three_processes_use_what_the_limits_allow(tmp_path: Path) -> None:
    async with scene(tmp_path, REAL, chats=200) as stage:
        done, _ = await queued_and_direct(stage, queued=1_000, direct=15)
        times = [entry.at for entry in stage.log if entry.status == 200]

    begin, end = times[0] + 5, times[0] + 65
    assert end < times[-1] - 2, "the window is fair: there was work all the time"
    rate = sum(begin <= at < end for at in times) / (end - begin)
    round_trip = done.round_trips / done.calls
    allowed = REAL.bot.count / (REAL.bot.seconds + round_trip)
    print(  # noqa: T201
        f"{rate:.2f} calls/s, {rate / allowed:.1%} of {allowed:.2f} = 30/(1 + {1000 * round_trip:.1f} ms);"
        f" {done.direct} of {done.calls} direct"
    )
    assert rate >= 0.95 * allowed
