"""What is said when something fails: once a spell, in one line, without a token."""

import logging
from typing import Final

import msgspec

from tidegate.reports import reason_of

log = logging.getLogger("tidegate.polling")

FIRST: Final = 1.0  # seconds to leave alone what has failed
LONGEST: Final = 30.0  # seconds
MOST_DOUBLINGS: Final = 10


class _Spell(msgspec.Struct):
    kind: tuple[type[Exception], int | None]
    failures: int


class Troubles:
    """Of one poller: a spell of the same trouble is told when it begins and when it ends."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spells: dict[str, _Spell] = {}  # by what cannot be done: few words, never a key

    def note(self, error: Exception, *, doing: str) -> float:
        """It has failed: how long to leave it alone, in seconds; longer each time."""
        kind = (type(error), getattr(error, "status", None))
        spell = self._spells.setdefault(doing, _Spell(kind, 0))
        if spell.failures == 0 or spell.kind != kind:
            log.warning("%s cannot %s, and goes on trying: %s", self._name, doing, reason_of(error))
        wait = min(LONGEST, FIRST * 2.0 ** min(spell.failures, MOST_DOUBLINGS))
        spell.kind, spell.failures = kind, spell.failures + 1
        return max(wait, getattr(error, "retry_after", None) or 0.0)

    def over(self, doing: str) -> None:
        """It has worked."""
        if self._spells.pop(doing, None) is not None:
            log.warning("%s can %s again", self._name, doing)
