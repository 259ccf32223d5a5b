"""What can be asked of a broadcast, beside whom it goes to and what they get."""

import math
import re
from typing import Final

from tidegate.errors import BadInputError
from tidegate.model import Rate

REMEMBER: Final = 30 * 86_400.0  # seconds
AHEAD_SECONDS: Final = 5.0
FEWEST_AHEAD, MOST_AHEAD = 100, 1_000  # that are chosen where nobody says
_NAME = re.compile(r"[\w.-]{1,64}")


def check_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInputError(
            f"{name!r} is no name of a broadcast: write up to 64 letters, digits, dots and dashes"
        )
    return name


def ahead_of(ahead: object, rate: Rate) -> int:
    """How many may wait in the outbox at once: what was asked for, or else some seconds' worth."""
    if ahead is None:
        soon = math.ceil(AHEAD_SECONDS * rate.count / rate.seconds)
        return min(MOST_AHEAD, max(FEWEST_AHEAD, soon))
    if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 1:
        raise BadInputError(f"ahead is {ahead!r}: give how many messages may wait at once, 1 or more")
    return ahead


def check_remember(remember: float, total: int | None, rate: Rate) -> None:
    """What is forgotten before the end is not known to the call that goes on after a restart."""
    if not 0 < remember < math.inf:
        raise BadInputError("remember is the seconds in which nobody gets it twice: give more than 0")
    takes = (total or 0) * rate.seconds / rate.count
    if remember < 2 * takes:
        raise BadInputError(
            f"remember is {remember:,.0f} s, too short: sending takes {takes:,.0f} s or more; give twice that"
        )
