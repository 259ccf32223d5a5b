"""Whose conversations move to the gate's Redis, and how one of them is held. Nothing here connects."""

import asyncio
import logging
from contextlib import nullcontext
from typing import cast

import pytest
from aiogram import Bot, Dispatcher
from aiogram.fsm.storage.base import BaseEventIsolation, DefaultKeyBuilder, StorageKey
from aiogram.fsm.storage.memory import (
    DisabledEventIsolation,
    MemoryStorage,
    MemoryStorageRecord,
    SimpleEventIsolation,
)
from aiogram.fsm.storage.redis import RedisStorage
from redis.asyncio import Redis
from redis.exceptions import LockNotOwnedError

from tidegate import Tidegate
from tidegate.adapters.aiogram.fsm_redis import RedisLockIsolation
from tidegate.errors import BadInputError
from tidegate.sim.virtual_time import VirtualClock

ALICE = StorageKey(bot_id=42, chat_id=1001, user_id=1001)
ADDRESS = "redis://:hunter2@127.0.0.1:1/0"


@pytest.fixture
def gate() -> Tidegate:
    return Tidegate(ADDRESS)


@pytest.fixture
def bot() -> Bot:
    return Bot("42:token")


def test_conversations_that_nobody_placed_go_to_the_gates_redis(gate: Tidegate, bot: Bot) -> None:
    dispatcher = Dispatcher()

    gate.attach(dispatcher, bot, conversations="store")

    storage = dispatcher.storage
    assert isinstance(storage, RedisStorage)
    assert storage.key_builder.build(ALICE, "state") == "tidegate-fsm:42:1001:1001:default:state"
    assert isinstance(dispatcher.fsm.events_isolation, RedisLockIsolation)


def test_with_a_store_in_memory_nothing_changes(bot: Bot) -> None:
    dispatcher = Dispatcher()

    Tidegate("memory://").attach(dispatcher, bot, conversations="store")

    assert type(dispatcher.storage) is MemoryStorage
    assert type(dispatcher.fsm.events_isolation) is DisabledEventIsolation


def test_who_declines_keeps_conversations_in_memory(gate: Tidegate, bot: Bot) -> None:
    dispatcher = Dispatcher()

    gate.attach(dispatcher, bot, conversations="library")

    assert type(dispatcher.storage) is MemoryStorage
    assert type(dispatcher.fsm.events_isolation) is DisabledEventIsolation


class OwnStorage(MemoryStorage):
    pass


@pytest.mark.parametrize("storage", [OwnStorage(), RedisStorage(Redis())])
def test_a_storage_that_was_chosen_is_left_alone(
    storage: MemoryStorage | RedisStorage, gate: Tidegate, bot: Bot
) -> None:
    dispatcher = Dispatcher(storage=storage)

    gate.attach(dispatcher, bot, conversations="store")

    assert dispatcher.storage is storage
    assert type(dispatcher.fsm.events_isolation) is DisabledEventIsolation


def test_an_isolation_that_was_chosen_is_left_alone(gate: Tidegate, bot: Bot) -> None:
    isolation: BaseEventIsolation = SimpleEventIsolation()
    dispatcher = Dispatcher(events_isolation=isolation)

    gate.attach(dispatcher, bot, conversations="store")

    assert isinstance(dispatcher.storage, RedisStorage)
    assert dispatcher.fsm.events_isolation is isolation


def test_a_dispatcher_without_conversations_gets_no_redis(gate: Tidegate, bot: Bot) -> None:
    dispatcher = Dispatcher(disable_fsm=True)

    gate.attach(dispatcher, bot, conversations="store")

    assert type(dispatcher.storage) is MemoryStorage


def test_bots_of_one_dispatcher_share_a_storage_and_two_dispatchers_have_two(
    gate: Tidegate, bot: Bot
) -> None:
    """Each dispatcher closes its own when it stops."""
    first, second = Dispatcher(), Dispatcher()

    gate.attach(first, bot, conversations="store")
    storage = first.storage
    gate.attach(first, Bot("43:token"), conversations="store")
    gate.attach(second, bot, conversations="store")

    assert first.storage is storage
    assert isinstance(second.storage, RedisStorage)
    assert second.storage is not storage


def test_conversations_that_have_begun_are_not_thrown_away(gate: Tidegate, bot: Bot) -> None:
    storage = MemoryStorage()
    storage.storage[ALICE] = MemoryStorageRecord(state="asked")
    dispatcher = Dispatcher(storage=storage)

    with pytest.raises(BadInputError, match="leave out conversations"):
        gate.attach(dispatcher, bot, conversations="store")

    assert dispatcher.storage is storage
    assert not len(bot.session.middleware), "half attached"
    assert not gate.bots()
    gate.attach(dispatcher, bot, conversations="library")


def test_updates_that_left_no_conversation_do_not_count(gate: Tidegate, bot: Bot) -> None:
    storage = MemoryStorage()
    storage.storage[ALICE] = MemoryStorageRecord()  # it keeps one for everybody who was asked about
    dispatcher = Dispatcher(storage=storage)

    gate.attach(dispatcher, bot, conversations="store")

    assert isinstance(dispatcher.storage, RedisStorage)


def test_the_password_is_in_no_text(gate: Tidegate, bot: Bot, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    dispatcher = Dispatcher()

    gate.attach(dispatcher, bot, conversations="store")

    assert "conversations are kept in Redis" in caplog.text
    assert "hunter2" not in caplog.text + repr(dispatcher.storage) + repr(dispatcher.fsm.events_isolation)


class FakeLock:
    """Of Redis, free; `lost` when it is given back or renewed."""

    def __init__(self) -> None:
        self.renewed = 0
        self.lost = False

    async def acquire(self) -> bool:
        return True

    async def reacquire(self) -> bool:
        self.renewed += 1
        return await self.release()

    async def release(self) -> bool:
        if self.lost:
            raise LockNotOwnedError("gone")
        return True


class FakeRedis:
    def __init__(self) -> None:
        self.made = FakeLock()

    def lock(self, name: str, timeout: float) -> FakeLock:
        assert name == "tidegate-fsm:1001:1001:lock"
        assert timeout == 30
        return self.made


@pytest.fixture
def redis() -> FakeRedis:
    return FakeRedis()


@pytest.fixture
def isolation(redis: FakeRedis, clock: VirtualClock) -> RedisLockIsolation:
    storage = RedisStorage(cast("Redis", redis), DefaultKeyBuilder(prefix="tidegate-fsm"))
    return RedisLockIsolation(storage, clock, nullcontext, is_ordered=bool)


async def test_a_conversation_is_held_as_long_as_its_handler_runs(
    isolation: RedisLockIsolation, redis: FakeRedis, clock: VirtualClock
) -> None:
    async with isolation.lock(ALICE):
        await clock.sleep(65)
    await clock.sleep(65)

    assert redis.made.renewed == 6


async def test_a_lock_that_was_lost_does_not_fail_the_handler(
    isolation: RedisLockIsolation, redis: FakeRedis, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with isolation.lock(ALICE):
        redis.made.lost = True
        await clock.sleep(15)

    assert "could not be held" in caplog.text


async def test_an_error_of_the_handler_stays_what_it_is(
    isolation: RedisLockIsolation, redis: FakeRedis
) -> None:
    async def handle() -> None:
        async with isolation.lock(ALICE):
            redis.made.lost = True
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await handle()


async def test_updates_of_one_process_are_handled_in_order_and_nothing_is_left_of_them(
    isolation: RedisLockIsolation, clock: VirtualClock
) -> None:
    told: list[str] = []

    async def handle(number: int) -> None:
        async with isolation.lock(ALICE):
            told.append(f"{number} begins")
            await clock.sleep(5 - number)
            told.append(f"{number} ends")

    await asyncio.gather(*map(handle, range(5)))

    assert told == [f"{number} {what}" for number in range(5) for what in ("begins", "ends")]
    assert not isolation.locks.in_use
