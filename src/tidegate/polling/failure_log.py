"""Logs a repeated failure once when it begins and once when it ends, and says how long to pause."""

import logging
from typing import Final

import msgspec

from tidegate.failure import describe_error

log = logging.getLogger("tidegate.polling")

FIRST_PAUSE: Final = 1.0  # seconds
LONGEST_PAUSE: Final = 30.0  # seconds
MOST_DOUBLINGS: Final = 10


class _FailureSpell(msgspec.Struct):
    kind: tuple[type[Exception], int | None]
    failures: int


class FailureLog:
    """The failures of one component. A spell of one failure is logged when it begins and when it ends."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spells: dict[str, _FailureSpell] = {}  # by activity: a few fixed texts, never a key

    def note(self, error: Exception, *, doing: str) -> float:
        """Return the seconds to pause before the next try; longer each time."""
        kind = (type(error), getattr(error, "status", None))
        spell = self._spells.setdefault(doing, _FailureSpell(kind, 0))
        if spell.failures == 0 or spell.kind != kind:
            log.warning("%s cannot %s, and goes on trying: %s", self._name, doing, describe_error(error))
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(spell.failures, MOST_DOUBLINGS))
        spell.kind, spell.failures = kind, spell.failures + 1
        return max(pause, getattr(error, "retry_after", None) or 0.0)

    def over(self, doing: str) -> None:
        """It has worked: end the spell, if there is one."""
        if self._spells.pop(doing, None) is not None:
            log.warning("%s can %s again", self._name, doing)
