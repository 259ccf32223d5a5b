"""The scripts themselves: what they touch, how much one of them may do, and what they leave behind."""

import asyncio
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final

import pytest
from blockbuster import BlockBuster
from redis import Redis
from redis.client import Monitor
from redis.exceptions import OutOfMemoryError, ResponseError

from contract.post import BOT, DELIVERED, OTHER_BOT, Post
from contract.stores import redis_url
from redis_hub import Hub, inline, processes, promise_of
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.errors import ClosedError, StoreError
from tidegate.model import (
    BotLimits,
    Dead,
    Migrated,
    NotSent,
    Priority,
    Rate,
    Refused,
    Retry,
    Settlement,
    State,
    TicketId,
    Unknown,
)
from tidegate.pacing.rules import Rules
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.redis.connection import LONGEST_BLOCKING_POP, REDIS_SCHEMA, Argument, RedisPyConnection
from tidegate.stores.redis.importer import (
    BroughtLearned,
    BroughtLimit,
    BroughtMessage,
    bring_limits,
    bring_messages,
)
from tidegate.stores.redis.operator import paused_chats
from tidegate.stores.redis.outbox_codec import OUTBOX_SCRIPTS

FAST: Final = Rules(bot=Rate(1_000_000, 1), private=Rate(1_000, 1), group=Rate(1_000, 1))
MOST: Final = 12_000  # commands that one step gives: about 50 ms of Redis
LASTING: Final = {"meta", "counts", "bot_counts", "pools", "bots", "claimed"}  # few, whatever was sent


def sources() -> dict[str, str]:
    lua = files("tidegate.stores.redis") / "lua"
    folders = [lua / "outbox", lua / "shared"]
    found = {}
    while folders:
        for entry in folders.pop().iterdir():
            if entry.is_dir():
                folders.append(entry)
            elif entry.name.endswith(".lua"):
                found[entry.name.removesuffix(".lua")] = entry.read_text()
    return found


@pytest.fixture(autouse=True)
def redis_asks_for_its_own_version(no_blocking_calls: BlockBuster) -> None:
    for call in no_blocking_calls.functions.values():
        call.can_block_in("redis/utils.py", "get_lib_version")  # once for each connection


@pytest.fixture
def redis() -> Iterator[Redis]:
    with Redis.from_url(redis_url()) as client:
        yield client


def test_every_step_compiles_and_is_known_by_the_hash_that_we_compute(redis: Redis) -> None:
    assert {step: redis.script_load(script.source) for step, script in OUTBOX_SCRIPTS.items()} == {
        step: script.sha for step, script in OUTBOX_SCRIPTS.items()
    }


@pytest.mark.parametrize("name", sorted(sources()))
def test_every_file_begins_with_what_it_promises(name: str) -> None:
    head = sources()[name].partition("\n\n")[0]

    assert all(line.startswith("--") for line in head.splitlines())
    assert len(head) > 60


@pytest.mark.parametrize("step", sorted(OUTBOX_SCRIPTS))
def test_every_step_begins_with_what_it_promises(step: str) -> None:
    head = promise_of("outbox", step)

    assert all(line.startswith("--") for line in head.splitlines())
    assert len(head) > 60
    assert re.match(rf"-- {step.split('_', maxsplit=1)[0]}\b[^:]*: ", head, re.IGNORECASE)


def test_no_file_names_a_key_by_itself() -> None:
    named = {
        name: re.findall(r"(?:call|call_many|later)\(\s*'[A-Z]+',\s*['\"][^)]*", text)
        for name, text in sources().items()
    }

    assert {name: found for name, found in named.items() if found} == {}


async def change_limits(post: Post) -> None:
    await post.outbox.open_limits(BOT)
    await post.outbox.open_limits(BOT, 9)
    await post.outbox.set_limits(BOT, BotLimits(group=Rate(5, 1)))
    await post.outbox.set_limits(BOT, BotLimits())


async def do_everything(post: Post) -> None:
    """Each step at least once, and each end of a message."""
    outbox, now = post.outbox, post.clock.now()
    await outbox.pause(BOT)
    await outbox.pause(BOT, 9)
    await post.put(9, dedup_key="d", dedup_for=60.0, coalesce_key="c")
    await post.put(9, coalesce_key="c")
    cancelled = await post.put(9, not_before=now + 50)
    await post.put(9, expires_at=now + 0.5)
    await outbox.reprioritize([cancelled], Priority.LOW)
    await outbox.cancel([cancelled])
    await outbox.resume(BOT, 9)
    await outbox.resume(BOT)
    await post.put_many(3, -7)
    for outcome in (
        DELIVERED,
        Retry(0.1, "502"),
        Unknown("x", 0.1),
        Refused(0.2),
        Migrated(-107),
        NotSent("x"),
    ):
        await post.put(-7)
        claim = await post.one(within=5)
        await outbox.extend([claim])
        await outbox.cool([claim])
        await post.settle(claim, outcome)
    await post.put_many(2, 3)
    await post.send(Dead("blocked", "gone", whole_chat=True), within=5)
    held = await post.turn(5)
    waiting = await post.begin(post.turn(5))
    await post.clock.sleep(0.1)
    await outbox.end_turn(held, DELIVERED)
    await outbox.end_turn(await waiting, Refused(0.1))
    await post.run(5)
    letters = [record.message.id for record in await outbox.dead()]
    await outbox.letters_by_reason()
    await outbox.replay(letters[:1])
    await outbox.drop(letters[1:])
    await outbox.wait_for(BOT, 1, "send", 1)
    await outbox.why(await post.put(1))
    await outbox.records()
    await outbox.find(letters[0])
    await outbox.stats_by_bot()
    await outbox.connection.command("HINCRBY", outbox.connection.key("bot_counts"), "42/dead", 1)  # type: ignore[attr-defined]
    await outbox.stats_by_bot()  # they do not add up: it counts anew
    brought = BroughtMessage("b", "42", "9", "send", 1, 1, State.DEAD, now, now, reason="blocked")
    await bring_messages(outbox.connection, [(brought, b"", None)])  # type: ignore[attr-defined]
    learned = BroughtLearned(step=1, bad=2, interval=60.0, cut_ago=1.0, up_in=9.0)
    limit = BroughtLimit("42", "send", 1.0, "9", learned)
    await bring_limits(outbox.connection, [limit])  # type: ignore[attr-defined]
    await paused_chats(outbox.connection)  # type: ignore[attr-defined]
    await outbox.limits()
    await change_limits(post)
    await outbox.learned()
    await post.run(5)
    await outbox.forget(9)
    await outbox._beat()  # type: ignore[attr-defined]  # noqa: SLF001  (its heart beats in real time only)


async def test_every_command_of_every_step_goes_to_a_declared_key_of_one_slot(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, [post]):
        monitor: Monitor = hub.redis.monitor()  # type: ignore[no-untyped-call]
        await inline(monitor.__enter__)
        await do_everything(post)
        used = await inline(commands_of_lua, hub, monitor)
        await inline(monitor.__exit__, None, None, None)

        assert set(hub.steps) == set(OUTBOX_SCRIPTS)
        assert len(used) > 500
        assert {command[1] for command in used if len(command) > 1} <= set(hub.keys.values())
        assert {command[0] for command in used if len(command) == 1} <= {"TIME"}
        assert {key.partition("{")[2].partition("}")[0] for key in hub.keys.values()} == {"0"}
        kept = {key.decode() for key in await inline(hub.redis.keys, f"{hub.prefix}*")}
        assert kept <= set(hub.keys.values())


def commands_of_lua(hub: Hub, monitor: Monitor) -> list[list[str]]:
    hub.redis.echo("that was all")
    found: list[list[str]] = []
    while True:
        told: dict[str, str] = monitor.next_command()  # type: ignore[no-untyped-call]
        if "that was all" in told["command"]:
            return found
        if told["client_type"] == "lua":
            found.append(told["command"].split(" "))


def opened(redis: Redis, prefix: str, schema: int | None) -> None:
    """A process opens a store that was written by that version."""
    link = RedisPyConnection(redis_url(), Clock(), "me", prefix=prefix)
    if schema is not None:
        redis.hset(link.key("meta"), "schema", schema)

    async def main() -> None:
        try:
            await link.open(b"\x81\xa2me\xa2me")
        finally:
            await link.close()

    asyncio.run(main())


def test_a_store_of_a_newer_version_is_refused_and_left_alone(redis: Redis) -> None:
    with pytest.raises(
        StoreError, match=rf"newer Tidegate \(version {REDIS_SCHEMA + 1} .*upgrade this process"
    ):
        opened(redis, "newer", REDIS_SCHEMA + 1)

    assert redis.hget("newer:{0}:meta", "schema") == str(REDIS_SCHEMA + 1).encode()
    assert redis.hget("newer:{0}:meta", "run_id") is None


@pytest.mark.parametrize("schema", [None, REDIS_SCHEMA - 1, REDIS_SCHEMA])
def test_a_new_store_or_an_older_one_is_accepted(redis: Redis, schema: int | None) -> None:
    opened(redis, f"older{schema}", schema)

    assert redis.hget(f"older{schema}:{{0}}:meta", "schema") == str(REDIS_SCHEMA).encode()


def test_a_gate_on_redis_that_was_not_opened_says_so() -> None:
    gate = Tidegate(redis_url())

    with pytest.raises(ClosedError, match="is not open: use the gate inside async with gate:"):
        asyncio.run(gate.outbox.why(TicketId("9f3a41c2d5e6-0000001b")))


def test_a_number_of_a_database_that_redis_does_not_have_is_named(redis: Redis) -> None:
    most = redis.config_get("databases")["databases"]
    link = RedisPyConnection(redis_url().rpartition("/")[0] + f"/{most}", Clock(), "me")

    async def main() -> None:
        try:
            await link.open(b"\x81\xa2me\xa2me")
        finally:
            await link.close()

    with pytest.raises(StoreError, match="no database of that number: correct the number at the end"):
        asyncio.run(main())


async def test_a_redis_that_forgets_the_scripts_changes_nothing(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, [post]):
        flush = hub.redis.script_flush
        await post.put_many(3, 1)
        await inline(flush)
        claim = await post.one()
        await inline(flush)
        await post.settle(claim)
        await inline(flush)

        assert len(await post.order()) == 2


class Cost:
    """Commands that each step gave."""

    def __init__(self, hub: Hub) -> None:
        self.steps: list[tuple[int, str]] = []
        self._run = hub.run
        self._hub = hub
        hub.run = self.run  # type: ignore[method-assign]

    def run(self, step: str, terms: bytes, args: tuple[Argument, ...]) -> list[bytes]:
        before = self._given()
        reply = self._run(step, terms, args)
        self.steps.append((self._given() - before, step))
        return reply

    def _given(self) -> int:
        stats: dict[str, Any] = self._hub.redis.info("commandstats")
        return sum(command["calls"] for command in stats.values())

    @property
    def largest(self) -> tuple[int, str]:
        return max(self.steps)


async def put_many(post: Post, count: int, chat: int | None = None, **fields: Any) -> list[TicketId]:  # noqa: ANN401
    """To one chat, or to as many."""
    fields = {"priority": Priority.HIGH} | fields  # others are spaced, in virtual time one for each claim
    messages = [post.message(chat or number + 1, **fields) for number in range(count)]
    for first in range(0, count, 1_000):
        await post.outbox.put(messages[first : first + 1_000])
    return [message.id for message in messages]


async def test_ten_thousand_that_are_due_at_once_are_done_in_short_steps(clock: VirtualClock) -> None:
    async with processes(clock, 1, FAST) as (hub, [post]):
        await put_many(post, 10_000, not_before=clock.now() + 10)
        cost = Cost(hub)
        await clock.sleep(11)

        went = await post.run(1, room=500)

        assert len(went) == 10_000
        assert cost.largest < (MOST, "")


async def test_ten_thousand_that_expire_at_once_end_in_short_steps(clock: VirtualClock) -> None:
    async with processes(clock, 1, FAST) as (hub, [post]):
        await post.outbox.pause(BOT)
        await put_many(post, 5_000, expires_at=clock.now() + 10)
        await put_many(post, 5_000, 1, expires_at=clock.now() + 10)
        cost = Cost(hub)
        await clock.sleep(11)

        assert (await post.outbox.stats()).expired == 10_000
        assert cost.largest < (MOST, "")
        kept = {"messages", "order", "ended", "bots", "lanes", "resting", "active"}
        assert set(not_woken(await sizes(hub))) <= kept


async def test_a_chat_that_dies_with_ten_thousand_messages_is_buried_in_short_steps(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 1, FAST) as (hub, [post]):
        await put_many(post, 10_000, 1)
        await put_many(post, 5, 2)
        cost = Cost(hub)
        await post.send(Dead("blocked", "gone", whole_chat=True))
        await post.run(2)

        stats = await post.outbox.stats()
        assert (stats.dead, stats.waiting) == (10_000, 0)
        assert cost.largest < (MOST, "")


async def test_a_chat_that_migrates_with_ten_thousand_messages_moves_in_short_steps(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 2, FAST) as (hub, [one, other]):
        other._ids = one._ids  # noqa: SLF001  (no two messages have one id)
        tickets = await put_many(one, 10_000, -1)
        cost = Cost(hub)
        await one.send(Migrated(-2))
        # Its process is dead from here on: another one goes on with the move.
        old = (b"[42/send/-1\x00", b"(42/send/-1\x01")
        assert await inline(hub.redis.zlexcount, hub.keys["queue"], *old) > 9_000
        late, early = await other.put(-1, priority=Priority.HIGH), await other.put(-2, priority=Priority.HIGH)
        assert await other.outbox.cancel([tickets[9_000]]) == 1

        sent = [(await other.send()).message.id for _ in range(300)]
        stats = await other.outbox.stats()

        assert sent == tickets[:300]
        assert stats.waiting == 10_000 + 2 - 1 - 300
        assert cost.largest < (5_000, "")
        new = (b"[42/send/-2\x00", b"(42/send/-2\x01")
        members: list[bytes] = await inline(hub.redis.zrangebylex, hub.keys["queue"], *new)
        behind = [member.rpartition(b"\0")[2].decode() for member in members]  # the first is in the lane
        assert behind == [*(ticket for ticket in tickets[301:] if ticket != tickets[9_000]), late, early]
        assert await inline(hub.redis.zlexcount, hub.keys["queue"], *old) == 0
        await clock.sleep(10)
        await other.outbox.stats()
        assert await inline(hub.redis.hkeys, hub.keys["lanes"]) == [b"42/send/-2"]


async def test_what_came_later_waits_for_what_is_on_its_way_from_a_chat_that_migrates_twice(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 1, FAST) as (_, [post]):
        first = await put_many(post, 1_200, -1)
        await post.send(Migrated(-2))
        claim = await post.one()
        last = [await post.put(chat, priority=Priority.HIGH) for chat in (-3, -1, -2)]

        await post.settle(claim, Migrated(-3))

        assert await post.order(30) == [*first, *last]


async def test_a_chat_that_dies_while_it_migrates_is_buried_as_a_whole(clock: VirtualClock) -> None:
    async with processes(clock, 1, FAST) as (_, [post]):
        await put_many(post, 2_000, -1)
        await post.send(Migrated(-2))
        await post.send(Dead("blocked", "gone", whole_chat=True))

        assert await post.order(5) == []
        stats = await post.outbox.stats()
        assert (stats.dead, stats.waiting) == (2_000, 0)


async def test_a_claim_is_as_short_with_many_ready_lines_as_with_few(clock: VirtualClock) -> None:
    async with processes(clock, 1, FAST) as (hub, [post]):
        cost, short = Cost(hub), []
        for count in (100, 10_000):
            await put_many(post, count)
            claims = await post.outbox.claim(100)
            short.append(cost.steps[-1][0])
            await post.outbox.settle([Settlement(claim, DELIVERED) for claim in claims])

        assert short[1] <= 1.2 * short[0]
        assert cost.largest < (MOST, "")


async def sizes(hub: Hub) -> dict[str, int]:
    """How many things each key holds, but for what is always there."""
    count = {"hash": "HLEN", "zset": "ZCARD", "list": "LLEN"}
    found = {}
    for name, key in hub.keys.items():
        kind = (await inline(hub.ask, "TYPE", key)).decode()
        if kind != "none" and name not in LASTING:
            found[name] = await inline(hub.ask, count[kind], key)
    return found


async def idle(post: Post, seconds: float) -> None:
    """A worker that waits, and nothing to do for it."""
    waiting = asyncio.create_task(post.outbox.claim(1))
    await post.clock.sleep(seconds)
    waiting.cancel()
    await asyncio.wait([waiting])
    await post.clock.sleep(0.1)
    await post.outbox.stats()


async def test_nothing_is_left_of_five_thousand_chats(clock: VirtualClock) -> None:
    async with processes(clock, 1, FAST, keep=5, longest_wait=LONGEST_BLOCKING_POP) as (hub, [post]):
        await put_many(post, 5_000, dedup_key=None, coalesce_key="c")
        assert len(await post.run(2, room=500)) == 5_000

        await idle(post, 200)

        assert not_woken(await sizes(hub)) == {}


async def test_nothing_is_left_of_what_was_kept_for_its_dedup_lifetime(clock: VirtualClock) -> None:
    async with processes(clock, 1, FAST, keep=5, longest_wait=LONGEST_BLOCKING_POP) as (hub, [post]):
        for chat in range(1, 201):
            await post.put(chat, dedup_key=f"d{chat}", dedup_for=100)
        await post.run(2)
        await idle(post, 60)
        assert not_woken(await sizes(hub)) == {"messages": 200, "order": 200, "dedup": 200, "ended": 200}

        await idle(post, 60)

        assert not_woken(await sizes(hub)) == {}


async def test_nothing_is_left_of_anything_that_can_happen_to_a_message(clock: VirtualClock) -> None:
    async with processes(clock, 1, keep=5, longest_wait=LONGEST_BLOCKING_POP) as (hub, [post]):
        for _ in range(2):
            await do_everything(post)
        await post.outbox.drop([record.message.id for record in await post.outbox.dead()])
        assert (await post.outbox.stats()).waiting == 0

        await idle(post, 5_000)  # what 429s taught is forgotten after an hour

        assert set(not_woken(await sizes(hub))) <= {"aliases", "processes", "learned"}
        assert set(await inline(hub.redis.hkeys, hub.keys["learned"])) <= {
            str(BOT).encode()
        }  # a chat's are gone


async def test_turns_leave_nothing_behind(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, [post]):
        for chat in range(1, 101):
            await post.outbox.end_turn(await post.turn(chat), DELIVERED)
            await post.outbox.end_turn(await post.turn(chat, OTHER_BOT), NotSent("x"))
        given_up = [await post.begin(post.turn(7)) for _ in range(20)]
        await clock.sleep(0.1)
        for task in given_up:
            task.cancel()
        await asyncio.wait(given_up)
        for task in given_up:
            if not task.cancelled():
                await post.outbox.end_turn(task.result(), DELIVERED)

        await idle(post, 60)

        assert not_woken(await sizes(hub)) == {}
        assert await inline(hub.ask, "HGET", hub.keys["meta"], "turns") == b"0"


async def test_what_is_cancelled_long_before_it_is_due_leaves_no_timer(clock: VirtualClock) -> None:
    async with processes(clock, 1, keep=5, longest_wait=LONGEST_BLOCKING_POP) as (hub, [post]):
        far = clock.now() + 1e7
        await post.outbox.cancel([await post.put(chat, not_before=far) for chat in range(1, 101)])
        for _ in range(100):
            await post.put(1, not_before=far, coalesce_key="c")
        await post.outbox.forget(1)

        await idle(post, 60)

        assert not_woken(await sizes(hub)) == {}


def not_woken(found: dict[str, int]) -> dict[str, int]:
    """A wake-up may be left for whoever comes next: one."""
    assert found.pop("wake", 0) <= 2
    return found


@pytest.mark.parametrize("due", [False, True])
async def test_a_full_redis_takes_no_message_and_delivers_those_it_has(
    clock: VirtualClock, *, due: bool
) -> None:
    async with processes(clock, 1) as (hub, [post]):
        await post.put_many(3, 1)
        if due:
            await post.put(2, not_before=clock.now() + 1)
        await clock.sleep(2)
        await inline(hub.redis.config_set, "maxmemory", 1)
        try:
            with pytest.raises((OutOfMemoryError, ResponseError), match=r"OOM|maxmemory"):
                await post.put(3)
            assert len(await post.order()) == 3 + due
        finally:
            await inline(hub.redis.config_set, "maxmemory", 0)
