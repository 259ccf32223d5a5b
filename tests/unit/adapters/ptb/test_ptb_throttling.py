"""python-telegram-bot behind the throttle: a flood reaches no handler, and a button never spins for ever."""

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from telegram import CallbackQuery, Chat, Message, Update, User
from telegram.ext import (
    Application,
    CallbackContext,
    CallbackQueryHandler,
    ExtBot,
    MessageHandler,
    TypeHandler,
    filters,
)

from tidegate.adapters.ptb import TidegateLimiter
from tidegate.adapters.ptb.throttle import throttle_application
from tidegate.errors import BadInputError
from tidegate.inbound.throttle import THROTTLE_NOTICE, Throttle, ThrottleRules
from tidegate.model import Rate
from tidegate.sim.virtual_time import EPOCH, VirtualClock
from tidegate.stores.memory.throttle import MemoryThrottle

App = Application[Any, Any, Any, Any, Any, Any]
Context = CallbackContext[ExtBot[Any], Any, Any, Any]
ANN = User(1001, "Ann", is_bot=False)
WHEN = datetime.fromtimestamp(EPOCH, UTC)
HOME, GROUP = Chat(1001, "private"), Chat(-100, "supergroup")


class Scene:
    """An application that may be asked twice a minute."""

    def __init__(self, app: App, clock: VirtualClock, **rules: Any) -> None:  # noqa: ANN401
        self.app, self.clock = app, clock
        self.handled: list[str | None] = []
        self.said: list[tuple[int, int, str]] = []
        self._numbers = itertools.count(1)
        chosen = ThrottleRules(user=Rate(2, 60), **rules)
        self.throttle = Throttle(chosen, MemoryThrottle(chosen, clock))
        throttle_application(app, lambda: self.throttle, self.say)
        app.add_handler(MessageHandler(filters.TEXT, self._message))
        app.add_handler(CallbackQueryHandler(self._press))

    async def say(self, bot: int, chat: int, text: str) -> None:
        self.said.append((bot, chat, text))

    async def _message(self, update: Update, _context: object) -> None:
        assert update.message is not None
        self.handled.append(update.message.text)

    async def _press(self, update: Update, _context: object) -> None:
        assert update.callback_query is not None
        self.handled.append(update.callback_query.data)

    async def write(self, text: str, chat: Chat = HOME) -> None:
        message = Message(1, WHEN, chat, text=text, from_user=ANN)
        await self.app.process_update(Update(next(self._numbers), message=message))

    async def press(self, data: str) -> None:
        query = CallbackQuery(f"q-{data}", ANN, "1", data=data)
        query.set_bot(self.app.bot)
        await self.app.process_update(Update(next(self._numbers), callback_query=query))


Play = Callable[..., Any]


@pytest.fixture
async def play(bot_of: Callable[..., ExtBot[Any]], limiter: TidegateLimiter, clock: VirtualClock) -> Play:
    @asynccontextmanager
    async def scene(**rules: Any) -> AsyncIterator[Scene]:  # noqa: ANN401
        app: App = Application.builder().bot(bot_of(limiter)).updater(None).job_queue(None).build()
        made = Scene(app, clock, **rules)
        async with app:
            yield made

    return scene


async def test_a_flood_reaches_no_handler_and_is_told_once(play: Play) -> None:
    async with play() as scene:
        for text in "abcde":
            await scene.write(text)
    assert scene.handled == ["a", "b"]
    assert scene.said == [(42, 1001, THROTTLE_NOTICE.format(seconds=30))]


async def test_whoever_was_there_before_does_not_see_it_either(play: Play) -> None:
    seen: list[object] = []

    async def look(update: object, _context: Context) -> None:
        seen.append(update)

    async with play() as scene:
        scene.app.add_handler(TypeHandler(Update, look), group=-1_000_000)
        for text in "abcde":
            await scene.write(text)
    assert len(seen) == 2


async def test_a_group_hears_nothing_of_it(play: Play) -> None:
    async with play() as scene:
        for text in "abcde":
            await scene.write(text, GROUP)
    assert scene.handled == ["a", "b"]
    assert scene.said == []


async def test_buttons_come_through(play: Play) -> None:
    async with play() as scene:
        for text in "abc":
            await scene.write(text)
        await scene.press("buy")
    assert scene.handled == ["a", "b", "buy"]


async def test_a_held_button_stops_spinning_and_says_why_once(
    play: Play, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[tuple[str, str | None]] = []

    async def answer(
        _bot: object, callback_query_id: str, text: str | None = None, **_options: object
    ) -> bool:
        answered.append((callback_query_id, text))
        return True

    monkeypatch.setattr(ExtBot, "answer_callback_query", answer)
    async with play(never=frozenset({"payment"}), text="Slowly! {seconds} s") as scene:
        for data in "abcdef":
            await scene.press(data)
        await clock.sleep(1)
    assert scene.handled == ["a", "b", "c", "d"]
    assert answered == [("q-e", "Slowly! 15 s"), ("q-f", None)]


async def test_what_is_no_update_is_left_alone(play: Play) -> None:
    seen: list[object] = []

    async def look(update: object, _context: Context) -> None:
        seen.append(update)

    async with play() as scene:
        scene.app.add_handler(TypeHandler(str, look))
        for _ in range(5):
            await scene.app.process_update("tick")
    assert len(seen) == 5


async def test_one_application_has_one_throttle(play: Play) -> None:
    async with play() as scene:
        with pytest.raises(BadInputError, match="has a throttle already"):
            throttle_application(scene.app, lambda: scene.throttle, scene.say)
