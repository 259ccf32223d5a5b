"""Conversations of an aiogram bot whose gate has its store in Redis: they belong to all its processes."""

import asyncio
import datetime as dt
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiogram import Bot, Dispatcher
from aiogram.fsm.context import FSMContext
from aiogram.fsm.storage.base import StorageKey
from aiogram.fsm.storage.redis import RedisStorage
from aiogram.types import Chat, Message, Update, User
from redis.asyncio import Redis

import fork_server
from system.bots import aiogram_shop
from system.bots.aiogram_shop import bot_of
from system.bots.scenes import GENEROUS, MANY, TOKEN, Visit
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.pacing.rules import Rules
from tidegate.settings import Settings
from tidegate.sim.telegram.http import TelegramServer

TESTS = Path(__file__).parents[1]
ROOMY = Rules(bot=MANY, private=MANY, group=MANY, actions=(MANY,))
ANOTHER_PROCESS = """
import sys
from types import SimpleNamespace
from system.bots.aiogram_shop import bot_of, dispatcher
from tidegate import Tidegate

telegram, store = sys.argv[1:]
shop, bot = dispatcher(), bot_of(SimpleNamespace(url=telegram))
Tidegate(store).attach(shop, bot, updates="durable", conversations="store")
shop.run_polling(bot, polling_timeout=5)
"""


@pytest.fixture
def store(redis_url: str) -> str:
    """A database of our own in the Redis that all tests share."""
    return redis_url.removesuffix("/0") + "/9"


@pytest.fixture
def gates(store: str, tmp_path: Path) -> list[Tidegate]:
    """As in two processes."""
    settings = Settings(tidegate_spool=str(tmp_path / "spool"))
    return [Tidegate(store, rules=ROOMY, settings=settings) for _ in range(2)]


@pytest.fixture
async def redis(store: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(store, decode_responses=True) as redis:
        await redis.flushdb()
        yield redis


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer(limits=GENEROUS) as server:
        yield server


async def begin_order(visit: Visit) -> None:
    assert (await visit.ask("/order"))["text"] == "Where to?"
    assert (await visit.ask("12 Elm Street"))["text"] == "For whom?"


async def test_a_conversation_begun_with_one_gate_ends_with_another(
    telegram: TelegramServer, gates: list[Tidegate], redis: Redis
) -> None:
    """They share nothing but Redis."""
    visit = Visit(telegram.telegram)
    async with aiogram_shop.polling(telegram, gates[0], updates="durable", conversations="store"):
        await begin_order(visit)
    begun = set(await redis.keys("tidegate-fsm:*"))

    async with aiogram_shop.polling(telegram, gates[1], updates="durable", conversations="store"):
        answer = await visit.ask("Ada")

    assert answer["text"] == "For Ada, to 12 Elm Street."
    who = f"tidegate-fsm:42:{visit.customer.id}:{visit.customer.id}:default"
    assert begun == {f"{who}:state", f"{who}:data"}
    assert not await redis.keys("tidegate-fsm:*")
    assert await connections(redis) == 1


@pytest.mark.proof  # aiogram takes seconds to start
async def test_a_conversation_begun_in_one_process_ends_in_another(
    telegram: TelegramServer, gates: list[Tidegate], store: str, redis: Redis, tmp_path: Path
) -> None:
    visit = Visit(telegram.telegram)
    async with aiogram_shop.polling(telegram, gates[0], updates="durable", conversations="store"):
        await begin_order(visit)

    process = await fork_server.create_process(
        *(sys.executable, "-c", ANOTHER_PROCESS, telegram.url, store),
        cwd=tmp_path,
        env={"PYTHONPATH": str(TESTS)},
    )
    try:
        visit.customer.says("Ada")
        answer = await visit.customer.hears(timeout=60)
    finally:
        process.terminate()
        await process.wait()

    assert answer["text"] == "For Ada, to 12 Elm Street."
    assert process.returncode == 0
    assert not await redis.keys("tidegate-fsm:*")


async def connections(redis: Redis) -> int:
    """To our database, this one included. Redis notices a moment later that one was closed."""
    for _ in range(100):
        if await _count(redis) == 1:
            break
        await Clock().sleep(0.01)
    return await _count(redis)


async def _count(redis: Redis) -> int:
    return sum(client["db"] == "9" for client in await redis.client_list())


def said(text: str, user: int = 1001) -> Update:
    alice = User(id=user, is_bot=False, first_name="Alice")
    chat, date = Chat(id=user, type="private"), dt.datetime.fromtimestamp(0, dt.UTC)
    return Update(
        update_id=1, message=Message(message_id=1, date=date, chat=chat, from_user=alice, text=text)
    )


async def test_updates_of_one_conversation_are_handled_one_at_a_time_whoever_gets_them(
    gates: list[Tidegate], redis: Redis
) -> None:
    told: list[str] = []

    async def handle(message: Message) -> None:
        told.append(f"{message.text} begins")
        await redis.ping()  # others could go on meanwhile
        told.append(f"{message.text} ends")

    shops = {"a": (Dispatcher(), Bot(TOKEN)), "b": (Dispatcher(), Bot(TOKEN))}
    for (shop, bot), gate in zip(shops.values(), gates, strict=True):
        shop.message.register(handle)
        gate.attach(shop, bot, updates="durable", conversations="store")
    updates = [(name, number) for number in range(3) for name in shops]
    await asyncio.gather(
        *(shops[name][0].feed_update(shops[name][1], said(f"{name}{number}")) for name, number in updates)
    )
    for shop, _ in shops.values():
        await shop.fsm.close()

    begun = [line.removesuffix(" begins") for line in told[::2]]
    assert told == [f"{text} {what}" for text in begun for what in ("begins", "ends")]
    assert [text for text in begun if "a" in text] == ["a0", "a1", "a2"]
    assert [text for text in begun if "b" in text] == ["b0", "b1", "b2"]


async def test_an_update_that_waits_for_its_conversation_is_handled_before_the_gate_closes(
    telegram: TelegramServer, gates: list[Tidegate], redis: Redis
) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def handle(message: Message, state: FSMContext) -> None:
        entered.set()
        await go_on.wait()
        count = (await state.get_data()).get("count", 0) + 1
        await state.update_data(count=count)
        await message.answer(f"{message.text}: {count}")

    shop, bot, visit = Dispatcher(), bot_of(telegram), Visit(telegram.telegram)
    shop.message.register(handle)
    gates[0].attach(shop, bot, updates="durable", conversations="store")
    async with bot, asyncio.TaskGroup() as tasks:
        await shop.emit_startup(bot=bot, **shop.workflow_data)
        for text in ("one", "two"):
            tasks.create_task(shop.feed_update(bot, said(text, visit.customer.id)))
        await entered.wait()
        stopping = tasks.create_task(shop.emit_shutdown(bot=bot, **shop.workflow_data))
        await redis.ping()
        assert not stopping.done()
        go_on.set()

    assert [message["text"] for message in visit.customer.heard] == ["one: 1", "two: 2"]
    assert await connections(redis) == 1


GONE_CLASS = b'{"cart":{"__tidegate__":"dataclass","class":"gone:Cart","value":{}}}'


@pytest.mark.parametrize("damaged", [b"{", b"\xff\xfe", b"[1]", GONE_CLASS])
async def test_a_conversation_that_cannot_be_read_is_empty_for_its_user_and_its_bytes_are_kept(
    gates: list[Tidegate], store: str, redis: Redis, caplog: pytest.LogCaptureFixture, damaged: bytes
) -> None:
    dispatcher = Dispatcher()
    gates[0].attach(dispatcher, Bot(TOKEN), conversations="store")
    storage, alice, bob = dispatcher.storage, StorageKey(42, 1, 1), StorageKey(42, 2, 2)
    assert isinstance(storage, RedisStorage)
    for key in (alice, bob):
        await storage.set_data(key, {"step": 1})
    data, state = (storage.key_builder.build(alice, part) for part in ("data", "state"))
    await redis.set(data, damaged)
    await redis.set(state, "Order:asked")

    assert await storage.get_state(alice) is None, "a state without its data"
    assert [await storage.get_data(alice) for _ in range(2)] == [{}, {}]
    assert await storage.get_state(alice) is None
    assert await storage.get_data(bob) == {"step": 1}

    assert sum("user 1 in chat 1 cannot be read" in one.getMessage() for one in caplog.records) == 1
    async with Redis.from_url(store) as raw:
        assert await raw.get(f"{data}:unreadable") == damaged
        assert await raw.get(f"{state}:unreadable") == b"Order:asked"
        await raw.set(state, b"\xff")
    assert await storage.get_state(alice) is None
    await storage.close()


@pytest.mark.usefixtures("redis")
async def test_data_of_many_types_come_back_from_redis_as_they_were(gates: list[Tidegate]) -> None:
    """Plain data are plain JSON: aiogram's own storage reads them, and its data are read."""
    dispatcher = Dispatcher()
    gates[0].attach(dispatcher, Bot(TOKEN), conversations="store")
    storage, alice = dispatcher.storage, StorageKey(42, 1, 1)
    assert isinstance(storage, RedisStorage)
    aiograms = RedisStorage(storage.redis, storage.key_builder)
    plain = {"name": "Ä \ud800", "n": [1, 2.5, None]}
    data = {**plain, "at": dt.datetime.fromtimestamp(0, dt.UTC), "answers": {0: ("a", {1})}}

    await storage.set_state(alice, "Order:asked")
    await storage.set_data(alice, data)
    assert (await storage.get_state(alice), await storage.get_data(alice)) == ("Order:asked", data)
    assert await storage.update_data(alice, {"more": b"x"}) == {**data, "more": b"x"}

    with pytest.raises(BadInputError, match="'thing' is of the type object"):
        await storage.update_data(alice, {"thing": object()})
    assert await storage.get_data(alice) == {**data, "more": b"x"}, "as before"

    await storage.set_data(alice, plain)
    assert await aiograms.get_data(alice) == plain
    await aiograms.set_data(alice, {"n": 1})
    assert await storage.get_data(alice) == {"n": 1}
    await storage.close()
