"""The throttle before the inbox: a throttled update is not stored; its sender is told once in a window."""

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
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.inbound")

REMEMBERED_VERDICTS: Final = 10_000  # an update that is repeated, as the store was away, is charged once
BUTTON_ANSWERS_AT_ONCE: Final = 16  # others of a flood spin until their client gives up
MAX_BUTTON_TEXT: Final = 200  # characters

# Takes bot, chat and text: puts the notice into the outbox, and does not wait for Telegram.
SendNotice = Callable[[int, int, str], Awaitable[object]]
# Takes bot, callback query and text: makes the button stop spinning.
AnswerCallbackQuery = Callable[[int, str, str | None], Awaitable[object]]


async def notify_sender(
    send: SendNotice, throttle: Throttle, verdict: Throttled, update: UpdateInfo, bot: int
) -> None:
    """Tell the sender, if the verdict says so. A failure is logged: the update is throttled all the same."""
    text = throttle.rules.notice(verdict.wait) if verdict.notify else None
    if text is None or update.chat is None:
        return
    try:
        await send(bot, update.chat, text)
    except TidegateError as error:
        log.warning("a throttled user was not told: %s", scrub(str(error)))


class ButtonAnswerer:
    """Stops throttled buttons from spinning, in background tasks: no update waits for Telegram."""

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle
        self._answers = BackgroundTasks()

    def answer(self, verdict: Throttled, answer_query: Callable[[str | None], Awaitable[object]]) -> None:
        if len(self._answers) >= BUTTON_ANSWERS_AT_ONCE:
            return
        text = self._throttle.rules.notice(verdict.wait) if verdict.notify else None
        self._answers.start(_answer_button(answer_query, text and text[:MAX_BUTTON_TEXT]), "button")


async def _answer_button(answer_query: Callable[[str | None], Awaitable[object]], text: str | None) -> None:
    try:
        await answer_query(text)
    except Exception as error:  # noqa: BLE001  (any of the library's; the button stops by itself in the end)
        log.info("a button was not answered: %s", scrub(f"{type(error).__name__}: {error}"))


class ThrottleMiddleware:
    """The accept filter of all bots of a gate."""

    def __init__(
        self, throttle: Throttle, send_notice: SendNotice, answer_query: AnswerCallbackQuery
    ) -> None:
        self._throttle = throttle
        self._send_notice = send_notice
        self._answer_query = answer_query
        self._buttons = ButtonAnswerer(throttle)
        self._verdicts: OrderedDict[tuple[str, str], bool] = OrderedDict()

    async def __call__(self, item: InboxItem) -> bool:
        """Return False if it is throttled."""
        key = (item.source, item.key)
        known = self._verdicts.get(key)
        if known is not None:
            return known
        passes = self._verdicts[key] = await self._check(item)
        if len(self._verdicts) > REMEMBERED_VERDICTS:
            self._verdicts.popitem(last=False)
        return passes

    async def _check(self, item: InboxItem) -> bool:
        bot = int(item.source.partition(":")[2])
        body = msgspec.json.decode(item.body, type=Json)
        update, content = describe_update(body), update_content(body)
        verdict = await self._throttle.check(update, bot, content.get("media_group_id"))
        if not isinstance(verdict, Throttled):
            return True
        if verdict.notify:  # once in a window
            log.info(
                "user %s of bot %s writes too much: throttled for %.0f s", update.user, bot, verdict.wait
            )
        if update.kind == "callback_query":
            query = str(content.get("id"))
            self._buttons.answer(verdict, lambda text: self._answer_query(bot, query, text))
        else:
            await notify_sender(self._send_notice, self._throttle, verdict, update, bot)
        return False
