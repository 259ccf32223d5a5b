"""Before the inbox: an update that is held is not written down, and no other waits for it."""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from tidegate.inbound.arrivals import Arrival
from tidegate.inbound.throttle.answers import Answer, Buttons, tell
from tidegate.inbound.throttle.base import Held
from tidegate.inbound.throttle.throttle import Throttle
from tidegate.inbound.updates import Json, about_update, content_of

log = logging.getLogger("tidegate.inbound")

REMEMBERED: Final = 10_000  # verdicts: an update that comes again, as the store was away, is charged once

# Bot, callback query and text: makes the button stop spinning.
AnswerQuery = Callable[[int, str, str | None], Awaitable[object]]


class Guard:
    """Of all bots of a gate."""

    def __init__(self, throttle: Throttle, answer: Answer, answer_query: AnswerQuery) -> None:
        self._throttle = throttle
        self._answer = answer
        self._answer_query = answer_query
        self._buttons = Buttons(throttle)
        self._verdicts: OrderedDict[tuple[str, str], bool] = OrderedDict()

    async def __call__(self, arrival: Arrival) -> bool:
        """Whether it is let pass. Who is held hears of it once in a while."""
        name = (arrival.source, arrival.key)
        known = self._verdicts.get(name)
        if known is not None:
            return known
        passes = self._verdicts[name] = await self._check(arrival)
        if len(self._verdicts) > REMEMBERED:
            self._verdicts.popitem(last=False)
        return passes

    async def _check(self, arrival: Arrival) -> bool:
        bot = int(arrival.source.partition(":")[2])
        update = msgspec.json.decode(arrival.body, type=Json)
        about, content = about_update(update), content_of(update)
        verdict = await self._throttle.check(about, bot, content.get("media_group_id"))
        if not isinstance(verdict, Held):
            return True
        if verdict.answer:  # once in a window
            log.info("user %s of bot %s writes too much: held for %.0f s", about.user, bot, verdict.wait)
        if about.kind == "callback_query":
            self._buttons.release(verdict, lambda text: self._answer_query(bot, str(content.get("id")), text))
        else:
            await tell(self._answer, self._throttle, verdict, about, bot)
        return False
