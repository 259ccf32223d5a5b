"""The throttle before the inbox: updates above the rate are dropped; the user is told once in a window."""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec

from tidegate.errors import TidegateError
from tidegate.failure import scrub
from tidegate.inbound.inbox import InboxItem
from tidegate.inbound.throttle import ChargeMode, Throttle, Throttled
from tidegate.inbound.updates import Json, UpdateInfo, describe_update, update_content
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.inbound")

REMEMBERED_VERDICTS: Final = 10_000  # an update that is repeated, as the store was away, is charged once
BUTTON_ANSWERS_AT_ONCE: Final = 16  # others of a flood spin until their client gives up
AT_ONCE_ENDING: Final = " at once"  # of the lane of what is handled beside updates that wait
LOGGED_DROPS: Final = 1_000
MAX_BUTTON_TEXT: Final = 200  # characters

# Takes bot, chat and text: puts the notice into the outbox, and does not wait for Telegram.
SendNotice = Callable[[int, int, str], Awaitable[object]]
# Takes a text: makes the pressed button stop spinning.
AnswerButton = Callable[[str | None], Awaitable[object]]
# Takes bot, callback query and text: the same for any bot.
AnswerCallbackQuery = Callable[[int, str, str | None], Awaitable[object]]


class UpdateThrottle:
    """A throttle that tells the sender of a dropped update so: in a message, or at a pressed button.

    Buttons are answered in background tasks, so that no update waits for Telegram.
    """

    def __init__(self, throttle: Throttle, send_notice: SendNotice) -> None:
        self._throttle = throttle
        self._send_notice = send_notice
        self._button_answers = BackgroundTasks()

    async def allows(
        self,
        update: UpdateInfo,
        bot: int,
        album: str | None,
        answer_button: AnswerButton | None,
        mode: ChargeMode = "drop",
    ) -> bool:
        """Charge an update. Return False if it is dropped. `answer_button` if a button was pressed."""
        verdict = await self._throttle.check(update, bot, album, mode)
        if not isinstance(verdict, Throttled):
            return True
        text = None
        if verdict.notify:  # once in a window
            text = self._throttle.rules.notice(verdict.wait, update.language)
            seen = "user %s of bot %s writes too much: further updates are dropped for %.0f s"
            log.info(seen, update.user, bot, verdict.wait)
        self._log_total(update, bot)
        if answer_button is not None:
            if len(self._button_answers) < BUTTON_ANSWERS_AT_ONCE:
                self._button_answers.start(_answer(answer_button, text and text[:MAX_BUTTON_TEXT]), "button")
        elif text is not None and update.chat is not None:
            try:
                await self._send_notice(bot, update.chat, text)
            except TidegateError as error:  # the update is dropped all the same
                log.warning("a user whose updates are dropped was not told: %s", scrub(str(error)))
        return False

    def _log_total(self, update: UpdateInfo, bot: int) -> None:
        """Log the first dropped update, the 10th, the 100th and every 1,000th: one line each for a flood."""
        total = self._throttle.throttled
        if total in {1, 10, 100} or total % LOGGED_DROPS == 0:
            text = "%d updates above the rate were dropped so far, the last of user %s in chat %s of bot %s"
            log.warning(text, total, update.user, update.chat, bot)


async def _answer(answer_button: AnswerButton, text: str | None) -> None:
    try:
        await answer_button(text)
    except Exception as error:  # noqa: BLE001  (any of the library's; the button stops by itself in the end)
        log.info("a button was not answered: %s", scrub(f"{type(error).__name__}: {error}"))


class ThrottleMiddleware:
    """The accept filter of all bots of a gate."""

    def __init__(
        self, throttle: Throttle, send_notice: SendNotice, answer_query: AnswerCallbackQuery
    ) -> None:
        self._rules = throttle.rules
        self._charges = throttle
        self._throttle = UpdateThrottle(throttle, send_notice)
        self._answer_query = answer_query
        self._verdicts: OrderedDict[tuple[str, str], bool] = OrderedDict()

    @property
    def is_queue(self) -> bool:
        return self._rules.is_queue

    async def admit(self, item: InboxItem, ahead: int) -> InboxItem | None:
        """Return the item as it is to be stored, or None if it is dropped. `ahead`: items of its lane."""
        if not self.is_queue:
            return item if await self._passes(item) else None
        if not ahead:
            return item
        kind = describe_update(msgspec.json.decode(item.body, type=Json)).kind
        if self._rules.is_free(kind):  # a payment cannot wait for the messages before it
            return msgspec.structs.replace(item, lane=item.lane + AT_ONCE_ENDING)
        if ahead < self._rules.queued:
            return item
        return item if await self._check(item, "full") else None

    async def turn(self, item: InboxItem) -> float:
        """Return the seconds that a stored item has to wait. 0: it is charged, and is to be handled now."""
        if not self.is_queue:
            return 0.0
        try:
            body = msgspec.json.decode(item.body, type=Json)
        except (ValueError, RecursionError):  # it is parked when it is handled
            return 0.0
        bot, album = int(item.source.partition(":")[2]), update_content(body).get("media_group_id")
        verdict = await self._charges.check(describe_update(body), bot, album, "wait")
        return verdict.wait if isinstance(verdict, Throttled) else 0.0

    async def _passes(self, item: InboxItem) -> bool:
        key = (item.source, item.key)
        known = self._verdicts.get(key)
        if known is not None:
            return known
        passes = self._verdicts[key] = await self._check(item)
        if len(self._verdicts) > REMEMBERED_VERDICTS:
            self._verdicts.popitem(last=False)
        return passes

    async def _check(self, item: InboxItem, mode: ChargeMode = "drop") -> bool:
        bot = int(item.source.partition(":")[2])
        body = msgspec.json.decode(item.body, type=Json)
        update, content = describe_update(body), update_content(body)
        answer_button: AnswerButton | None = None
        if update.kind == "callback_query":
            answer_button = partial(self._answer_query, bot, str(content.get("id")))
        return await self._throttle.allows(update, bot, content.get("media_group_id"), answer_button, mode)
