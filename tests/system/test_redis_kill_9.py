"""kill -9 and SIGSTOP of workers, and of Redis itself: what is lost and what is doubled, which is little."""

import asyncio
import os
import random
import signal
from asyncio.subprocess import Process
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from system.fleet import Scene, arrivals, end_of, fleet, member, messages, opened, scene
from system.fleet_member import FAST, Member
from system.killing import clock, in_thread, kill, line_of, tell
from tidegate.sim.faults import Latency

PEOPLE, GROUPS = range(1, 41), range(-1, -6, -1)
LEASE = 2.0  # seconds


async def drained(stage: Scene) -> None:
    looking = await in_thread(Member, stage.terms)  # a gate would wait for its longer calls after a restart
    async with looking.open():
        await looking.outbox.drained()


class Crew:
    """Workers of whom any may die; each is replaced as long as some are to."""

    def __init__(self, stage: Scene, stack: AsyncExitStack, draw: random.Random) -> None:
        self._stage, self._stack, self._draw = stage, stack, draw
        self._hired = 0
        self.workers: list[Process] = []

    async def hire(self) -> None:
        self._hired += 1
        worker = member("worker", self._stage.terms, seed=self._hired, direct=20.0)
        self.workers.append(await self._stack.enter_async_context(worker))

    async def lose_one(self) -> None:
        """At random. One that has not begun yet may be it."""
        worker = self.workers.pop(self._draw.randrange(len(self.workers)))
        assert '"calls"' not in await kill(worker)


async def check_kills(tmp_path: Path, *, kills: int, crew: int, each: int, lease: float) -> None:
    draw, wanted = random.Random(kills), messages([42], PEOPLE, each) | messages([42], GROUPS, each // 4)
    async with scene(tmp_path, FAST, lease=lease) as stage, AsyncExitStack() as stack:
        await stage.put(wanted)
        team = Crew(stage, stack, draw)
        for _ in range(crew):
            await team.hire()
        assert {await line_of(worker) for worker in team.workers} == {"ready"}
        for left in reversed(range(kills)):
            await clock.sleep(draw.uniform(0.0, 0.5))
            await team.lose_one()
            if len(team.workers) <= left:
                await team.hire()
        await drained(stage)
        report = await stage.check(wanted)

    print(f"{kills} workers killed: {report}")  # noqa: T201
    assert report["crashes"] > 0, "some were in flight"
    assert report["out_of_order"] == 0


async def test_workers_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    await check_kills(
        tmp_path, kills=4, crew=5, each=8, lease=3.0
    )  # a busy machine stands still for a second


@pytest.mark.proof
@pytest.mark.timeout(600)
async def test_workers_that_are_killed_fifty_times_lose_nothing(tmp_path: Path) -> None:
    await check_kills(tmp_path, kills=50, crew=4, each=150, lease=LEASE)


async def freeze(worker: Process, seconds: float) -> None:
    os.kill(worker.pid, signal.SIGSTOP)
    await clock.sleep(seconds)
    os.kill(worker.pid, signal.SIGCONT)


async def check_freezes(
    tmp_path: Path,
    *,
    workers: Sequence[float],
    redis: Sequence[float],
    each: int,
    **terms: Any,  # noqa: ANN401
) -> None:
    """Seconds of each freeze: of one of two workers, then of Redis.

    Direct calls whose turns were lost meanwhile stand in line anew: among them order is not kept.
    """
    wanted = messages([42], PEOPLE, each)
    async with (
        scene(tmp_path, FAST, **terms) as stage,
        fleet(stage.terms, {"seed": 1}, {"seed": 2}) as [frozen, other],
    ):
        await stage.put(wanted)
        for seconds in workers:
            await clock.sleep(0.3)
            await freeze(frozen, seconds)
        for seconds in redis:
            await clock.sleep(0.3)
            await stage.redis.freeze(seconds)
        assert len(arrivals(stage.log)) < len(wanted) * each, "it was in the middle of it"
        await drained(stage)
        done = await asyncio.gather(end_of(frozen), end_of(other))
        report = await stage.check(wanted)

    print(f"a worker frozen for {workers} s, Redis for {redis} s: {report} {done}")  # noqa: T201
    assert stage.server.telegram.request_log.doubled == report["doubled"], "no direct call is made twice"


async def test_what_was_frozen_for_longer_than_a_lease_goes_on(tmp_path: Path) -> None:
    await check_freezes(tmp_path, workers=[1.3], redis=[1.3], each=8, lease=1.0, direct=20.0)


@pytest.mark.proof
@pytest.mark.timeout(300)
async def test_a_worker_that_is_frozen_again_and_again_goes_on(tmp_path: Path) -> None:
    await check_freezes(tmp_path, workers=[10] * 6, redis=[], each=300, lease=LEASE, direct=20.0)


@pytest.mark.proof
@pytest.mark.timeout(300)
async def test_a_redis_that_is_frozen_for_longer_than_anybody_waits_goes_on(tmp_path: Path) -> None:
    """Without direct calls, which do not wait for it."""
    await check_freezes(tmp_path, workers=[], redis=[10] * 3, each=40, lease=LEASE)


class Fall(NamedTuple):
    """Of Redis. What it wrote after `kept` it may have forgotten. Monotonic times."""

    kept: float
    killed: float
    back: float


async def fall(stage: Scene, *, lose: float, away: float) -> Fall:
    await stage.redis.kill()
    killed = clock.monotonic()
    if lose:
        await stage.redis.lose(lose)
    await clock.sleep(away)
    await stage.redis.start()
    return Fall(killed - lose, killed, clock.monotonic())


async def accepted_by(producer: Process) -> dict[int, dict[int, float]]:
    """By chat and number, when it was accepted; after it was told to stop, and its spool is empty."""
    line, accepted = await tell(producer, "stop"), defaultdict[int, dict[int, float]](dict)
    while line != "done":
        chat, number, at = line.split(" ")
        accepted[int(chat)][int(number)] = float(at)
        line = await line_of(producer)
    return accepted


async def check_falls(tmp_path: Path, *, lose: Sequence[float], every: float) -> None:
    """`lose`: for each fall, the seconds before it of which nothing reached the disk."""
    async with (
        scene(tmp_path, FAST, lease=1.0, chats=40) as stage,
        fleet(stage.terms, {}, {}) as workers,
        member("producer", stage.terms) as producer,
    ):
        assert await line_of(producer) == "ready"
        watching = asyncio.create_task(stage.redis.watch())
        falls = []
        for number, seconds in enumerate(lose):
            await clock.sleep(every)
            falls.append(await fall(stage, lose=seconds, away=0.3 * number))
        await clock.sleep(0.5)
        watching.cancel()
        accepted = await accepted_by(producer)
        await drained(stage)
        await asyncio.gather(*map(end_of, workers))
        report = stage.server.telegram.report()
        since = clock.now() - clock.monotonic()

    assert report["refused"] == 0, report["refused_by"]
    assert report["out_of_order"] == 0
    lost, spooled = 0, 0
    for chat, times in accepted.items():
        came = {entry.text for entry in stage.log if entry.chat_id == chat}
        for number, at in times.items():
            spooled += any(one.killed < at < one.back for one in falls)
            if f"to {chat} #{number}" not in came:
                lost += 1
                # It was accepted a little before it says so: the producer had to hear of it first.
                known = [one.kept - 0.1 < at < one.killed + 0.3 for one in falls if one.kept < one.killed]
                assert any(known), f"#{number} to {chat} is lost"
    seen: dict[tuple[object, str], float] = {}
    for entry in stage.log:
        first = seen.setdefault((entry.chat_id, entry.text), entry.at - since)
        again = entry.at - since != first
        assert not again or any(one.kept - 0.3 < first < one.back for one in falls), (
            f"{entry.text} is doubled"
        )
    assert spooled > 0
    print(  # noqa: T201
        f"Redis killed {len(falls)} times, losing {lose} s: {sum(map(len, accepted.values()))} accepted, of"
        f" these {spooled} while it was away, {lost} lost, {report['doubled']} doubled"
    )


async def test_a_redis_that_is_killed_loses_nothing_and_without_power_its_last_second(tmp_path: Path) -> None:
    await check_falls(tmp_path, lose=[0.0, 1.0], every=3.0)


async def test_calls_on_the_wire_for_longer_than_a_window_when_redis_loses_power_lead_to_no_429(
    tmp_path: Path,
) -> None:
    chats = range(1, 81)
    async with (
        scene(tmp_path, FAST, way_in=Latency(0, 1_900), lease=2.0) as stage,
        fleet(stage.terms, {}, {}) as workers,
    ):
        watching = asyncio.create_task(stage.redis.watch())
        async with opened(stage.terms) as gate:
            start = clock.now() + 1.5
            await gate.send_many(
                {"chat_id": chat, "text": f"to {chat}", "not_before": start} for chat in chats
            )
        await clock.sleep(start + 0.6 - clock.now())  # all are on the wire
        await fall(stage, lose=0.8, away=0.0)  # and Redis knows of none
        async with clock.timeout(60):
            await drained(stage)
        watching.cancel()
        await asyncio.gather(*map(end_of, workers))
        report = stage.server.telegram.report()

    assert report["accepted"] > 1.5 * len(chats), "they were forgotten, and sent again"
    assert report["refused"] == 0, report["refused_by"]


@pytest.mark.proof
@pytest.mark.timeout(300)
async def test_a_redis_that_is_killed_again_and_again_loses_what_it_says_alone(tmp_path: Path) -> None:
    await check_falls(tmp_path, lose=[0.0, 0.0, 1.0, 0.0, 1.0, 2.0, 0.0], every=5.0)
