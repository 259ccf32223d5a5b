"""The throttle before the inbox: a throttled update is not stored; its sender is told once in a window."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from tidegate.errors import TidegateError
from tidegate.failure import scrub
from tidegate.inbound.inbox import InboxItem
from tidegate.inbound.throttle import Throttle, Throttled
from tidegate.inbound.updates import Json, UpdateInfo, describe_update, update_content

log = logging.getLogger("tidegate.inbound")

BUTTON_ANSWERS_AT_ONCE: Final = (
    16  # buttons that are answered; one of a flood may spin until its client gives up
)
MAX_BUTTON_TEXT: Final = 200  # characters at a button

# Bot, chat and text: puts the answer into the outbox, and does not wait for Telegram.
SendNotice = Callable[[int, int, str], Awaitable[object]]


async def notify_sender(
    answer: SendNotice, throttle: Throttle, held: Throttled, about: UpdateInfo, bot: int
) -> None:
    """Once in a window. Never raises for what becomes of it: the update is held all the same."""
    text = throttle.rules.say(held.wait) if held.answer else None
    if text is None or about.chat is None:
        return
    try:
        await answer(bot, about.chat, text)
    except TidegateError as error:
        log.warning("somebody is held and was not told: %s", scrub(str(error)))


class ButtonAnswerer:
    """Stops those that spin, in tasks of its own: nobody waits for Telegram."""

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle
        self._answering: set[asyncio.Task[None]] = set()

    def release(self, held: Throttled, answer_query: Callable[[str | None], Awaitable[object]]) -> None:
        if len(self._answering) >= BUTTON_ANSWERS_AT_ONCE:
            return
        text = self._throttle.rules.say(held.wait) if held.answer else None
        task = asyncio.create_task(
            _answer_button(answer_query, text and text[:MAX_BUTTON_TEXT]), name="tidegate: button"
        )
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)


async def _answer_button(answer_query: Callable[[str | None], Awaitable[object]], text: str | None) -> None:
    try:
        await answer_query(text)
    except Exception as error:  # noqa: BLE001  (any of the library's; the button stops by itself in the end)
        log.info("a button was not answered: %s", scrub(f"{type(error).__name__}: {error}"))


REMEMBERED_VERDICTS: Final = (
    10_000  # verdicts: an update that comes again, as the store was away, is charged once
)

# Bot, callback query and text: makes the button stop spinning.
AnswerCallbackQuery = Callable[[int, str, str | None], Awaitable[object]]


class ThrottleMiddleware:
    """Of all bots of a gate."""

    def __init__(self, throttle: Throttle, answer: SendNotice, answer_query: AnswerCallbackQuery) -> None:
        self._throttle = throttle
        self._answer = answer
        self._answer_query = answer_query
        self._buttons = ButtonAnswerer(throttle)
        self._verdicts: OrderedDict[tuple[str, str], bool] = OrderedDict()

    async def __call__(self, arrival: InboxItem) -> bool:
        """Whether it is let pass. Who is held hears of it once in a while."""
        name = (arrival.source, arrival.key)
        known = self._verdicts.get(name)
        if known is not None:
            return known
        passes = self._verdicts[name] = await self._check(arrival)
        if len(self._verdicts) > REMEMBERED_VERDICTS:
            self._verdicts.popitem(last=False)
        return passes

    async def _check(self, arrival: InboxItem) -> bool:
        bot = int(arrival.source.partition(":")[2])
        update = msgspec.json.decode(arrival.body, type=Json)
        about, content = describe_update(update), update_content(update)
        verdict = await self._throttle.check(about, bot, content.get("media_group_id"))
        if not isinstance(verdict, Throttled):
            return True
        if verdict.answer:  # once in a window
            log.info("user %s of bot %s writes too much: held for %.0f s", about.user, bot, verdict.wait)
        if about.kind == "callback_query":
            self._buttons.release(verdict, lambda text: self._answer_query(bot, str(content.get("id")), text))
        else:
            await notify_sender(self._answer, self._throttle, verdict, about, bot)
        return False
