"""A backlog moves in order, with its times and keys; wherever that is stopped, nothing is lost or doubled."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.inline_redis import InlineConnection
from contract.stores import FAST, redis_url
from tidegate.cli.move import file_named, move_lines, reminders_lines
from tidegate.errors import BadInputError, StoreAwayError, StoreError, StoreFullError
from tidegate.flows.port import SessionKey
from tidegate.flows.session import Session
from tidegate.inbound.inbox import InboxItem, bot_source, hook_source
from tidegate.model import (
    BotId,
    Delivered,
    Message,
    Priority,
    Rate,
    Retry,
    Settlement,
    State,
    Ticket,
    TicketId,
)
from tidegate.outbox.port import Outbox
from tidegate.pacing.rules import Rules
from tidegate.polling.subscriptions import News, Subscription
from tidegate.sim import virtual_time
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.outbox import MemoryOutbox
from tidegate.stores.redis.flow_sessions import RedisFlowSessions
from tidegate.stores.redis.inbox import RedisInbox
from tidegate.stores.redis.subscriptions import RedisSubscriptions
from tidegate.stores.sqlite import export
from tidegate.stores.sqlite.flow_sessions import SqliteFlowSessions
from tidegate.stores.sqlite.inbox import SqliteInbox
from tidegate.stores.sqlite.outbox import SqliteOutbox
from tidegate.stores.sqlite.settle_sql import AnsweredCall
from tidegate.stores.sqlite.subscriptions import SqliteSubscriptions
from tidegate.stores.transfer import (
    MessageTransfer,
    TransferCounts,
    carry_flow_sessions,
    carry_subscriptions,
    carry_updates,
    exclusive_sender,
    open_source,
    remember_calls,
    settle_crashes,
)

BOT = BotId(42)
ROOMY = Rules(bot=Rate(1000, 1), private=Rate(1000, 1), group=Rate(1000, 1))
LATE = 1e9  # seconds, that never come in these tests


def message(number: int, chat: int = 7, **fields: Any) -> Message:  # noqa: ANN401  (a message's)
    called: dict[str, Any] = {"method": "sendMessage", "params": {"text": str(number)}, **fields}
    return Message(id=TicketId(f"m{number:04}"), bot=BOT, chat_id=chat, **called)


class Flaky(MemoryOutbox):
    """Fails at the put of this number, before it took the messages or after."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock, ROOMY)
        self.puts = 0
        self.fails_at: int | None = None
        self.error: Exception = StoreAwayError("away")
        self.takes = False

    async def put(self, messages: Sequence[Message]) -> list[Ticket]:
        self.puts += 1
        if self.puts != self.fails_at:
            return await super().put(messages)
        if self.takes:
            await super().put(messages)
        raise self.error


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tidegate.db"


@pytest.fixture
async def target(clock: VirtualClock) -> Flaky:
    return Flaky(clock)


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "MESSAGES_PER_CHUNK", 3)


async def fill(path: Path, clock: VirtualClock, messages: Sequence[Message]) -> None:
    """Each at its own second."""
    outbox = SqliteOutbox(path, clock, ROOMY, poll=LATE)
    await outbox.open()
    for each in messages:
        await outbox.put([each])
        await clock.sleep(1)
    await outbox.close()


async def carry(path: Path, target: Outbox, clock: VirtualClock) -> TransferCounts:
    async with open_source(path) as file:
        carrier = MessageTransfer(file, target, clock)
        await carrier.carry(asyncio.Event(), lambda _: None)
        return carrier.carried


async def order_of(outbox: Outbox, clock: VirtualClock, count: int) -> list[tuple[str, int]]:
    """What is claimed, one at a time, and after how many seconds."""
    started, order = clock.monotonic(), []
    for _ in range(count):
        [claim] = await outbox.claim(1)
        order.append((claim.message.params["text"], round(clock.monotonic() - started)))
        await outbox.settle([Settlement(claim, Delivered(None))])
    return order


async def in_file(path: Path) -> tuple[int, int]:
    """How many wait, and how many are held back."""
    async with open_source(path) as file:
        found: tuple[int, int] = await file.read(export.count_to_move)
        return found


async def test_everything_that_waits_moves_and_the_file_is_empty_then(
    path: Path, target: Flaky, clock: VirtualClock
) -> None:
    await fill(path, clock, [message(n, chat=n % 3 + 1) for n in range(10)])

    carried = await carry(path, target, clock)

    assert carried == TransferCounts(moved=10)
    assert await in_file(path) == (0, 0)
    assert [text for text, _ in await order_of(target, clock, 10)] == [str(n) for n in range(10)]
    async with open_source(path) as file:
        assert not +file.counts


puts = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(Priority), st.none() | st.integers(-5, 30)), max_size=12
)


@settings(max_examples=15)
@given(puts)
def test_the_order_and_the_times_are_those_of_the_file(puts: list[tuple[int, Priority, int | None]]) -> None:
    async def scenario(clock: VirtualClock, folder: Path) -> None:
        path, copy = folder / "tidegate.db", folder / "copy.db"
        began = clock.now()
        await fill(
            path,
            clock,
            [
                message(n, chat, priority=priority, not_before=None if due is None else began + n + due)
                for n, (chat, priority, due) in enumerate(puts)
            ],
        )
        await asyncio.to_thread(shutil.copy, path, copy)
        stays, there = SqliteOutbox(copy, clock, ROOMY, poll=LATE), MemoryOutbox(clock, ROOMY)
        await stays.open()
        await carry(path, there, clock)

        expected, order = await asyncio.gather(
            order_of(stays, clock, len(puts)), order_of(there, clock, len(puts))
        )
        await stays.close()

        assert order == expected

    with TemporaryDirectory(dir=FAST) as folder:
        virtual_time.run(lambda clock: scenario(clock, Path(folder)))


@pytest.mark.parametrize("takes", [False, True])
async def test_a_target_that_goes_away_halfway_gets_the_rest_in_a_second_run(
    path: Path,
    target: Flaky,
    clock: VirtualClock,
    takes: bool,  # noqa: FBT001
) -> None:
    await fill(path, clock, [message(n) for n in range(10)])
    target.fails_at, target.takes = 2, takes

    with pytest.raises(StoreAwayError, match="3 messages may have been put or not"):
        await carry(path, target, clock)
    assert await in_file(path) == (4, 3)  # nobody sends those that are held back
    carried = await carry(path, target, clock)

    assert carried == TransferCounts(moved=4 if takes else 7, known=3 if takes else 0)
    assert await in_file(path) == (0, 0)
    assert [text for text, _ in await order_of(target, clock, 10)] == [str(n) for n in range(10)]


async def test_what_is_held_back_is_not_sent_from_the_file(
    path: Path, target: Flaky, clock: VirtualClock
) -> None:
    await fill(path, clock, [message(n) for n in range(4)])
    target.fails_at = 1
    with pytest.raises(StoreAwayError):
        await carry(path, target, clock)

    outbox = SqliteOutbox(path, clock, ROOMY, poll=LATE)
    await outbox.open()
    try:
        assert [text for text, _ in await order_of(outbox, clock, 1)] == ["3"]
        await outbox.drained()
        held = await outbox.dead(reason=export.MOVING)
        assert [(record.state, record.message.id) for record in held] == [
            (State.PARKED, f"m{n:04}") for n in range(3)
        ]
        assert "run tidegate move again" in (held[0].description or "")
    finally:
        await outbox.close()


async def test_a_target_that_is_full_leaves_everything_in_its_place(
    path: Path, target: Flaky, clock: VirtualClock
) -> None:
    await fill(path, clock, [message(n, coalesce_key=f"k{n}") for n in range(5)])
    target.fails_at, target.error = 2, StoreFullError("full")

    with pytest.raises(StoreFullError):
        await carry(path, target, clock)

    assert await in_file(path) == (2, 0)
    assert (await carry(path, target, clock)).moved == 2
    assert [text for text, _ in await order_of(target, clock, 5)] == [str(n) for n in range(5)]


async def test_stopped_it_ends_after_its_step(path: Path, target: Flaky, clock: VirtualClock) -> None:
    await fill(path, clock, [message(n) for n in range(10)])
    stop = asyncio.Event()
    async with open_source(path) as file:
        carrier = MessageTransfer(file, target, clock)
        await carrier.carry(stop, lambda _: stop.set())

    assert carrier.carried.moved == 3
    assert await in_file(path) == (7, 0)


async def test_keys_keep_what_is_left_of_their_time(path: Path, target: Flaky, clock: VirtualClock) -> None:
    await fill(
        path, clock, [message(1, dedup_key="once", dedup_for=100.0), message(2, coalesce_key="latest")]
    )
    await carry(path, target, clock)

    [again] = await target.put([message(3, dedup_key="once")])
    await target.put([message(4, coalesce_key="latest")])
    assert (again.id, again.fresh) == ("m0001", False)
    assert [text for text, _ in await order_of(target, clock, 2)] == ["1", "4"]
    await clock.sleep(99)
    [later] = await target.put([message(5, dedup_key="once")])
    assert later.fresh


async def test_what_was_put_there_with_the_same_dedup_key_is_not_sent_twice(
    path: Path, target: Flaky, clock: VirtualClock
) -> None:
    await fill(path, clock, [message(1, dedup_key="once")])
    await target.put([message(2, dedup_key="once")])

    assert await carry(path, target, clock) == TransferCounts(duplicates=1)
    assert (await target.stats()).waiting == 1


async def test_retries_keep_their_place_and_crashes_are_settled_first(
    path: Path, target: Flaky, clock: VirtualClock
) -> None:
    outbox = SqliteOutbox(path, clock, ROOMY, poll=LATE)
    await outbox.open()
    await outbox.put([message(1), message(2), message(3, chat=8), message(4, chat=9, on_unknown="park")])
    tried, *_ = [(await outbox.claim(1))[0] for _ in range(3)]
    await outbox.settle([Settlement(tried, Retry(600.0, "5xx"))])
    await outbox.close()  # what was being sent stays so, as after a kill

    async with open_source(path) as file:
        await settle_crashes(file, clock, ROOMY)
        left = await file.read(lambda tx: export.left_behind(tx, clock.now()))
    carried = await carry(path, target, clock)

    assert (carried.moved, left.parked) == (3, 1)
    assert [text for text, _ in await order_of(target, clock, 3)] == ["1", "2", "3"]


async def test_nobody_sends_while_it_moves(path: Path, clock: VirtualClock) -> None:
    await fill(path, clock, [])
    outbox = SqliteOutbox(path, clock, ROOMY, poll=LATE)
    await outbox.open()
    try:
        await outbox.start_sending()
        with pytest.raises(StoreError, match="stop it first"):
            async with exclusive_sender(path, clock):
                pass
    finally:
        await outbox.close()
    async with exclusive_sender(path, clock):
        pass


async def test_calls_made_lately_still_count_in_the_target(clock: VirtualClock) -> None:
    rules = Rules(group=Rate(2, 60))
    target = MemoryOutbox(clock, rules)
    made = [AnsweredCall(clock.now() - age, BOT, -7, "send", False, 1) for age in (70.0, 50.0, 10.0)]  # noqa: FBT003

    await remember_calls(target, made, rules, clock.now())

    assert await target.wait_for(BOT, -7, "send", 1) == pytest.approx(10.0)
    assert await target.wait_for(BOT, -8, "send", 1) == 0


@pytest.mark.parametrize("source", ["redis://:hush@host/0", "memory://", "", "sqlite:"])
def test_what_is_no_file_is_not_moved_from(source: str) -> None:
    with pytest.raises(BadInputError, match=r"tidegate move tidegate\.db") as caught:
        file_named(source)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("prefix", ["", "sqlite:", "sqlite:///"])
def test_a_file_may_be_named_in_three_ways(tmp_path: Path, prefix: str) -> None:
    (tmp_path / "tidegate.db").write_bytes(b"x")

    assert file_named(f"{prefix}{tmp_path}/tidegate.db") == tmp_path / "tidegate.db"


def test_what_stays_behind_is_named_with_counts() -> None:
    found = {
        "from": "tidegate.db", "to": "redis://host/0", "dry_run": False, "moved": 1_200, "known": 3,
        "duplicates": 1, "paused": 2, "waiting": 4, "seconds": 1.5, "bots": [42], "bots_left": [43],
        "why_left": "TIDEGATE_KEY is not set", "dead": 5, "parked": 1, "ended": 7, "dedup_keys": 6,
        "limits": 9, "parked_updates": 10, "conversations": 11,
        "updates": 0, "subscriptions": 8, "sessions": 0, "moved_letters": 12, "moved_ended": 13,
        "moved_limits": 14, "moved_parked_updates": 15, "moved_conversations": 16,
        "moved_fed_updates": 17, "moved_readers": 18,
        "reminders": "/srv/bot-data.db",
    }  # fmt: skip

    told = "\n".join(move_lines(found))

    for part in ("1,200 messages", "3 messages were", "1 message was", "2 pauses", "4 messages still wait",
                 "42:…", "43:…", "TIDEGATE_KEY is not set", "6 dead or parked", "7 messages that ended",
                 "6 dedup keys", "8 subscriptions", "9 limits", "10 parked updates", "11 conversations",
                 "12 dead or parked messages", "13 ended messages", "14 limits", "15 parked updates",
                 "16 conversations", "17 shared updates", "18 readers of updates",
                 "with DATABASE_URL=sqlite:////srv/bot-data.db"):  # fmt: skip
        assert part in told
    assert "Nothing is left" not in told

    nothing = dict.fromkeys(("waiting", "dead", "parked", "ended", "dedup_keys", "limits"), 0)
    whole = {**found, **nothing, "bots_left": [], "parked_updates": 0, "conversations": 0}
    assert move_lines(whole)[-1] == (
        "Nothing is left to move: rename tidegate.db, or processes warn that it is not used."
    )
    assert "Nothing is left" not in "\n".join(move_lines({**whole, "dry_run": True}))


def test_reminders_in_the_file_that_is_used_beside_redis_need_nothing() -> None:
    assert reminders_lines({"reminders": "tidegate-data.db"}) == []
    assert reminders_lines({"reminders": None}) == []


async def test_a_message_that_cannot_be_decoded_stays_as_a_dead_letter_and_the_others_move(
    path: Path, clock: VirtualClock, target: Flaky
) -> None:
    await fill(path, clock, [message(number) for number in range(8)])
    async with open_source(path) as file:
        await file.write(lambda tx: tx.execute("UPDATE messages SET body = x'c1' WHERE seq IN (1, 4, 5, 6)"))

    carried = await carry(path, target, clock)

    assert carried.moved == 4
    assert [text for text, _ in await order_of(target, clock, 4)] == ["1", "2", "6", "7"]
    assert await in_file(path) == (0, 0)
    async with open_source(path) as file:
        letters = await file.read(
            lambda tx: tx.execute("SELECT state, reason, hex(body) FROM messages").fetchall()
        )
        counts = file.counts
    assert letters == [("dead", "unreadable", "C1")] * 4
    assert {name: count for (_, name), count in counts.items() if count} == {"dead": 4}


async def test_updates_that_wait_move_in_the_order_of_chats(tmp_path: Path, clock: VirtualClock) -> None:
    bot, hook, link = bot_source(42), hook_source("paid"), InlineConnection(redis_url(), clock)
    outbox = SqliteOutbox(tmp_path / "tidegate.db", clock)
    await outbox.open()
    await link.open(b"")
    here, there = SqliteInbox(outbox.file, clock), RedisInbox(link, clock)
    await here.open()
    handled = [InboxItem(bot, "70000", "1", b"{}"), InboxItem(hook, "evt", "evt", b"{}")]
    await here.accept(handled)
    await here.done(await here.claim([bot, hook], 10, suspects=1))
    await here.accept([InboxItem(bot, str(number), str(number % 2), b"{}") for number in range(6)])
    [first, _] = await here.claim([bot], 10, suspects=1)
    await here.release(first, after=3600, failed=True)  # it waits for its next try
    await here.close()

    moved = await carry_updates(outbox.file, link, clock)
    known = await there.accept([*handled, InboxItem(bot, "5", "1", b"{}"), InboxItem(bot, "6", "1", b"{}")])
    order = []
    while held := await there.claim([bot, hook], 10, suspects=1):
        order += [one.item.key for one in held]
        await there.done(held)
    left = await here.stats()
    await outbox.close()
    await there.close()
    await link.close()

    assert (moved, order) == (6, ["0", "1", "2", "3", "4", "5", "6"])
    assert known == [False, False, False, True]
    assert (left.waiting, left.handling) == (0, 0)


async def test_who_waits_for_something_moves_with_what_he_is_to_be_told(
    tmp_path: Path, clock: VirtualClock
) -> None:
    link = InlineConnection(redis_url(), clock)
    async with open_source(tmp_path / "tidegate.db") as file:
        here = {name: SqliteSubscriptions(file, clock, name) for name in ("orders", "visas")}
        await here["orders"].add([Subscription(key, {"chat": 7}) for key in ("waits", "told", "watched")])
        await here["orders"].note_news([News("told", 1), News("watched", 2)])
        await here["orders"].settle_news(["watched"], "watch")
        await here["visas"].add([Subscription(str(number)) for number in range(1_100)])
        await here["visas"].save_watermark("2026-01-05")
        before = await here["orders"].after(0)

        moved = await carry_subscriptions(file, link, clock)
        again = await carry_subscriptions(file, link, clock)

        left = [await one.count() for one in here.values()]
    there = {name: RedisSubscriptions(link, clock, name) for name in here}
    after = await there["orders"].after(0)
    counts, mark = [await one.count() for one in there.values()], await there["visas"].watermark()
    await link.close()

    assert (moved, again, left, counts, mark) == (1_103, 0, [0, 0], [3, 1_100], "2026-01-05")
    states = [[(one.subscription, one.met, one.news) for one in found] for found in (before, after)]
    assert states[0] == states[1]


async def test_sessions_of_flows_move_with_their_timers_and_what_they_have_heard(
    tmp_path: Path, clock: VirtualClock
) -> None:
    link, keys = InlineConnection(redis_url(), clock), [SessionKey(42, user, user) for user in range(1, 4)]
    waiting = Session(flow="shop", state="waiting", visit=3, due=100.0)
    there = RedisFlowSessions(link, clock, "shop")
    await there.commit(keys[2], newer := Session(flow="shop", state="newer", visit=9), expected=0)
    async with open_source(tmp_path / "tidegate.db") as file:
        here = SqliteFlowSessions(file, clock, "shop")
        for key in keys:
            await here.commit(key, waiting, expected=0, seen="campaign", at=5.0)
        moved = [await carry_flow_sessions(file, link, clock) for _ in range(2)]
        left = (await here.scan()).keys, (await here.load(keys[0], "campaign")).is_seen
    stored = [await there.load(key, "campaign") for key in keys]
    timers = await there.timers(0.0)
    await link.close()

    assert (moved, left) == ([2, 0], ([], False))
    assert [one.session for one in stored] == [waiting, waiting, newer]
    assert [one.is_seen for one in stored] == [True] * 3
    assert timers == (2, 100.0)
