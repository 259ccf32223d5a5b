"""Outages of a bot, as every store holds and logs them: when one begins, and when it ends."""

import logging

from tidegate.model import LOST_ANSWERS, BotId, Outcome, Unknown, Unreachable

log = logging.getLogger("tidegate.worker")


def outage_in(outcome: Outcome) -> tuple[float, str] | None:
    """The seconds for which its bot must wait, and why; None if the outcome says nothing of the kind."""
    match outcome:
        case Unreachable(wait=wait, reason=reason):
            return wait, reason
        case Unknown(wait=wait) if wait > 0:
            return wait, LOST_ANSWERS
        case _:
            return None


def log_outage(bot: BotId, obstacle: str, waiting: int) -> None:
    log.warning(
        "bot %s:… cannot send (%s): %d messages wait, and one tries again at growing intervals",
        bot,
        obstacle,
        waiting,
    )


def log_outage_end(bot: BotId, lasted: float, waiting: int) -> None:
    log.warning("bot %s:… sends again after %.0f s; %d messages waited", bot, lasted, waiting)
