"""A move carries what a store remembers as well: nothing is forgotten, and nothing unreadable stops it."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from aiogram.fsm.storage.base import DefaultKeyBuilder, StorageKey

from contract.inline_redis import InlineConnection
from contract.stores import redis_url
from restarts import in_thread
from tidegate.inbound.conversations import ConversationKey, pack_data
from tidegate.inbound.inbox import InboxItem, bot_source, hook_source
from tidegate.inbound.update_feed import NewUpdate, PushTarget, ReadRequest
from tidegate.model import (
    BotId,
    BotLimits,
    Dead,
    Delivered,
    Message,
    Migrated,
    Outcome,
    Priority,
    Rate,
    Record,
    Refused,
    Settlement,
    State,
    TicketId,
    Unknown,
)
from tidegate.outbox.port import Outbox
from tidegate.pacing.rules import Rules
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.feed_transfer import carry_feeds
from tidegate.stores.history_transfer import (
    carry_aliases,
    carry_conversations,
    carry_ended,
    carry_limits,
    carry_own_limits,
    carry_parked_updates,
)
from tidegate.stores.redis.conversations import conversation_key
from tidegate.stores.redis.inbox import RedisInbox
from tidegate.stores.redis.outbox import RedisOutbox
from tidegate.stores.redis.update_feed import RedisUpdateFeed
from tidegate.stores.sqlite import export
from tidegate.stores.sqlite.conversations import SqliteConversations
from tidegate.stores.sqlite.file import StoreFile
from tidegate.stores.sqlite.inbox import SqliteInbox
from tidegate.stores.sqlite.outbox import SqliteOutbox
from tidegate.stores.sqlite.update_feed import SqliteUpdateFeed
from tidegate.stores.transfer import MessageTransfer, open_source

BOT: Final = BotId(42)
OTHER_BOT: Final = BotId(43)
RULES: Final = Rules()
KEYS: Final = [
    ConversationKey(42, 1, 1),
    ConversationKey(42, -100, 2, thread=7),
    ConversationKey(42, 3, 3, business="b1", destiny="shop"),
]
PARTS: Final[tuple[Literal["state", "data"], ...]] = ("state", "data")


def message(ticket: str, chat: int, **fields: Any) -> Message:  # noqa: ANN401  (a message's)
    called: dict[str, Any] = {"method": "sendMessage", "params": {"text": ticket}, **fields}
    return Message(id=TicketId(ticket), bot=BOT, chat_id=chat, **called)


async def send(outbox: SqliteOutbox, clock: VirtualClock, one: Message, outcome: Outcome) -> None:
    await outbox.put([one])
    await settle_next(outbox, clock, outcome)


async def settle_next(outbox: SqliteOutbox, clock: VirtualClock, outcome: Outcome) -> None:
    while not (claims := await outbox.claim(1)):
        await clock.sleep(0.5)
    await outbox.settle([Settlement(claims[0], outcome)])
    await clock.sleep(2)


async def fill(path: Path, clock: VirtualClock) -> None:
    """One of each kind that is remembered."""
    outbox = SqliteOutbox(path, clock, RULES)
    await outbox.open()
    await outbox.start_sending()
    await send(outbox, clock, message("dead", 1), Dead("blocked", "Forbidden: bot was blocked by the user"))
    await send(outbox, clock, message("parked", 2, on_unknown="park"), Unknown("no answer", 1.0))
    delivered = message("delivered", 3, dedup_key="news/3", dedup_for=86_400.0, priority=Priority.LOW)
    await send(outbox, clock, delivered, Delivered({"message_id": 5}))
    await send(outbox, clock, message("to a group", -4), Migrated(-1004))
    await settle_next(outbox, clock, Delivered({"message_id": 6}))
    await send(outbox, clock, message("refused", 5), Refused(1_000.0))
    inbox = SqliteInbox(outbox.file, clock)
    await inbox.open()
    update = InboxItem(bot_source(42), "815", "7", b"{}")
    for item in (update, InboxItem(hook_source("pay"), "e1", "e", b"\xff")):
        await inbox.accept([item])
        [held] = await inbox.claim([item.source], 1, suspects=1)
        await inbox.park(held, f"no such town: {item.key}")
        await clock.sleep(1)
    conversations = SqliteConversations(outbox.file, clock)
    for key in KEYS:
        await conversations.set_state(key, f"state of {key.user}")
        await conversations.set_data(key, pack_data({"name": "Ä \ud800", "user": key.user}))
    await outbox.close()


@pytest.fixture
async def path(tmp_path: Path, clock: VirtualClock) -> Path:
    path = tmp_path / "tidegate.db"
    await fill(path, clock)
    return path


@pytest.fixture
async def there(clock: VirtualClock) -> AsyncIterator[RedisOutbox]:
    link = InlineConnection(redis_url(), clock)
    outbox = RedisOutbox(link, clock, RULES)
    await outbox.open()
    yield outbox
    for key in KEYS:  # which are not under the prefix of this test
        for name in (conversation_key(key, part) for part in PARTS):
            await link.command("DEL", name, f"{name}:unreadable")
    await outbox.close()


async def move(path: Path, there: RedisOutbox, clock: VirtualClock) -> export.LeftBehind:
    async with open_source(path) as file:
        await carry_all(file, there, clock)
        return await file.read(lambda tx: export.left_behind(tx, clock.now()))


async def carry_all(file: StoreFile, there: RedisOutbox, clock: VirtualClock) -> None:
    link = there.connection
    await carry_aliases(file, link)
    await carry_limits(file, link, clock)
    await MessageTransfer(file, there, clock).carry(asyncio.Event(), lambda _: None)
    await carry_ended(file, link, clock, RULES)
    await carry_parked_updates(file, link, clock)
    await carry_conversations(file, link)


async def records(outbox: Outbox) -> dict[str, Record]:
    return {one.message.id: one for one in await outbox.records()}


async def opened_records(path: Path, clock: VirtualClock) -> dict[str, Record]:
    outbox = SqliteOutbox(path, clock, RULES)
    await outbox.open()
    found = await records(outbox)
    await outbox.close()
    return found


async def test_dead_letters_and_ended_messages_are_the_same_there(
    path: Path, there: RedisOutbox, clock: VirtualClock
) -> None:
    before = await opened_records(path, clock)

    left = await move(path, there, clock)

    after = await records(there)
    for ticket in ("dead", "parked", "delivered", "to a group"):
        one, other = before[ticket], after[ticket]
        assert (one.message.params, one.state, one.reason, one.description, one.result, one.attempts) == (
            other.message.params, other.state, other.reason, other.description, other.result, other.attempts
        )  # fmt: skip
        assert other.created_at == pytest.approx(one.created_at, abs=0.01)
        assert other.settled_at == pytest.approx(one.settled_at, abs=0.01)
    assert left == export.LeftBehind()
    stats = await there.stats()
    assert (stats.dead, stats.parked) == (1, 1)


async def test_a_dead_letter_can_be_replayed_or_dropped_there(
    path: Path, there: RedisOutbox, clock: VirtualClock
) -> None:
    await move(path, there, clock)
    assert {one.message.id for one in await there.dead()} == {"parked", "dead"}

    await there.replay([TicketId("parked")])
    await there.drop([TicketId("dead")])

    assert "parked" in [claim.message.id for claim in await there.claim(10)]
    assert await there.dead() == []


async def test_a_message_that_was_delivered_before_the_move_is_not_sent_again_after_it(
    path: Path, there: RedisOutbox, clock: VirtualClock
) -> None:
    await move(path, there, clock)

    [ticket] = await there.put([message("again", 3, dedup_key="news/3", dedup_for=60.0)])

    assert (ticket.id, ticket.fresh) == ("delivered", False)


async def test_what_429s_have_taught_and_closed_holds_there(
    path: Path, there: RedisOutbox, clock: VirtualClock
) -> None:
    here = SqliteOutbox(path, clock, RULES)
    await here.open()
    await here.start_sending()
    learned = await here.learned()
    await here.close()
    assert learned

    await move(path, there, clock)

    assert await there.learned() == learned
    await there.put([message("to the closed chat", 5), message("to another", 6)])
    assert [claim.message.id for claim in await there.claim(10)] == ["to another"]


async def test_limits_of_a_bot_hold_there_and_those_that_it_has_there_stay(
    path: Path, there: RedisOutbox, clock: VirtualClock
) -> None:
    here = SqliteOutbox(path, clock, RULES)
    await here.open()
    await here.set_limits(BOT, BotLimits(bot=Rate(3, 1)))
    await here.set_limits(OTHER_BOT, BotLimits(bot=Rate(4, 1)))
    await here.close()
    await there.set_limits(OTHER_BOT, BotLimits(bot=Rate(5, 1)))

    async with open_source(path) as file:
        assert await carry_own_limits(file, there.connection) == 1
        assert await carry_own_limits(file, there.connection) == 0  # as after a kill

    own = {BOT: BotLimits(bot=Rate(3, 1)), OTHER_BOT: BotLimits(bot=Rate(5, 1))}
    assert await there.own_limits() == own


async def test_a_group_that_migrated_is_known_there_by_both_its_ids(
    path: Path, there: RedisOutbox, clock: VirtualClock
) -> None:
    await move(path, there, clock)
    await there.put([message("to the old id", -4)])

    [claim] = [one for one in await there.claim(10) if one.message.id == "to the old id"]

    assert claim.message.chat_id == -1004


async def test_parked_updates_are_listed_there_with_their_reasons(
    path: Path, there: RedisOutbox, clock: VirtualClock
) -> None:
    async with open_source(path) as file:
        before = await SqliteInbox(file, clock).parked()

    await move(path, there, clock)

    inbox = RedisInbox(there.connection, clock)
    assert await inbox.parked() == before
    assert await inbox.replay(bot_source(42), "815")
    assert (await inbox.stats()).waiting == 1


async def test_conversations_are_where_aiograms_storage_looks_for_them(
    path: Path, there: RedisOutbox, clock: VirtualClock
) -> None:
    builder = DefaultKeyBuilder(
        prefix="tidegate-fsm", with_bot_id=True, with_business_connection_id=True, with_destiny=True
    )
    names = {}
    for key in KEYS:
        storage_key = StorageKey(key.bot, key.chat, key.user, key.thread, key.business, key.destiny)
        names[key] = [builder.build(storage_key, part) for part in PARTS]
        assert names[key] == [conversation_key(key, part) for part in PARTS]

    await move(path, there, clock)

    for key, (state, data) in names.items():
        assert await there.connection.command("GET", state) == f"state of {key.user}".encode()
        found = await there.connection.command("GET", data)
        assert found == b'{"name": "\\u00c4 \\ud800", "user": %d}' % key.user


async def test_unreadable_things_are_carried_as_they_are_and_stop_no_move(
    path: Path, there: RedisOutbox, clock: VirtualClock
) -> None:
    def damage() -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE messages SET body = x'c1ff' WHERE id IN ('dead', 'refused')")
            connection.execute("UPDATE conversations SET data = x'7bff' WHERE user = 1")
            connection.execute("UPDATE limits SET learned = x'c1'")
            connection.commit()

    await in_thread(damage)

    assert await move(path, there, clock) == export.LeftBehind()

    stats = await there.stats()
    assert (stats.dead, stats.parked) == (2, 1)
    state, data = (conversation_key(KEYS[0], part) for part in PARTS)
    get = partial(there.connection.command, "GET")
    assert await get(f"{data}:unreadable") == b"{\xff"
    assert await get(f"{state}:unreadable") == f"state of {KEYS[0].user}".encode()
    assert [await get(state), await get(data)] == [None, None], "a state without its data"


async def test_data_of_a_class_that_only_the_bot_has_imported_are_moved_as_they_are(
    path: Path, there: RedisOutbox, clock: VirtualClock
) -> None:
    """The process that moves a store does not have the classes of the bot."""
    packed = b'{"cart":{"__tidegate__":"dataclass","class":"shop:Cart","value":{}}}'

    def fill_in() -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE conversations SET data = ? WHERE user = 1", (packed,))
            connection.commit()

    await in_thread(fill_in)
    await move(path, there, clock)

    found = await there.connection.command("GET", conversation_key(KEYS[0], "data"))
    assert json.loads(found) == json.loads(packed)


async def test_a_move_that_was_killed_between_its_two_writes_is_run_again(
    path: Path, there: RedisOutbox, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(export, "remove_ended", die)
        with pytest.raises(RuntimeError, match="killed"):
            await move(path, there, clock)

    assert await move(path, there, clock) == export.LeftBehind()

    found = await records(there)
    assert (found["dead"].state, found["parked"].state) == (State.DEAD, State.PARKED)
    assert (await there.stats()).dead == 1


async def test_readers_of_updates_go_on_there_where_they_were(
    path: Path, there: RedisOutbox, clock: VirtualClock
) -> None:
    hook = PushTarget("http://127.0.0.1/hook", "secret")
    async with open_source(path) as file:
        feed = SqliteUpdateFeed(file, clock)
        await feed.read(BOT, "stats", ReadRequest(kinds=("message",)))
        await feed.set_target(BOT, "pushed", hook)
        await feed.append(BOT, [NewUpdate(number, "message", 7, b"{}") for number in range(5, 1_205)])
        await feed.append(BOT, [NewUpdate(4, "message", 7, b"{}")])
        await feed.read(BOT, "stats", ReadRequest(offset=1_000))

        first = await carry_feeds(file, there.connection)
        again = await carry_feeds(file, there.connection)

    moved = RedisUpdateFeed(there.connection, "holder")
    page = await moved.read(BOT, "stats", ReadRequest(limit=3))
    assert (first, again) == ((1_201, 3), (0, 0))
    assert [one.number for one in page.updates] == [1_000, 1_001, 1_002]
    assert [one.target for one in await moved.readers(BOT)] == [None, hook, None]
    assert await moved.pending(BOT, "pushed") == 1_201
    assert (await moved.append(BOT, [NewUpdate(one, "message", 7, b"{}") for one in (4, 1_204)])).is_new == [
        False,
        False,
    ]
    assert await moved.erase(7) == 1_201
