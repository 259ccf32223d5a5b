"""Several processes share an inbox in Redis: none holds what another has, and none is missed when it dies."""

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from blockbuster import BlockBuster
from redis.client import Monitor
from redis.exceptions import OutOfMemoryError, ResponseError

from contract.inbox.inbox_driver import BOT, OTHER_BOT, InboxDriver, arrival, keys
from contract.stores import redis_url
from redis_hub import Delay, Hub, SharedConnection, inline, promise_of
from tidegate.clock import Clock
from tidegate.errors import StoreAwayError
from tidegate.inbound.inbox import DEDUP_SECONDS, ClaimedItem, hook_source
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.redis.connection import Argument, RedisPyConnection
from tidegate.stores.redis.inbox import KEYS, SCRIPTS, RedisInbox

LEASE = 8.0


class Process(InboxDriver):
    """One of several. When its link is away, it is as good as dead: nobody hears of it."""

    def __init__(self, link: SharedConnection, clock: VirtualClock) -> None:
        super().__init__(RedisInbox(link, clock), clock)
        self.link = link

    async def live_on(self, seconds: float) -> None:
        """It asks every second, as whoever waits does."""
        for _ in range(int(seconds)):
            await self.clock.sleep(1)
            await self.inbox.stats()

    async def begin_waiting(self) -> asyncio.Task[list[ClaimedItem]]:
        waiting = asyncio.create_task(self.next())
        await self.clock.sleep(0.01)
        return waiting


@asynccontextmanager
async def processes(
    clock: VirtualClock, count: int, delay: Delay | None = None
) -> AsyncIterator[tuple[Hub, list[Process]]]:
    hub = await inline(Hub, clock)
    made = [Process(SharedConnection(hub, f"p{number}", delay=delay), clock) for number in range(count)]
    for process in made:
        await process.inbox.open()
    yield hub, made
    for process in made:
        await process.inbox.close()
    await inline(hub.close)


def noting(asked: list[str]) -> Delay:
    """Steps are noted on their way, there and back, and cost no time."""

    def delay(step: str, _: tuple[Argument, ...]) -> float:
        asked.append(step)
        return 0.0

    return delay


@pytest.fixture(autouse=True)
def redis_asks_for_its_own_version(no_blocking_calls: BlockBuster) -> None:
    for call in no_blocking_calls.functions.values():
        call.can_block_in("redis/utils.py", "get_lib_version")  # once for each connection


class Ledger:
    """Who holds what, as those see it who handle it."""

    def __init__(self) -> None:
        self.lanes: dict[str, str] = {}
        self.order: dict[str, list[int]] = {}

    def begin(self, held: ClaimedItem) -> None:
        lane, key = held.item.lane, held.item.key
        assert lane not in self.lanes, f"{key} and {self.lanes[lane]} of lane {lane} are handled at once"
        self.lanes[lane] = key

    def end(self, held: ClaimedItem, *, done: bool) -> None:
        del self.lanes[held.item.lane]
        if done:
            self.order.setdefault(held.item.lane, []).append(int(held.item.key))


async def work(process: Process, ledger: Ledger, draw: random.Random) -> None:
    while True:
        for held in await process.claim(draw.randint(1, 4)):
            ledger.begin(held)
            await process.clock.sleep(draw.uniform(0, 0.2))
            done = draw.random() < 0.7
            ledger.end(held, done=done)
            if done:
                await process.inbox.done([held])
            else:
                await process.inbox.release(held, after=draw.choice([0, 0.3]), failed=True)
        await process.inbox.wait()


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_the_interleaving_a_lane_is_handled_one_at_a_time_and_in_order(
    clock: VirtualClock, seed: int
) -> None:
    draw, ledger = random.Random(seed), Ledger()
    async with processes(clock, 3, delay=lambda *_: draw.uniform(0, 0.02)) as (_, crew):
        workers = [asyncio.create_task(work(one, ledger, draw)) for one in crew for _ in range(2)]
        for number in range(60):
            await draw.choice(crew).accept(str(number), lane=str(number % 7))
        async with clock.timeout(200):
            while (await crew[0].counts()) != (0, 0, 0):
                await clock.sleep(1)
        for worker in workers:
            assert not worker.done()
            worker.cancel()
        await asyncio.wait(workers)

        assert ledger.order == {str(lane): list(range(lane, 60, 7)) for lane in range(7)}


async def test_what_a_dead_process_held_is_taken_over_in_order_with_one_crash_more(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 2) as (_, [one, other]):
        await one.accept("1", "2", "3")
        assert keys(await one.claim()) == ["1"]
        one.link.away = True
        started = clock.monotonic()

        [held] = await other.next()

        assert (held.item.key, held.crashes, held.attempts) == ("1", 1, 0)
        assert clock.monotonic() - started == pytest.approx(LEASE, abs=1.1)
        await other.inbox.done([held])
        assert await other.handle_all() == ["2", "3"]


async def test_what_is_handled_for_long_is_held_as_long_as_its_process_lives(clock: VirtualClock) -> None:
    async with processes(clock, 2) as (_, [one, other]):
        await one.accept("1", "2")
        [held] = await one.claim()

        await clock.sleep(10 * LEASE)

        assert await other.claim() == []
        await one.inbox.done([held])
        assert keys(await other.claim()) == ["2"]


async def test_what_killed_two_processes_is_given_only_to_who_takes_suspects(clock: VirtualClock) -> None:
    async with processes(clock, 3) as (_, [one, other, third]):
        await one.accept("1")
        for victim in (one, other):
            await victim.next()
            victim.link.away = True
            await third.live_on(LEASE + 1)

        assert await third.claim(suspects=0) == []
        [held] = await third.claim(suspects=1)

        assert (held.crashes, held.is_suspect) == (2, True)


@pytest.mark.parametrize("end", ["done", "release", "park"])
async def test_a_frozen_process_that_comes_back_settles_in_vain(clock: VirtualClock, end: str) -> None:
    async with processes(clock, 2) as (_, [one, other]):
        await one.accept("1", "2")
        [frozen] = await one.claim()
        one.link.away = True
        await other.live_on(LEASE + 1)
        [held] = await other.claim()
        one.link.away = False

        match end:
            case "done":
                await one.inbox.done([frozen])
            case "release":
                await one.inbox.release(frozen, failed=True)
            case _:
                await one.inbox.park(frozen, "late")

        assert await one.counts() == (1, 1, 0)
        assert await one.claim() == []
        await clock.sleep(2 * LEASE)  # the other's lease goes on
        await other.inbox.done([held])
        assert keys(await other.claim()) == ["2"]


async def test_one_that_was_frozen_and_not_missed_has_lost_nothing(clock: VirtualClock) -> None:
    async with processes(clock, 2) as (_, [one, other]):
        await one.accept("1")
        [held] = await one.claim()
        one.link.away = True
        await clock.sleep(LEASE + 5)
        one.link.away = False
        await clock.sleep(1)

        assert await other.claim() == []
        await one.inbox.done([held])
        assert await one.counts() == (0, 0, 0)


async def test_after_a_restart_of_redis_whoever_lives_has_the_time_to_say_so(clock: VirtualClock) -> None:
    async with processes(clock, 2) as (hub, [one, other]):
        await one.accept("1")
        [held] = await one.claim()
        one.link.away = other.link.away = True
        await clock.sleep(5 * LEASE)
        other.link.away = False
        await inline(hub.ask, "HSET", hub.keys["meta"], "restarted", clock.now())  # as the greeting notes it

        assert await other.claim() == []
        one.link.away = False
        await clock.sleep(2 * LEASE)
        assert await other.claim() == []
        await one.inbox.done([held])

        assert await one.counts() == (0, 0, 0)


async def test_a_dead_process_is_noticed_though_the_clock_of_redis_was_set_back(clock: VirtualClock) -> None:
    async with processes(clock, 2) as (_, [one, other]):
        await one.accept("1")
        await one.claim()
        one.link.away = True
        clock.epoch -= 3600
        await other.claim()

        await other.live_on(LEASE + 1)

        assert keys(await other.claim()) == ["1"]


async def test_what_was_given_by_an_answer_that_was_lost_is_given_by_the_next_claim(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 1) as (_, [one]):
        await one.accept("1")
        one.link.deaf = {SCRIPTS["claim"].sha}
        with pytest.raises(StoreAwayError):
            await one.claim()
        one.link.deaf = set()

        [held] = await one.claim()

        assert (held.item.key, held.crashes) == ("1", 0)


async def test_what_was_accepted_by_a_call_whose_answer_was_lost_is_known(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (_, [one]):
        one.link.deaf = {SCRIPTS["accept"].sha}
        with pytest.raises(StoreAwayError):
            await one.accept("1")
        one.link.deaf = set()

        assert await one.accept("1") == [False]
        assert await one.handle_all() == ["1"]


async def test_an_end_that_is_told_twice_is_one(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (_, [one]):
        await one.accept("1", "2")
        [held] = await one.claim()
        one.link.deaf = {SCRIPTS["done"].sha}
        with pytest.raises(StoreAwayError):
            await one.inbox.done([held])
        one.link.deaf = set()
        await one.inbox.done([held])

        assert await one.handle_all() == ["2"]


@pytest.mark.parametrize("steps", range(1, 9))
async def test_a_claim_that_is_cancelled_at_any_point_holds_nothing(clock: VirtualClock, steps: int) -> None:
    async with processes(clock, 2, delay=lambda *_: 0.0) as (_, [one, other]):
        await one.accept("1")
        claiming = asyncio.create_task(one.claim())
        for _ in range(steps):
            await asyncio.sleep(0)  # noqa: TID251  (a step of the loop, not a wait)
        claiming.cancel()
        await asyncio.wait([claiming])
        if not claiming.cancelled():
            await one.inbox.release(claiming.result()[0])

        async with clock.timeout(1):
            [held] = await other.next()

        assert held.crashes == 0


async def test_a_claim_that_is_cancelled_as_the_inbox_closes_holds_nothing(clock: VirtualClock) -> None:
    async with processes(clock, 2, delay=lambda *_: 0.1) as (_, [one, other]):
        await one.accept("1")
        claiming = asyncio.create_task(one.claim())
        await clock.sleep(0.15)
        claiming.cancel()
        await one.inbox.close()

        assert [held.crashes for held in await other.claim()] == [0]


async def test_while_redis_is_away_every_verb_says_so_and_then_all_goes_on(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (_, [one]):
        await one.accept("1", "2")
        [held] = await one.claim()
        one.link.away = True
        inbox = one.inbox

        for verb in (
            one.accept("3"),
            one.claim(),
            inbox.done([held]),
            inbox.release(held),
            inbox.park(held, "no"),
            inbox.parked(),
            inbox.replay(BOT, "1"),
            inbox.drop(BOT, "1"),
            inbox.stats(),
            inbox.leases.lease("name", 6),
            inbox.leases.give_back("name"),
        ):
            with pytest.raises(StoreAwayError):
                await verb
        await inbox.wait()
        one.link.away = False

        await inbox.done([held])
        assert await one.accept("3") == [True]
        assert await one.handle_all() == ["2", "3"]


async def test_an_inbox_that_could_not_be_opened_can_be_opened_later(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, _):
        late = Process(SharedConnection(hub, "late"), clock)
        late.link.away = True
        with pytest.raises(StoreAwayError):
            await late.inbox.open()
        late.link.away = False

        await late.inbox.open()

        await late.accept("1")
        assert keys(await late.claim()) == ["1"]
        await late.inbox.close()


async def test_a_redis_whose_memory_is_full_takes_nothing_and_hands_out_what_it_has(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 1) as (hub, [one]):
        await one.accept("1", "2")
        await inline(hub.redis.config_set, "maxmemory", 1)
        try:
            with pytest.raises((OutOfMemoryError, ResponseError), match=r"OOM|maxmemory"):
                await one.accept("3")
            assert await one.handle_all() == ["1", "2"]
        finally:
            await inline(hub.redis.config_set, "maxmemory", 0)

        assert await one.accept("3") == [True]


async def test_what_one_process_accepts_wakes_another_at_once(clock: VirtualClock) -> None:
    async with processes(clock, 2) as (_, [one, other]):
        waiting = await other.begin_waiting()
        started = clock.monotonic()
        await one.accept("1")

        assert keys(await waiting) == ["1"]
        assert clock.monotonic() == started


async def test_a_lane_that_one_process_frees_wakes_another_at_once(clock: VirtualClock) -> None:
    async with processes(clock, 2) as (_, [one, other]):
        await one.accept("1", "2")
        [held] = await one.claim()
        waiting = await other.begin_waiting()
        started = clock.monotonic()
        await one.inbox.done([held])

        assert keys(await waiting) == ["2"]
        assert clock.monotonic() == started


async def test_whoever_did_not_hear_of_it_looks_within_a_second(clock: VirtualClock) -> None:
    async with processes(clock, 2) as (hub, [one, other]):
        hub.followed.clear()
        waiting = await other.begin_waiting()
        await one.accept("1")

        async with clock.timeout(1):
            assert keys(await waiting) == ["1"]


async def test_whoever_waits_asks_once_a_second_and_is_not_woken_for_others(clock: VirtualClock) -> None:
    asked: list[str] = []
    async with processes(clock, 2, noting(asked)) as (_, [one, other]):
        waiting = await other.begin_waiting()
        asked.clear()
        for number in range(20):
            await one.accept(str(number), lane=str(number), source=OTHER_BOT)

        await clock.sleep(30)

        assert asked.count(SCRIPTS["claim"].sha) / 2 <= 31
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_many_that_accept_at_once_are_one_step(clock: VirtualClock) -> None:
    asked: list[str] = []
    async with processes(clock, 1, noting(asked)) as (_, [one]):
        await asyncio.gather(*(one.accept(str(number)) for number in range(100)))

        assert asked.count(SCRIPTS["accept"].sha) / 2 <= 2
        assert await one.handle_all() == [str(number) for number in range(100)]


async def test_what_one_process_accepted_is_known_by_another(clock: VirtualClock) -> None:
    async with processes(clock, 2) as (_, [one, other]):
        batch = [
            "65534",
            "65535",
            "65536",
            "65537",
            "131071",
            "131072",
        ]  # where one bitmap ends and the next begins
        assert await one.accept(*batch) == [True] * 6

        assert await other.accept("65533", *batch, "131073") == [True, *[False] * 6, True]
        assert await other.accept("0065535") == [True]


async def test_memories_take_little_room_and_end(clock: VirtualClock) -> None:
    payments = hook_source("payments")
    async with processes(clock, 1) as (hub, [one]):
        await one.accept(*map(str, range(900_000_000, 900_000_500)), lane="a")
        for event in ("98346598263498562", "12", "evt_1"):  # as random as their sender likes
            await one.accept(event, source=payments)

        seen = await inline(hub.redis.keys, hub.key("inbox:seen:*"))
        for key in seen:
            assert DEDUP_SECONDS - 60 < await inline(hub.redis.ttl, key) <= DEDUP_SECONDS
        sizes = [await inline(hub.redis.strlen, key) for key in seen if b"bot" in key]
        assert (len(seen), len(sizes)) == (4, 1)
        assert sizes[0] <= 8_192
        assert await one.accept("12", source=payments) == [False]


async def test_a_name_is_one_process_s_until_its_lease_runs_out(clock: VirtualClock) -> None:
    async with processes(clock, 2) as (_, [one, other]):
        assert await one.inbox.leases.lease("polling:42", 6)
        assert await other.inbox.leases.lease("polling:43", 6)
        await clock.sleep(5)
        assert not await other.inbox.leases.lease("polling:42", 6)
        assert await one.inbox.leases.lease("polling:42", 6)
        await clock.sleep(5)
        assert not await other.inbox.leases.lease("polling:42", 6)
        await clock.sleep(1.1)

        assert await other.inbox.leases.lease("polling:42", 6)
        assert not await one.inbox.leases.lease("polling:42", 6)


async def test_only_who_has_a_name_gives_it_back(clock: VirtualClock) -> None:
    async with processes(clock, 2) as (_, [one, other]):
        await one.inbox.leases.lease("polling:42", 6)
        await other.inbox.leases.give_back("polling:42")
        assert not await other.inbox.leases.lease("polling:42", 6)

        await one.inbox.leases.give_back("polling:42")

        assert await other.inbox.leases.lease("polling:42", 6)


async def do_everything(one: Process, other: Process) -> None:
    """Each step at least once, and each end of an arrival."""
    await one.accept(*map(str, range(20)), lane="a")
    await one.accept("event", lane="b", source=OTHER_BOT)
    await one.inbox.release(await one.claim_one(), after=0.5, failed=True)
    await one.clock.sleep(1)
    await one.inbox.park(await one.claim_one(), "no")
    await one.inbox.parked()
    await one.inbox.waiting(BOT)
    assert isinstance(one.inbox, RedisInbox)
    [parked] = await one.inbox.parked()
    await one.inbox.lane_length(parked.item)
    await one.inbox.erase("of nobody", None)
    await one.inbox.bring(await one.inbox.parked())
    await one.inbox.replay(BOT, "0")
    await one.inbox.park(await one.claim_one(), "no")
    await one.inbox.drop(BOT, "1")
    await one.accept("erased", lane="7")
    await one.accept("erased, too", lane="7 5")
    await one.accept("of another", lane="75")
    assert await one.inbox.erase("7") == 2
    one.link.deaf = {SCRIPTS["claim"].sha}
    with suppress(StoreAwayError):
        await one.claim()
    one.link.deaf = set()
    await one.claim()
    await one.clock.sleep(4)  # it renews
    one.link.away = True
    await other.live_on(LEASE + 1)
    await other.handle_all([BOT, OTHER_BOT])
    one.link.away = False
    await one.inbox.leases.lease("name", 6)
    await one.inbox.leases.give_back("name")


async def test_nothing_is_left_of_what_was_handled_and_every_key_was_declared(clock: VirtualClock) -> None:
    asked: list[str] = []
    async with processes(clock, 2, noting(asked)) as (hub, [one, other]):
        monitor: Monitor = hub.redis.monitor()  # type: ignore[no-untyped-call]
        await inline(monitor.__enter__)
        await do_everything(one, other)
        used = await inline(commands_of_lua, hub, monitor)
        await inline(monitor.__exit__, None, None, None)

        assert {SCRIPTS[step].sha for step in SCRIPTS} <= set(asked)
        dynamic = re.compile(re.escape(hub.key("inbox:")) + r"(seen|name):")
        declared = {hub.key(name) for name in KEYS.values()}
        touched = {command[1] for command in used if len(command) > 1}
        assert {key for key in touched if not dynamic.match(key)} <= declared
        kept = {key.decode() for key in await inline(hub.redis.keys, f"{hub.prefix}*")}
        assert {key for key in kept if "inbox:seen:" not in key} == {hub.key("inbox:meta")}


def commands_of_lua(hub: Hub, monitor: Monitor) -> list[list[str]]:
    hub.redis.echo("that was all")
    found: list[list[str]] = []
    while True:
        told: dict[str, str] = monitor.next_command()  # type: ignore[no-untyped-call]
        if "that was all" in told["command"]:
            return found
        if told["client_type"] == "lua":
            found.append(told["command"].split(" "))


@pytest.mark.parametrize("step", SCRIPTS)
def test_every_step_begins_with_what_it_promises(step: str) -> None:
    head = promise_of("inbox", step)

    assert all(line.startswith("--") for line in head.splitlines())
    assert head.startswith(f"-- {step.replace('_', ' ').capitalize()}: ")


def test_what_one_accepts_wakes_another_over_real_connections() -> None:
    async def main() -> float:
        clock = Clock()
        links = [RedisPyConnection(redis_url(), clock, f"real{number}", prefix="real") for number in range(2)]
        one, other = inboxes = [RedisInbox(link, clock) for link in links]
        for link, inbox in zip(links, inboxes, strict=True):
            await link.open(b"\x81\xa2me\xa2me")
            await inbox.open()
        took = [await seconds_until_woken(one, other, str(number)) for number in range(3)]
        for link, inbox in zip(links, inboxes, strict=True):
            await inbox.close()
            await link.close()
        return min(took)  # the first may have come before it was subscribed

    assert asyncio.run(main()) < 0.5


async def seconds_until_woken(one: RedisInbox, other: RedisInbox, key: str) -> float:
    clock = Clock()
    assert await other.claim([BOT], 1, suspects=1) == []
    waiting = asyncio.create_task(other.wait())
    await clock.sleep(0.01)
    started = clock.monotonic()
    await one.accept([arrival(key)])
    await waiting
    took = clock.monotonic() - started
    while not (held := await other.claim([BOT], 1, suspects=1)):
        await other.wait()
    await other.done(held)
    return took


async def test_after_a_time_in_which_redis_could_not_be_reached_nobody_is_taken_for_dead(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 2) as (_, [one, other]):
        await one.accept("1")
        [held] = await one.claim()
        one.link.away = other.link.away = True
        await clock.sleep(5 * LEASE)
        one.link.away = other.link.away = False

        assert await other.claim() == []
        await clock.sleep(1)
        await one.inbox.done([held])

        assert await one.counts() == (0, 0, 0)


async def test_who_was_held_up_does_not_take_its_own_for_a_dead_ones(clock: VirtualClock) -> None:
    async with processes(clock, 2) as (_, [one, other]):
        await one.accept("1")
        [held] = await one.claim()
        one.link.away = True
        await other.live_on(LEASE - 1)
        one.link.away = False
        clock.epoch += 2  # its lease is over, and nobody has asked since

        assert await one.claim() == []
        await one.inbox.done([held])
        assert await one.counts() == (0, 0, 0)
