"""Updates of an attached dispatcher go through the inbox; nothing changes for its handlers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiogram import Bot
from aiogram.filters import Command
from aiogram.types import Message

from tidegate import Tidegate
from tidegate.sim.telegram.people import Person
from tidegate.sim.virtual_time import VirtualClock
from unit.adapters.aiogram.stage import TOKEN, Stage

ALICE, BOB = 1001, 1002


@asynccontextmanager
async def polling(stage: Stage, **data: Any) -> AsyncIterator[None]:  # noqa: ANN401
    running = asyncio.create_task(
        stage.dispatcher.start_polling(stage.bot, handle_signals=False, close_bot_session=False, **data)
    )
    yield
    await stage.clock.sleep(0.1)
    await stage.dispatcher.stop_polling()
    await running


def person(stage: Stage, user: int) -> Person:
    bot = stage.telegram.world.bot(TOKEN)
    assert bot is not None
    return Person(stage.telegram, bot, user)


@pytest.fixture
def attached(stage: Stage) -> Stage:
    stage.gate.attach(stage.dispatcher, stage.bot, updates="durable", throttle=True)
    return stage


async def test_what_people_write_is_answered(attached: Stage) -> None:
    @attached.dispatcher.message(Command("start"))
    async def greet(message: Message, shop: str) -> None:
        await message.answer(f"Welcome to {shop}")

    alice = person(attached, ALICE)
    async with polling(attached, shop="the shop"):
        alice.says("/start")
        heard = await alice.hears()

    assert heard["text"] == "Welcome to the shop"
    assert (await attached.gate.core.handler_registry.stats()).waiting == 0


async def test_a_slow_chat_holds_up_nobody_but_itself(attached: Stage) -> None:
    order: list[str] = []

    @attached.dispatcher.message()
    async def slow(message: Message) -> None:
        if message.chat.id == ALICE:
            await attached.clock.sleep(5)
        order.append(f"{message.chat.id} {message.text}")

    alice, bob = person(attached, ALICE), person(attached, BOB)
    async with polling(attached):
        for text in ("1", "2"):
            alice.says(text)
            bob.says(text)
        await attached.clock.sleep(20)

    assert order == [f"{BOB} 1", f"{BOB} 2", f"{ALICE} 1", f"{ALICE} 2"]


@pytest.mark.parametrize("marked", [True, False])
async def test_a_repeatable_update_that_was_cut_short_is_handled_again_by_the_next_and_answered_once(
    clock: VirtualClock, tmp_path: Path, *, marked: bool
) -> None:
    runs = 0

    async def run(stage: Stage, seconds: float) -> None:
        async def answer(message: Message, gate: Tidegate) -> None:
            nonlocal runs
            runs += 1
            await gate.queue(message.answer("one"))
            await clock.sleep(1000 if runs == 1 else 1)
            await gate.queue(message.answer("two"))

        stage.dispatcher.message.register(stage.gate.repeatable(answer) if marked else answer)
        async with polling(stage):
            await clock.sleep(seconds)

    first = Stage(clock, store=str(tmp_path / "tidegate.db"))
    second = Stage(clock, store=str(tmp_path / "tidegate.db"), telegram=first.telegram)
    for stage in (first, second):
        stage.gate.attach(stage.dispatcher, stage.bot, updates="durable", throttle=True)
    person(first, ALICE).says("hello")
    await run(first, 5)
    await run(second, 5)

    said = [entry.text for entry in first.telegram.request_log.log if entry.method == "sendMessage"]
    assert runs == (2 if marked else 1)
    assert said == (["one", "two"] if marked else ["one"])


async def test_a_second_process_waits_and_takes_over(clock: VirtualClock, tmp_path: Path) -> None:
    first = Stage(clock, store=str(tmp_path / "tidegate.db"))
    second = Stage(clock, store=str(tmp_path / "tidegate.db"), telegram=first.telegram)
    answered: list[str] = []

    def serve(stage: Stage, name: str) -> None:
        stage.gate.attach(stage.dispatcher, stage.bot, updates="durable", throttle=True)

        @stage.dispatcher.message()
        async def note(_: Message) -> None:
            answered.append(name)

    serve(first, "first")
    serve(second, "second")
    async with polling(first):
        await clock.sleep(1)
        waiting = asyncio.create_task(
            second.dispatcher.start_polling(second.bot, handle_signals=False, close_bot_session=False)
        )
        person(first, ALICE).says("hello")
        await clock.sleep(30)
    person(first, ALICE).says("hello again")
    await clock.sleep(10)
    await second.dispatcher.stop_polling()
    await waiting

    assert answered == ["first", "second"]
    conflicts = [entry for entry in first.telegram.request_log.log if entry.status == 409]
    assert conflicts == []


async def test_who_floods_is_told_once_and_holds_up_nobody(attached: Stage) -> None:
    handled: list[int] = []

    @attached.dispatcher.message()
    async def note(message: Message) -> None:
        handled.append(message.chat.id)

    alice, bob = person(attached, ALICE), person(attached, BOB)
    async with polling(attached):
        for _ in range(100):
            alice.says("buy")
        bob.says("hello")
        await attached.clock.sleep(5)

    told = [entry for entry in attached.telegram.request_log.log if entry.method == "sendMessage"]
    assert handled.count(ALICE) == 30
    assert handled.count(BOB) == 1
    assert [entry.chat_id for entry in told] == [ALICE]


async def test_without_the_inbox_aiogram_gets_its_updates_itself(stage: Stage) -> None:
    stage.gate.attach(stage.dispatcher, stage.bot, updates="library")

    @stage.dispatcher.message()
    async def answer(message: Message) -> None:
        await message.answer("hi")

    alice = person(stage, ALICE)
    async with polling(stage):
        alice.says("hello")
        assert (await alice.hears())["text"] == "hi"
        assert not stage.gate.core.handler_registry.has_handler(f"bot:{stage.bot.id}")  # type: ignore[arg-type]


async def test_a_call_of_ones_own_to_get_updates_is_left_alone(attached: Stage) -> None:
    person(attached, ALICE).says("hello")

    [update] = await attached.bot.get_updates()

    assert update.message is not None


async def test_each_bot_of_a_dispatcher_gets_its_own(clock: VirtualClock, stage: Stage) -> None:
    other = Bot("43:token", session=stage.session)
    stage.tokens.add("43:token")
    stage.gate.attach(stage.dispatcher, stage.bot, other, updates="durable", throttle=True)
    got: list[tuple[int, str | None]] = []

    @stage.dispatcher.message()
    async def note(message: Message, bot: Bot) -> None:
        got.append((bot.id, message.text))

    second = stage.telegram.world.bot("43:token")
    assert second is not None
    running = asyncio.create_task(
        stage.dispatcher.start_polling(stage.bot, other, handle_signals=False, close_bot_session=False)
    )
    person(stage, ALICE).says("one")
    Person(stage.telegram, second, ALICE).says("two")
    await clock.sleep(2)
    await stage.dispatcher.stop_polling()
    await running

    assert sorted(got) == [(42, "one"), (43, "two")]


async def test_updates_that_wait_are_handled_between_the_hooks_of_start_and_stop(
    clock: VirtualClock, tmp_path: Path
) -> None:
    log: list[str] = []

    def serve(stage: Stage) -> None:
        stage.gate.attach(stage.dispatcher, stage.bot, updates="durable", throttle=True)

        @stage.dispatcher.startup()
        async def connect() -> None:
            await clock.sleep(1)
            log.append("connected")

        @stage.dispatcher.shutdown()
        async def disconnect() -> None:
            log.append("disconnected")

        @stage.dispatcher.message()
        async def note(message: Message) -> None:
            await clock.sleep(1)
            log.append(str(message.text))

    first = Stage(clock, store=str(tmp_path / "tidegate.db"))
    second = Stage(clock, store=str(tmp_path / "tidegate.db"), telegram=first.telegram)
    serve(first)
    serve(second)
    async with polling(first):
        await clock.sleep(2)
        for number in range(20):
            person(first, ALICE).says(str(number))
        await clock.sleep(3.5)
    before = log[:]
    async with polling(second):
        await clock.sleep(25)

    assert before[0] == "connected"
    assert before[-1] == "disconnected"
    assert log[len(before)] == "connected"
    assert [text for text in log if text.isdigit()] == [str(number) for number in range(20)]
    assert (await second.gate.core.handler_registry.inbox.parked() if second.gate.is_open else []) == []


async def test_a_start_that_failed_leaves_nothing_behind(stage: Stage) -> None:
    stage.gate.attach(stage.dispatcher, stage.bot, updates="durable", throttle=True)
    failures = 2

    @stage.dispatcher.startup()
    async def connect() -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise ConnectionError("not yet")

    @stage.dispatcher.message()
    async def answer(message: Message) -> None:
        await message.answer("hi")

    for _ in range(2):
        with pytest.raises(ConnectionError):
            await stage.dispatcher.start_polling(stage.bot, handle_signals=False, close_bot_session=False)
    alice = person(stage, ALICE)
    async with polling(stage):
        alice.says("hello")
        assert (await alice.hears())["text"] == "hi"

    assert not stage.gate.is_open


async def test_a_process_that_waits_to_take_over_can_be_stopped(clock: VirtualClock, tmp_path: Path) -> None:
    first = Stage(clock, store=str(tmp_path / "tidegate.db"))
    second = Stage(clock, store=str(tmp_path / "tidegate.db"), telegram=first.telegram)
    for stage in (first, second):
        stage.gate.attach(stage.dispatcher, stage.bot, updates="durable", throttle=True)
    async with polling(first):
        await clock.sleep(1)
        waiting = asyncio.create_task(
            second.dispatcher.start_polling(second.bot, handle_signals=False, close_bot_session=False)
        )
        await clock.sleep(5)
        async with clock.timeout(10):
            await second.dispatcher.stop_polling()
        await waiting

    assert not second.gate.is_open
