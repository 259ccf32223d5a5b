"""Conversations of aiogram in a file: what was set is there, whatever happens to the process."""

import asyncio
import datetime as dt
import enum
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast
from uuid import UUID

import pytest
from aiogram import Bot, Dispatcher
from aiogram.exceptions import DataNotDictLikeError
from aiogram.fsm.context import FSMContext
from aiogram.fsm.state import State, StatesGroup
from aiogram.fsm.storage.base import BaseEventIsolation, StorageKey
from aiogram.fsm.storage.memory import (
    DisabledEventIsolation,
    MemoryStorage,
    MemoryStorageRecord,
    SimpleEventIsolation,
)
from aiogram.fsm.strategy import FSMStrategy
from aiogram.types import Chat, Message, Update, User

from restarts import in_thread
from tidegate import Tidegate
from tidegate.adapters.aiogram.fsm_storage import (
    LocalEventIsolation,
    MemoryFallbackStorage,
    SqliteStorage,
    inbox_orders,
)
from tidegate.errors import BadInputError, ClosedError
from tidegate.inbound import updates
from tidegate.outbox.effect_keys import effect_keys_for
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.sqlite import conversations as sqlite_conversations
from unit.adapters.aiogram.stage import Stage

ALICE, BOB = StorageKey(42, 1001, 1001), StorageKey(42, 1002, 1002)


class Order(StatesGroup):
    asked = State()


class Size(str, enum.Enum):  # noqa: UP042  (as it was before Python 3.11: its str() is another)
    BIG = "big"


@dataclass
class Cart:
    items: list[UUID]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conversations.db"


@pytest.fixture
async def storage(path: Path, clock: VirtualClock) -> AsyncIterator[SqliteStorage]:
    storage = SqliteStorage.at(path, clock)
    yield storage
    await storage.close()


def rows_in(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        [count] = connection.execute("SELECT count(*) FROM conversations").fetchone()
        return int(count)


async def test_keys_that_differ_in_anything_are_different_conversations(storage: SqliteStorage) -> None:
    keys = [
        StorageKey(1, 2, 3),
        StorageKey(9, 2, 3),
        StorageKey(1, 9, 3),
        StorageKey(1, 2, 9),
        StorageKey(1, 2, 3, 0),
        StorageKey(1, 2, 3, 4),
        StorageKey(1, 2, 3, None, ""),
        StorageKey(1, 2, 3, None, "0"),
        StorageKey(1, 2, 3, 4, "b"),
        StorageKey(1, 2, 3, destiny=""),
        StorageKey(1, 2, 3, destiny="shop"),
    ]
    for number, key in enumerate(keys):
        await storage.set_state(key, f"state {number}")
        await storage.set_data(key, {"number": number})

    assert [await storage.get_state(key) for key in keys] == [f"state {n}" for n in range(len(keys))]
    assert [await storage.get_value(key, "number") for key in keys] == list(range(len(keys)))
    assert [one.key for one in await storage.each()] == keys


async def test_a_conversation_with_neither_state_nor_data_takes_no_room(
    storage: SqliteStorage, path: Path
) -> None:
    for user in range(5):
        context = FSMContext(storage, StorageKey(42, user, user))
        await context.set_state(Order.asked)
        await context.update_data(size=user)
        assert await in_thread(rows_in, path) == 1
        await context.clear()
        await context.clear()
    await storage.set_data(ALICE, {"left": 1})
    await storage.set_data(ALICE, {})

    assert await in_thread(rows_in, path) == 0


async def test_state_and_data_come_and_go_apart(storage: SqliteStorage) -> None:
    await storage.set_state(ALICE, Order.asked)
    await storage.set_data(ALICE, {"size": 5})
    await storage.set_state(ALICE, None)
    assert (await storage.get_state(ALICE), await storage.get_data(ALICE)) == (None, {"size": 5})

    await storage.set_state(ALICE, Size.BIG)
    assert await storage.get_state(ALICE) == "big"
    await storage.set_state(ALICE, "")
    await storage.set_data(ALICE, {})
    assert (await storage.get_state(ALICE), await storage.get_data(ALICE)) == ("", {})


async def test_updates_at_once_lose_nothing_of_each_other(storage: SqliteStorage) -> None:
    await asyncio.gather(*(storage.update_data(ALICE, {f"field {n}": n}) for n in range(100)))

    assert await storage.get_data(ALICE) == {f"field {n}": n for n in range(100)}


async def test_whoever_holds_the_data_does_not_change_what_is_kept(storage: SqliteStorage) -> None:
    cart = {"items": [1]}
    setting = asyncio.ensure_future(storage.set_data(ALICE, cart))
    await asyncio.sleep(0)  # noqa: TID251  (no time passes: it begins)
    cart["items"].append(2)
    await setting
    merged = await storage.update_data(ALICE, MappingProxyType({"paid": False}))
    merged["items"].append(3)
    (await storage.get_data(ALICE))["items"].append(4)

    assert await storage.get_data(ALICE) == {"items": [1], "paid": False}


@pytest.mark.parametrize(
    "given",
    [
        {"pair": (1, (2,))},
        {"size": Size.BIG},
        {"text": "half a pair: \ud83d, \x00, привет"},
        {"": {"n": 2**70, "f": 0.1, "none": None, "yes": True}},
        {"when": dt.datetime(2026, 1, 5, tzinfo=dt.UTC), "price": Decimal("9.90"), "tags": {1, 2}},
        {"cart": Cart([UUID(int=5)]), "answers": {0: "a"}, "photo": b"\x89PNG"},
        {5: 1},
        {"__tidegate__": "datetime", "value": "2026"},
    ],
)
async def test_data_of_many_types_come_back_from_the_file_as_they_were(
    storage: SqliteStorage, given: dict[str, Any]
) -> None:
    await storage.set_data(ALICE, given)
    assert await storage.get_data(ALICE) == given
    assert type((await storage.get_data(ALICE)).get("size", Size.BIG)) is Size
    assert await storage.update_data(ALICE, {"more": (1,)}) == {**given, "more": (1,)}
    assert [one.data for one in await storage.each()] == [{**given, "more": (1,)}]


class Anything:
    pass


CIRCLE: dict[str, Any] = {}
CIRCLE["again"] = CIRCLE


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"cart": {"items": [1, Anything()]}}, r"'cart.items\[1\]' is of the type Anything"),
        (CIRCLE, "nested more than 100 deep"),
        ({"huge": 10**5000}, "digits"),
    ],
)
async def test_what_cannot_be_stored_is_refused_by_name(
    storage: SqliteStorage, data: dict[str, Any], text: str
) -> None:
    await storage.set_data(ALICE, {"before": 1})

    with pytest.raises(BadInputError, match=f"{text}.*dicts and dataclasses of these"):
        await storage.set_data(ALICE, data)
    with pytest.raises(BadInputError, match=text):
        await storage.update_data(ALICE, data)

    assert await storage.get_data(ALICE) == {"before": 1}


@pytest.mark.parametrize("data", [(), [1], "text", None])
async def test_data_that_is_no_mapping_is_refused_as_aiogram_does(
    storage: SqliteStorage, data: object
) -> None:
    with pytest.raises(DataNotDictLikeError):
        await storage.set_data(ALICE, cast("dict[str, Any]", data))
    with pytest.raises(DataNotDictLikeError):
        await storage.update_data(ALICE, cast("dict[str, Any]", data))


@pytest.mark.parametrize(
    ("key", "state", "text"),
    [
        (StorageKey(42, cast("int", "@shop"), 1), "s", "ids of a conversation are whole numbers"),
        (StorageKey(42, 1, 2**63), "s", "ids of a conversation are whole numbers"),
        (StorageKey(42, 1, 1, destiny="\ud83d"), "s", "the destiny of a conversation is a text"),
        (
            StorageKey(42, 1, 1, None, cast("str", 5)),
            "s",
            "the business connection of a conversation is a text",
        ),
        (ALICE, cast("str", 5), "the state of a conversation is a text, not 5"),
    ],
)
async def test_a_key_or_state_that_is_none_is_refused(
    storage: SqliteStorage, key: StorageKey, state: str, text: str
) -> None:
    with pytest.raises(BadInputError, match=text):
        await storage.set_state(key, state)


async def test_conversations_are_found_page_by_page(storage: SqliteStorage, clock: VirtualClock) -> None:
    for user in range(25):
        await storage.set_state(StorageKey(42, user, user), "paying" if user % 2 else "asked")
        await storage.set_state(StorageKey(42, user, user, destiny="shop"), Order.asked)

    found, after = [], 0
    while some := await storage.each("default", "paying", after=after, limit=5):
        found += some
        after = some[-1].number
        await storage.set_state(some[0].key, None)  # what goes meanwhile puts nobody off the list

    assert [one.key.user_id for one in found] == list(range(1, 25, 2))
    assert {(one.state, one.changed_at) for one in found} == {("paying", clock.now())}
    assert len(await storage.each(state=Order.asked)) == 25
    assert len(await storage.each("shop", limit=7)) == 7
    assert await storage.each("nowhere") == []
    assert await storage.each(limit=0) == []


async def test_old_conversations_expire_and_nobody_elses(
    storage: SqliteStorage, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_conversations, "EXPIRED_AT_ONCE", 10)  # in a step
    old = 21
    await asyncio.gather(*(storage.set_state(StorageKey(42, n, n), "asked") for n in range(old)))
    await storage.set_state(StorageKey(42, 1, 1, destiny="shop"), "asked")
    await clock.sleep(60)
    await storage.update_data(StorageKey(42, 5, 5), {"still": "here"})

    assert await storage.expire(clock.now()) == old - 1
    assert await storage.expire(clock.now()) == 0

    assert [(one.key.user_id, one.key.destiny) for one in await storage.each()] == [
        (5, "default"),
        (1, "shop"),
    ]


async def test_a_conversation_is_there_when_the_file_is_opened_again(
    storage: SqliteStorage, path: Path, clock: VirtualClock
) -> None:
    await storage.set_state(ALICE, Order.asked)
    await storage.close()
    await storage.close()

    again = SqliteStorage.at(str(path), clock)
    assert await again.get_state(ALICE) == "Order:asked"
    await again.close()
    assert await storage.get_state(ALICE) == "Order:asked"  # and it opens again by itself


async def test_a_conversation_outlives_a_process_that_was_killed(
    storage: SqliteStorage, path: Path, tmp_path: Path, clock: VirtualClock
) -> None:
    await storage.set_state(ALICE, "asked")
    await storage.update_data(ALICE, {"size": 5})
    for ending in ("", "-wal"):  # as it would have left them: nobody has closed it
        await in_thread(shutil.copy, f"{path}{ending}", f"{tmp_path / 'left.db'}{ending}")

    left = SqliteStorage.at(tmp_path / "left.db", clock)

    assert (await left.get_state(ALICE), await left.get_data(ALICE)) == ("asked", {"size": 5})
    await left.close()


async def test_those_who_come_first_open_the_file_once(path: Path, clock: VirtualClock) -> None:
    storage = SqliteStorage.at(path, clock)

    await asyncio.gather(*(storage.set_state(StorageKey(42, n, n), "s") for n in range(20)))

    assert len(await storage.each()) == 20
    await storage.close()


async def test_a_place_that_cannot_be_a_file_is_named(tmp_path: Path, clock: VirtualClock) -> None:
    with pytest.raises(BadInputError, match="is a folder"):
        await SqliteStorage.at(tmp_path, clock).get_state(ALICE)


@pytest.fixture
def bot() -> Bot:
    return Bot("42:token")


@pytest.fixture
def gate(tmp_path: Path) -> Tidegate:
    return Tidegate(tmp_path / "gate.db")


def test_conversations_that_nobody_placed_go_to_the_gates_file(gate: Tidegate, bot: Bot) -> None:
    first, second, declines = Dispatcher(), Dispatcher(), Dispatcher()

    gate.attach(first, bot, conversations="store")
    gate.attach(second, bot, conversations="store")
    gate.attach(declines, bot, conversations="library")

    assert type(first.storage) is type(second.storage) is MemoryFallbackStorage
    assert isinstance(first.fsm.events_isolation, LocalEventIsolation)
    assert type(declines.storage) is MemoryStorage
    assert type(declines.fsm.events_isolation) is DisabledEventIsolation


def test_what_was_chosen_is_left_alone(gate: Tidegate, bot: Bot, path: Path) -> None:
    storage, isolation = SqliteStorage.at(path), cast("BaseEventIsolation", SimpleEventIsolation())
    placed, isolated, without = (
        Dispatcher(storage=storage),
        Dispatcher(events_isolation=isolation),
        Dispatcher(disable_fsm=True),
    )

    for dispatcher in (placed, isolated, without):
        gate.attach(dispatcher, bot, conversations="store")

    assert placed.storage is storage
    assert type(placed.fsm.events_isolation) is DisabledEventIsolation
    assert type(isolated.storage) is MemoryFallbackStorage
    assert isolated.fsm.events_isolation is isolation
    assert type(without.storage) is MemoryStorage


def test_conversations_that_have_begun_in_memory_are_not_thrown_away(gate: Tidegate, bot: Bot) -> None:
    storage = MemoryStorage()
    storage.storage[ALICE] = MemoryStorageRecord(state="asked")

    with pytest.raises(BadInputError, match="leave out conversations"):
        gate.attach(Dispatcher(storage=storage), bot, conversations="store")

    assert not gate.bots()


def test_a_gate_without_a_file_has_no_storage(bot: Bot) -> None:
    gate, dispatcher = Tidegate("memory://"), Dispatcher()

    gate.attach(dispatcher, bot, conversations="store")

    assert type(dispatcher.storage) is MemoryStorage
    with pytest.raises(BadInputError, match="no file to keep conversations in"):
        gate.fsm_storage()


async def write(stage: Stage, text: str) -> object:
    """Past the inbox, as from a webhook server of aiogram's."""
    message = Message(
        message_id=1,
        date=dt.datetime.now(dt.UTC),  # noqa: TID251  (aiogram wants a date, nobody reads it)
        chat=Chat(id=1001, type="private"),
        from_user=User(id=1001, is_bot=False, first_name="Alice"),
        text=text,
    )
    return await stage.dispatcher.feed_update(stage.bot, Update(update_id=1, message=message))


def shop(clock: VirtualClock, path: Path) -> tuple[Stage, list[str]]:
    """Asks for a size, and hears it."""
    stage, heard = Stage(clock, store=str(path)), list[str]()

    @stage.dispatcher.message(Order.asked)
    async def hear(message: Message, state: FSMContext) -> None:
        heard.append(f"{message.text} for {await state.get_value('name')}")
        await clock.sleep(1)
        await state.clear()

    @stage.dispatcher.message()
    async def ask(message: Message, state: FSMContext) -> None:
        await state.update_data(name=message.text)
        await state.set_state(Order.asked)

    stage.gate.attach(stage.dispatcher, stage.bot, conversations="store")
    return stage, heard


async def test_a_bot_that_restarts_goes_on_with_its_conversations(clock: VirtualClock, path: Path) -> None:
    heard = []
    for text in ("Alice", "large", "Bob", "small"):
        stage, told = shop(clock, path)
        await stage.dispatcher.emit_startup(bot=stage.bot)
        await write(stage, text)
        await stage.dispatcher.emit_shutdown(bot=stage.bot)
        heard += told

    assert heard == ["large for Alice", "small for Bob"]
    assert await in_thread(rows_in, path) == 0


async def test_a_dispatcher_that_stops_and_starts_again_keeps_its_storage(
    clock: VirtualClock, path: Path
) -> None:
    stage, heard = shop(clock, path)
    await write(stage, "Alice")  # before it starts: the gate opens for that
    for text in ("large", "Bob", "small"):
        await stage.dispatcher.emit_startup(bot=stage.bot)
        await write(stage, text)
        await stage.dispatcher.emit_shutdown(bot=stage.bot)

    assert heard == ["large for Alice", "small for Bob"]
    with pytest.raises(ClosedError, match="too late"):
        await stage.dispatcher.storage.get_state(ALICE)


async def test_a_double_click_past_the_inbox_is_handled_one_at_a_time(
    clock: VirtualClock, path: Path
) -> None:
    stage, heard = shop(clock, path)
    await stage.dispatcher.emit_startup(bot=stage.bot)
    await write(stage, "Alice")

    await asyncio.gather(write(stage, "large"), write(stage, "Carol"))

    assert heard == ["large for Alice"]
    assert await stage.dispatcher.storage.get_data(ALICE) == {"name": "Carol"}
    await stage.dispatcher.emit_shutdown(bot=stage.bot)


async def test_a_storage_of_an_open_gate_needs_no_bot(gate: Tidegate) -> None:
    storage = gate.fsm_storage()
    for _ in range(2):
        async with gate:
            await storage.set_state(ALICE, "asked")
            await storage.close()  # aiogram does, when its dispatcher stops; the file is the gate's
            assert await storage.get_state(ALICE) == "asked"

    with pytest.raises(ClosedError, match="is not open"):
        await storage.get_state(ALICE)


async def test_updates_of_one_conversation_are_handled_in_order_and_nothing_is_left_of_them(
    clock: VirtualClock,
) -> None:
    told: list[str] = []
    isolation = LocalEventIsolation(nullcontext, is_ordered=bool)

    async def handle(key: StorageKey, number: int) -> None:
        async with isolation.lock(key):
            told.append(f"{number} begins")
            await clock.sleep(5 - number)
            told.append(f"{number} ends")

    async with isolation.lock(BOB):  # in nobody's way
        await asyncio.gather(*(handle(ALICE, number) for number in range(5)))
        assert list(isolation.locks) == [BOB]

    assert told == [f"{number} {what}" for number in range(5) for what in ("begins", "ends")]
    assert not isolation.locks
    await isolation.close()


async def test_what_comes_through_the_inbox_is_in_order_already(clock: VirtualClock) -> None:
    dispatcher = Dispatcher()
    isolation = LocalEventIsolation(nullcontext, is_ordered=inbox_orders(dispatcher, "user"))
    with effect_keys_for("an update"):
        async with clock.timeout(1), isolation.lock(ALICE), isolation.lock(ALICE):
            assert not isolation.locks


@pytest.mark.parametrize(
    ("strategy", "order", "ordered"),
    [
        (FSMStrategy.USER_IN_CHAT, "user", True),
        (FSMStrategy.USER_IN_CHAT, "none", False),
        (FSMStrategy.CHAT, "user", False),
        (FSMStrategy.CHAT, "chat", True),
        (FSMStrategy.GLOBAL_USER, "chat", False),
    ],
)
def test_conversations_wider_than_the_order_of_the_inbox_are_isolated_all_the_same(
    strategy: FSMStrategy, order: updates.Order, *, ordered: bool
) -> None:
    is_ordered = inbox_orders(Dispatcher(fsm_strategy=strategy), order)
    assert not is_ordered()
    with effect_keys_for("an update"):
        assert is_ordered() is ordered


async def test_a_bot_that_keeps_objects_in_memory_works_as_before(
    storage: SqliteStorage, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    thing, other = Anything(), Anything()
    kept = MemoryFallbackStorage(storage.opened)
    await kept.set_state(ALICE, Order.asked)
    await kept.set_data(ALICE, {"step": 1})

    assert await kept.update_data(ALICE, {"thing": thing}) == {"step": 1, "thing": thing}
    assert await kept.update_data(ALICE, {"step": 2}) == {"step": 2, "thing": thing}
    assert (await kept.get_state(ALICE), await kept.get_data(ALICE)) == (
        "Order:asked",
        {"step": 2, "thing": thing},
    )
    await kept.set_state(ALICE, "paying")
    assert await kept.get_state(ALICE) == "paying"
    assert await in_thread(rows_in, path) == 0, "state and data are in memory"
    await kept.set_data(BOB, {"thing": other})
    [record] = caplog.records
    assert "'thing' is of the type Anything" in record.getMessage()
    assert "stay in memory, state and data: a restart loses them" in record.getMessage()

    await kept.set_data(ALICE, {"step": 3})
    assert (await storage.get_state(ALICE), await storage.get_data(ALICE)) == ("paying", {"step": 3})
    await kept.set_state(BOB, "asked")
    await FSMContext(kept, BOB).clear()
    assert not kept._in_memory  # noqa: SLF001  (it shrinks)
    assert not kept._locks  # noqa: SLF001


async def test_after_a_restart_no_user_is_in_a_state_without_its_data(storage: SqliteStorage) -> None:
    """Whatever was set, in whichever order: state and data are there together, or neither."""
    kept = MemoryFallbackStorage(storage.opened)
    fits: dict[str, Any] = {"at": dt.datetime.fromtimestamp(0, dt.UTC)}
    does_not: dict[str, Any] = {"thing": Anything()}
    for number, (first, second) in enumerate([(fits, does_not), (does_not, fits), (does_not, does_not)]):
        for order in ("state first", "data first"):
            context = FSMContext(kept, StorageKey(42, number, len(order)))
            if order == "state first":
                await context.set_state(Order.asked)
            await context.set_data(first)
            if order == "data first":
                await context.set_state(Order.asked)
            await context.update_data(second)
            if second is fits:
                await context.set_data(fits)

    restarted = MemoryFallbackStorage(storage.opened)
    found = await restarted.each()

    assert [(one.state, one.data) for one in found] == [("Order:asked", fits)] * 2
    for one in found:
        assert await restarted.get_state(one.key) == "Order:asked"


async def test_writes_at_once_lose_nothing_while_a_conversation_moves_to_memory(
    storage: SqliteStorage, path: Path
) -> None:
    kept, things = MemoryFallbackStorage(storage.opened), [Anything() for _ in range(5)]
    await kept.set_data(ALICE, {"step": 1})

    await asyncio.gather(
        *(kept.update_data(ALICE, {f"thing {n}": thing}) for n, thing in enumerate(things)),
        kept.set_state(ALICE, Order.asked),
        *(kept.update_data(ALICE, {f"number {n}": n}) for n in range(5)),
    )

    assert await kept.get_state(ALICE) == "Order:asked"
    assert await kept.get_data(ALICE) == (
        {"step": 1}
        | {f"thing {n}": thing for n, thing in enumerate(things)}
        | {f"number {n}": n for n in range(5)}
    )
    assert await in_thread(rows_in, path) == 0


def damage(path: Path, chat: int, data: bytes) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE conversations SET data = ? WHERE chat = ?", (data, chat))
        connection.commit()


GONE_CLASS = b'{"cart":{"__tidegate__":"dataclass","class":"gone:Cart","value":{}}}'


def kept_aside(path: Path) -> list[tuple[int, bytes]]:
    with closing(sqlite3.connect(path)) as connection:
        find = "SELECT chat, data FROM conversations WHERE destiny = 'unreadable:default'"
        return connection.execute(find).fetchall()


@pytest.mark.parametrize("reads_state_first", [True, False])
@pytest.mark.parametrize("damaged", [b'{"step": ', b"\xff\xfe", b"[1]", b"7", GONE_CLASS])
async def test_a_conversation_that_cannot_be_read_is_empty_for_its_user_and_its_bytes_are_kept(
    storage: SqliteStorage,
    path: Path,
    caplog: pytest.LogCaptureFixture,
    damaged: bytes,
    *,
    reads_state_first: bool,
) -> None:
    for key in (ALICE, BOB):
        await storage.set_state(key, "Order:asked")
        await storage.set_data(key, {"step": 1})
    await in_thread(damage, path, ALICE.chat_id, damaged)

    assert [one.key for one in await storage.each()] == [BOB]
    if reads_state_first:  # as aiogram does for every update
        assert await storage.get_state(ALICE) is None, "a state without its data"
    assert [await storage.get_data(ALICE) for _ in range(2)] == [{}, {}]

    assert await storage.get_state(ALICE) is None
    assert len([one for one in caplog.records if "user 1001 in chat 1001 cannot be read" in one.message]) == 1
    assert await in_thread(kept_aside, path) == [(ALICE.chat_id, damaged)]
    await storage.set_data(ALICE, {"step": 2})
    assert await in_thread(kept_aside, path) == [(ALICE.chat_id, damaged)]
    assert await storage.get_data(BOB) == {"step": 1}


async def test_what_is_added_to_a_conversation_that_cannot_be_read_begins_a_new_one(
    storage: SqliteStorage, path: Path
) -> None:
    await storage.set_data(ALICE, {"step": 1})
    await in_thread(damage, path, ALICE.chat_id, b"{")

    assert await storage.update_data(ALICE, {"more": 2}) == {"more": 2}

    assert await storage.get_data(ALICE) == {"more": 2}
    assert await in_thread(kept_aside, path) == [(ALICE.chat_id, b"{")]
