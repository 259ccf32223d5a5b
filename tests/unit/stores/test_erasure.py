"""`tidegate forget`: what was erased is nowhere in the files of the store, and others lose nothing."""

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tidegate import Tidegate
from tidegate.errors import StoreError
from tidegate.flows.port import SessionKey, subscription_data
from tidegate.flows.session import Session
from tidegate.inbound.conversations import ConversationKey
from tidegate.inbound.inbox import InboxItem, bot_source
from tidegate.inbound.update_feed import NewUpdate
from tidegate.model import BotId, ChatId, State
from tidegate.polling.subscriptions import News, Subscription
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.erasure import is_for_chat
from tidegate.stores.sqlite.backups import back_up
from tidegate.stores.sqlite.store import SqliteStore

BOT, CHAT, OTHER = BotId(42), 1001, 2002
TEXTS = 2_000
_MARK = re.compile(rb"secret-of-1001-\d+")


@pytest.fixture
async def gate(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Tidegate]:
    gate = Tidegate(tmp_path / "tidegate.db", clock=clock)
    gate.add_bot("42:any")
    async with gate:
        yield gate


def mark(number: int) -> str:
    return f"secret-of-1001-{number}"


async def found_in(folder: Path) -> set[bytes]:
    return await asyncio.to_thread(_found_in, folder)


def _found_in(folder: Path) -> set[bytes]:
    return {mark for path in folder.iterdir() for mark in _MARK.findall(path.read_bytes())}


async def fill(gate: Tidegate) -> None:
    """Messages of both chats in turn, in every size, some of them ended, dead or cancelled."""
    sizes = (0, 30, 300, 5_000)
    for first in range(0, TEXTS, 200):
        fields = [
            {
                "chat_id": chat,
                "text": f"{mark(n) if chat == CHAT else 'kept'} {'x' * sizes[n % 4]}"[:4096],
                "dedup_key": f"{mark(n) if chat == CHAT else f'kept {n}'} for good",
                "coalesce_key": f"{mark(n)} newest" if chat == CHAT and n % 3 == 0 else None,
            }
            for n in range(first, first + 200)
            for chat in (CHAT, OTHER)
        ]
        tickets = await gate.send_many(fields, bot=BOT)
        await gate.outbox.cancel([ticket.id for ticket in tickets[::3]])


async def test_after_forget_no_text_and_no_key_of_a_chat_is_in_any_byte_of_the_files(
    gate: Tidegate, tmp_path: Path
) -> None:
    await fill(gate)
    assert len(await found_in(tmp_path)) > TEXTS * 0.9

    erased = await gate.core.store.erase(CHAT)

    assert erased.messages == TEXTS
    assert await found_in(tmp_path) == set()
    assert len(await gate.outbox.records(chat_id=OTHER, limit=10 * TEXTS)) == TEXTS


async def test_after_forget_nothing_that_other_parts_kept_about_a_chat_is_left(
    gate: Tidegate, tmp_path: Path, clock: VirtualClock
) -> None:
    store = gate.core.store
    assert isinstance(store, SqliteStore)
    assert store.conversations is not None
    chats: dict[ChatId, str] = {CHAT: mark(1), OTHER: "kept"}
    for chat, text in chats.items():
        user = int(chat)
        bodies = [f'{{"text": "{text}"}}'.encode()] * 2
        await store.update_feed.append(BOT, [NewUpdate(user, "message", user, bodies[0])])
        items = [InboxItem(bot_source(BOT), f"{chat}{n}", str(chat), body) for n, body in enumerate(bodies)]
        await store.inbox.accept(items)
        await store.conversations.set_data(ConversationKey(BOT, user, user), f'{{"a": "{text}"}}'.encode())
        session = Session(flow="shop", state="ask", visit=1, data={"name": text})
        key = SessionKey(BOT, user, user)
        await store.flow_sessions("shop").commit(key, session, expected=0, seen=text, at=clock.now())
        data = subscription_data(key, text)
        await store.subscriptions("orders").add([Subscription(f"order {text}", data)])
    await store.inbox.open()
    (claimed, *_) = await store.inbox.claim([bot_source(BOT)], 1, suspects=1)
    await store.inbox.park(claimed, f"{mark(2)} failed")
    await store.subscriptions("orders").note_news([News(f"order {mark(1)}", {"name": mark(3)})])

    erased = await store.erase(CHAT)

    assert (erased.updates, erased.conversations, erased.sessions, erased.subscriptions) == (3, 1, 1, 1)
    assert await found_in(tmp_path) == set()
    assert (await store.inbox.stats()).waiting == 2
    assert await store.update_feed.pending(BOT, "default") == 1
    assert await store.conversations.get_data(ConversationKey(BOT, OTHER, OTHER)) is not None
    assert (await store.flow_sessions("shop").load(SessionKey(BOT, OTHER, OTHER), "kept")).is_seen
    assert [one.subscription.key for one in await store.subscriptions("orders").after(0)] == ["order kept"]


async def test_a_chat_of_another_bot_stays(gate: Tidegate) -> None:
    gate.add_bot("43:any")
    for bot in (42, 43):
        await gate.send(bot=bot, chat_id=CHAT, text="x")

    erased = await gate.core.store.erase(CHAT, BOT)

    assert erased.messages == 1
    assert [record.message.bot for record in await gate.outbox.records(states=frozenset(State))] == [43]


async def test_backups_in_the_folder_are_named_and_left_alone(gate: Tidegate, tmp_path: Path) -> None:
    await gate.send(bot=BOT, chat_id=CHAT, text=mark(1))
    store, backup = tmp_path / "tidegate.db", tmp_path / "monday.db"
    await asyncio.to_thread(back_up, store, backup)
    await asyncio.to_thread((tmp_path / "notes.txt").write_text, "no store")

    erased = await gate.core.store.erase(CHAT)

    assert erased.copies == (str(backup),)
    assert await found_in(tmp_path) == {mark(1).encode()}


@asynccontextmanager
async def reading(path: Path) -> AsyncIterator[None]:
    """Another process, which holds on to the state of now."""
    reader = await asyncio.to_thread(sqlite3.connect, path, isolation_level=None, check_same_thread=False)
    await asyncio.to_thread(reader.execute, "BEGIN")
    await asyncio.to_thread(lambda: reader.execute("SELECT count(*) FROM messages").fetchone())
    yield
    await asyncio.to_thread(reader.close)


async def test_bytes_that_cannot_be_overwritten_are_told(gate: Tidegate, tmp_path: Path) -> None:
    """A process that reads an old state of the file keeps the log of writes as it is."""
    await gate.send(bot=BOT, chat_id=CHAT, text=mark(1))
    store = gate.core.store
    assert isinstance(store, SqliteStore)
    await store.outbox.file.read(lambda tx: tx.execute("PRAGMA busy_timeout = 1"))
    async with reading(tmp_path / "tidegate.db"):
        with pytest.raises(StoreError, match=r"their bytes can still be found in .*tidegate.db-wal"):
            await gate.core.store.erase(CHAT)

    await gate.core.store.erase(CHAT)
    assert await found_in(tmp_path) == set()


def test_the_data_of_a_subscription_may_name_the_user_alone() -> None:
    assert is_for_chat({"user_id": CHAT}, CHAT, BOT)
    assert is_for_chat(msgspec.json.decode(b'{"chat_id": 1001, "user_id": 5}'), CHAT, None)
    assert not is_for_chat({"chat_id": 5, "user_id": CHAT}, CHAT, None)
    assert not is_for_chat({"chat_id": CHAT, "bot_id": 43}, CHAT, BOT)
    assert not is_for_chat({}, CHAT, None)
