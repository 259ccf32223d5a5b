"""Outages of a bot, as every store finds them in an outcome."""

from tidegate.model import LOST_ANSWERS, Outcome, Unknown, Unreachable


def outage_in(outcome: Outcome) -> tuple[float, str] | None:
    """The seconds for which its bot must wait, and why; None if the outcome says nothing of the kind."""
    match outcome:
        case Unreachable(wait=wait, reason=reason):
            return wait, reason
        case Unknown(wait=wait) if wait > 0:
            return wait, LOST_ANSWERS
        case _:
            return None
