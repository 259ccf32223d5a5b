"""Processes that share a Redis: one set of limits, one order, and nobody who leads."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from system.fleet import Scene, Wanted, end_of, fleet, member, messages, opened, scene
from system.fleet_member import FAST, REAL, Done
from system.killing import clock, in_thread, line_of

CLOCKS = ({"shift": 0.0, "seed": 1}, {"shift": 30.0, "seed": 2}, {"shift": -30.0, "seed": 3})
TICKS = 100  # of the kernel's clock in a second


async def deliver(
    stage: Scene, wanted: Wanted, *each: Mapping[str, Any]
) -> tuple[list[Done], dict[str, Any]]:
    """By a worker for each of these changes of the terms: everything once, in order, and no 429."""
    async with fleet(stage.terms, *each) as workers:
        await stage.put(wanted)
        async with opened(stage.terms) as gate:
            await gate.drained()
        done = await asyncio.gather(*map(end_of, workers))
    report = await stage.check(wanted)
    assert [one.failed for one in done] == [{}] * len(each)
    assert report["accepted"] == sum(map(len, wanted.values())) + sum(one.direct for one in done)
    assert (report["doubled"], report["out_of_order"], stage.server.telegram.request_log.doubled) == (0, 0, 0)
    return done, report


async def test_workers_with_three_clocks_share_bots_and_their_limits(tmp_path: Path) -> None:
    """A part of what the first bot may send is called for directly."""
    wanted = messages(range(42, 52), range(1, 31), 2)
    async with scene(tmp_path, REAL, bots=tuple(range(42, 52)), chats=200, direct=2.0) as stage:
        done, _ = await deliver(stage, wanted, *CLOCKS, {"seed": 4})

    assert all(one.direct > 0 and one.calls > one.direct for one in done)


@pytest.mark.proof
@pytest.mark.timeout(300)
async def test_three_processes_use_what_the_limits_allow(tmp_path: Path) -> None:
    async with scene(tmp_path, REAL, chats=200, direct=5.0) as stage:
        [one, two, three], _ = await deliver(stage, messages([42], range(1, 201), 6), *CLOCKS)
        times = [entry.at for entry in stage.log if entry.status == 200]

    begin, end = times[0] + 5, times[0] + 65
    assert end < times[-1] - 2, "there was work all the time"
    done, rate = one + two + three, sum(begin <= at < end for at in times) / (end - begin)
    round_trip = done.round_trips / done.calls
    allowed = REAL.bot.count / (REAL.bot.seconds + round_trip)
    print(  # noqa: T201
        f"{rate:.2f} calls/s, {rate / allowed:.1%} of {allowed:.2f} = 30/(1 s + {1000 * round_trip:.1f} ms);"
        f" {done.direct} of {done.calls} direct"
    )
    assert rate >= 0.95 * allowed


@pytest.mark.proof
@pytest.mark.timeout(300)
async def test_workers_share_20_000_messages_of_50_bots(tmp_path: Path) -> None:
    bots = tuple(range(42, 92))
    async with scene(tmp_path, REAL, bots=bots) as stage:
        done, report = await deliver(stage, messages(bots, range(1, 81), 5), {}, {}, {}, {})

    print(f"{report['accepted']} messages in {report['seconds']} s, by {[one.calls for one in done]}")  # noqa: T201
    assert all(one.calls > 0 for one in done)


@pytest.mark.usefixtures("real_interpreters")
async def test_a_worker_that_waits_is_woken_by_a_put_elsewhere(tmp_path: Path) -> None:
    took: list[float] = []
    async with (
        scene(tmp_path, FAST) as stage,
        member("claimer", stage.terms) as claimer,
        opened(stage.terms) as gate,
    ):
        assert await line_of(claimer) == "ready"
        for chat in range(1, 31):
            await clock.sleep(0.02)
            began = clock.monotonic()
            await gate.send(chat_id=chat, text="x")
            took.append(float(await line_of(claimer)) - began)

    took.sort()
    print(f"put here, claimed there: {1000 * took[15]:.1f} ms, {1000 * took[-1]:.1f} ms at most")  # noqa: T201
    assert took[7] < 0.02  # without a wake-up up to 5 s; a busy machine is late for most


@pytest.mark.proof
async def test_a_worker_without_work_is_idle(tmp_path: Path) -> None:
    async with scene(tmp_path, REAL) as stage, fleet(stage.terms, {}) as [worker]:
        await clock.sleep(1)
        before = await in_thread(seconds_of_work, worker.pid)
        await clock.sleep(20)
        used = await in_thread(seconds_of_work, worker.pid) - before

    print(f"{used / 20:.2%} of a core")  # noqa: T201
    assert used / 20 < 0.01


def seconds_of_work(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def test_a_gate_that_is_closed_at_any_moment_ends(tmp_path: Path) -> None:
    async with scene(tmp_path, FAST) as stage:
        for number in range(40):
            async with clock.timeout(5), opened(stage.terms) as gate:
                await gate.send(chat_id=number + 1, text="x")
