"""Failures in logs and records: described in one bounded line with their place, never with a token."""

import asyncio
import logging
import traceback
from typing import Any, Final

import msgspec

from tidegate.call_stack import NOT_KNOWN, is_own_file, short_path, task_frames
from tidegate.scrubber import scrub_secrets

_LONGEST: Final = 300  # characters
FIRST_PAUSE: Final = 1.0  # seconds
LONGEST_PAUSE: Final = 30.0  # seconds
MOST_DOUBLINGS: Final = 10


def describe_error(error: BaseException) -> str:
    """Its kind, its text and the innermost place in a file that is not a library's."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if is_own_file(frame.filename)] or list(frames)
    text = scrub(f"{type(error).__name__}: {_text_of(error)}")
    return f"{text} ({short_path(ours[-1].filename)}:{ours[-1].lineno})" if ours else text


def traceback_text(error: BaseException) -> str:
    """Where it came from, for whoever mends it. The address of a call may hold a token; this does not."""
    place = error.__traceback__
    while place is not None and not is_own_file(place.tb_frame.f_code.co_filename):
        place = place.tb_next  # the way there leads through a library's middlewares: it is always the same
    lines = traceback.format_exception(type(error), error, place or error.__traceback__)
    return scrub_secrets(_plain("".join(lines).rstrip()))


def waiting_place(task: asyncio.Task[Any]) -> str:
    """Where a task that waits has come to, in the innermost file that is not a library's."""
    ours = [frame for frame in task_frames(task) if is_own_file(frame.f_code.co_filename)]
    if not ours:
        return NOT_KNOWN
    code = ours[-1].f_code
    return f"in {code.co_name} ({short_path(code.co_filename)}:{ours[-1].f_lineno})"


def scrub(text: str) -> str:
    """One line of bounded length, and no secret in it."""
    return scrub_secrets(" ".join(_plain(text).split()))[:_LONGEST]


def _plain(text: str) -> str:
    """No store and no log takes half a character."""
    return text.encode(errors="backslashreplace").decode()


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (whatever its author did)
        return "its text cannot be had"


def pause_after(failures: int) -> float:
    """Seconds to pause after so many failures in a row: doubled each time, up to a bound."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, MOST_DOUBLINGS))


class _FailureSpell(msgspec.Struct):
    kind: tuple[type[Exception], int | None]
    failures: int


class FailureLog:
    """The failures of one component. A spell of one failure is logged when it begins and when it ends."""

    def __init__(self, name: str, log: logging.Logger) -> None:
        self._name = name
        self._log = log
        self._spells: dict[str, _FailureSpell] = {}  # by activity: a few fixed texts, never a key

    def note(self, error: Exception, *, doing: str) -> float:
        """Return the seconds to pause before the next try; longer each time."""
        kind = (type(error), getattr(error, "status", None))
        spell = self._spells.setdefault(doing, _FailureSpell(kind, 0))
        if spell.failures == 0 or spell.kind != kind:
            self._log.warning(
                "%s cannot %s, and goes on trying: %s", self._name, doing, describe_error(error)
            )
        spell.kind, spell.failures = kind, spell.failures + 1
        return max(pause_after(spell.failures), getattr(error, "retry_after", None) or 0.0)

    def over(self, doing: str) -> None:
        """It has worked: end the spell, if there is one."""
        if self._spells.pop(doing, None) is not None:
            self._log.warning("%s can %s again", self._name, doing)
