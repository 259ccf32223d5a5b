"""What is said when something fails: once a spell, in one line, without a token."""

import logging
import re
import traceback
from typing import Final

import msgspec

log = logging.getLogger("tidegate.polling")

FIRST: Final = 1.0  # seconds to leave alone what has failed
LONGEST: Final = 30.0  # seconds
MOST_DOUBLINGS: Final = 10
_TOKEN: Final = re.compile(r"(\d{1,15}):[\w-]{20,}")
_LONGEST_TEXT: Final = 300  # characters


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


def reason_of(error: BaseException) -> str:
    """Its kind, its text and where it was raised."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  (whatever its author did)
        text = f"{type(error).__name__}: its text cannot be had"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({'/'.join(frames[-1].filename.split('/')[-2:])}:{frames[-1].lineno})" if frames else ""
    plain = text.encode(errors="backslashreplace").decode()  # no log takes half a character
    return _TOKEN.sub(r"\1:…", " ".join(plain.split()))[:_LONGEST_TEXT] + place
