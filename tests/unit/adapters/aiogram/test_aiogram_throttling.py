"""aiogram behind the throttle: a flood reaches no handler, and a button never spins for ever."""

import itertools
from typing import Any

import pytest
from aiogram import Bot, Dispatcher
from aiogram.methods import AnswerCallbackQuery
from aiogram.types import CallbackQuery, Message, PreCheckoutQuery, Update

from tidegate.adapters.aiogram.throttle import AiogramThrottleMiddleware
from tidegate.errors import StoreFullError
from tidegate.inbound.throttle import THROTTLE_NOTICE, Throttle, ThrottleRules
from tidegate.model import Rate
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.throttle import MemoryThrottle
from unit.adapters.aiogram.stage import Stage

ANN = {"id": 1001, "is_bot": False, "first_name": "Ann"}
HOME = {"id": 1001, "type": "private", "first_name": "Ann"}
GROUP = {"id": -100, "type": "supergroup", "title": "Harbour"}


class Scene:
    """A bot that may be asked twice a minute."""

    def __init__(self, stage: Stage, clock: VirtualClock, **rules: Any) -> None:  # noqa: ANN401
        self.bot: Bot = stage.bot
        self.session, self.clock = stage.session, clock
        self.dispatcher = Dispatcher()
        self.handled: list[str] = []
        self.said: list[tuple[int, int, str]] = []
        self.full = False
        self._numbers = itertools.count(1)
        chosen = ThrottleRules(user=Rate(2, 60), **rules)
        throttle = Throttle(chosen, MemoryThrottle(chosen, clock))
        self.dispatcher.update.outer_middleware(AiogramThrottleMiddleware(throttle, self._say))
        self.dispatcher.message.register(self._message)
        self.dispatcher.callback_query.register(self._press)
        self.dispatcher.pre_checkout_query.register(self._pay)

    async def _say(self, bot: int, chat: int, text: str) -> None:
        if self.full:
            raise StoreFullError("no room")
        self.said.append((bot, chat, text))

    async def _message(self, message: Message) -> None:
        self.handled.append(message.text or "")

    async def _press(self, query: CallbackQuery) -> None:
        self.handled.append(query.data or "")

    async def _pay(self, query: PreCheckoutQuery) -> None:
        self.handled.append(query.invoice_payload)

    async def feed(self, **update: object) -> None:
        await self.dispatcher.feed_raw_update(self.bot, {"update_id": next(self._numbers), **update})

    async def write(self, text: str, chat: dict[str, Any] = HOME, **fields: object) -> None:
        await self.feed(
            message={
                "message_id": 1,
                "date": int(self.clock.now()),
                "chat": chat,
                "from": ANN,
                "text": text,
                **fields,
            }
        )

    async def press(self, data: str) -> None:
        query = {"id": f"q-{data}", "from": ANN, "chat_instance": "1", "data": data}
        await self.feed(callback_query=query)

    async def answered(self) -> list[tuple[str, str | None]]:
        await self.clock.sleep(1)
        made = [method for method in self.session.made if isinstance(method, AnswerCallbackQuery)]
        return [(method.callback_query_id, method.text) for method in made]


@pytest.fixture
def scene(stage: Stage, clock: VirtualClock) -> Scene:
    return Scene(stage, clock)


async def test_a_flood_reaches_no_handler_and_is_told_once(scene: Scene) -> None:
    for text in "abcde":
        await scene.write(text)
    assert scene.handled == ["a", "b"]
    assert scene.said == [(42, 1001, THROTTLE_NOTICE.format(seconds=30))]


async def test_after_its_wait_a_message_is_handled_again(scene: Scene, clock: VirtualClock) -> None:
    for text in "abc":
        await scene.write(text)
    await clock.sleep(30)
    await scene.write("d")
    assert scene.handled == ["a", "b", "d"]


async def test_a_group_hears_nothing_of_it(scene: Scene) -> None:
    for text in "abcde":
        await scene.write(text, GROUP)
    assert scene.handled == ["a", "b"]
    assert scene.said == []


async def test_buttons_payments_and_members_come_through(scene: Scene) -> None:
    for text in "abc":
        await scene.write(text)
    await scene.press("buy")
    money = {"currency": "XTR", "total_amount": 5, "invoice_payload": "tea"}
    await scene.feed(pre_checkout_query={"id": "7", "from": ANN, **money})
    await scene.feed(
        message={"message_id": 1, "date": 1, "chat": GROUP, "from": ANN, "new_chat_members": [ANN]}
    )
    assert scene.handled == ["a", "b", "buy", "tea", ""]


async def test_a_held_button_stops_spinning_and_says_why_once(stage: Stage, clock: VirtualClock) -> None:
    scene = Scene(stage, clock, never=frozenset({"payment"}), text="Slowly! {seconds} s")
    for data in "abcdef":
        await scene.press(data)
    assert scene.handled == ["a", "b", "c", "d"]
    assert await scene.answered() == [("q-e", "Slowly! 15 s"), ("q-f", None)]
    assert scene.said == []


async def test_a_flood_of_buttons_is_no_flood_of_answers(stage: Stage, clock: VirtualClock) -> None:
    scene = Scene(stage, clock, never=frozenset({"payment"}))
    stage.session.slow = 0.5
    for number in range(200):
        await scene.press(str(number))
    assert len(await scene.answered()) == 16


async def test_a_button_that_cannot_be_answered_is_let_go(stage: Stage, clock: VirtualClock) -> None:
    scene = Scene(stage, clock, never=frozenset({"payment"}))
    stage.session.unplugged = True
    for data in "abcdef":
        await scene.press(data)
    assert len(await scene.answered()) == 2
    assert scene.handled == ["a", "b", "c", "d"]


async def test_an_album_is_handled_as_a_whole(scene: Scene) -> None:
    for text in "abcd":
        await scene.write(text, media_group_id="7")
    await scene.write("e")
    await scene.write("f")
    assert scene.handled == ["a", "b", "c", "d", "e"]


async def test_nothing_may_be_said(stage: Stage, clock: VirtualClock) -> None:
    scene = Scene(stage, clock, text=None)
    for text in "abc":
        await scene.write(text)
    assert scene.handled == ["a", "b"]
    assert scene.said == []


async def test_an_answer_that_is_not_accepted_harms_nobody(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.full = True
    for text in "abc":
        await scene.write(text)
    assert scene.handled == ["a", "b"]
    assert "a user whose updates are dropped was not told: no room" in caplog.text
    assert "1 updates above the rate were dropped so far, the last of user 1001" in caplog.text


async def test_what_aiogram_does_not_know_is_left_to_it(scene: Scene) -> None:
    seen: list[Update] = []

    async def look(_handler: object, event: Any, _data: object) -> None:  # noqa: ANN401
        seen.append(event)

    scene.dispatcher.update.outer_middleware(look)
    for _ in range(5):
        await scene.feed(newest_thing={"from": ANN})
    assert len(seen) == 5
