"""How long to leave a bot alone while it cannot send: longer each time, and told once a time.

Telegram cannot be reached, or does not know the bot's token, or nobody has told us that.
"""

import logging
from typing import Final

import msgspec

from tidegate.model import BotId, Outcome, Unreachable

log = logging.getLogger("tidegate.worker")

LONGEST: Final = 30.0  # seconds: what waits should leave soon after the end of an outage
MOST_DOUBLINGS: Final = 10


class _Outage(msgspec.Struct):
    tries: int
    until: float  # monotonic


class Outages:
    def __init__(self, first: float) -> None:
        self._first = first
        self._of: dict[BotId, _Outage] = {}

    def note(self, bot: BotId, outcome: Outcome, now: float) -> Outcome:
        """The outcome of a call; of one that could not be made, with the wait that is due by now."""
        if not isinstance(outcome, Unreachable):
            if self._of.pop(bot, None) is not None:
                log.warning("bot %s:… sends again", bot)
            return outcome
        outage = self._of.setdefault(bot, _Outage(0, now))
        if now >= outage.until:  # else a call that was under way when the wait began
            wait = min(LONGEST, self._first * 2.0 ** min(outage.tries, MOST_DOUBLINGS))
            outage.tries, outage.until = outage.tries + 1, now + wait
            log.warning("bot %s:… cannot send (%s): waiting %.0f s", bot, outcome.reason, wait)
        return Unreachable(outage.until - now, outcome.reason)
