"""What was refused: a line in the log for each, and two a second at most for those that are alike."""

import logging
from functools import partial
from typing import Final

from tidegate.clock import Clock
from tidegate.inbound.http.answers import Answer
from tidegate.inbound.http.request import Request
from tidegate.reports import discreet

log = logging.getLogger("tidegate.inbound")

QUIET: Final = 1.0  # seconds after a line in which others like it are only counted
KINDS: Final = 200  # that are told apart at a time
_LONGEST: Final = 100  # characters of what a client chose

Kind = tuple[int, str, str]
_REST: Final[Kind] = (0, "for various reasons", "")


class Refusals:
    """Whoever knocks a million times fills neither the disk nor the memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lately: dict[Kind, int] = {}  # and how many were not told; gone when it is quiet

    def tell(self, request: Request, answer: Answer) -> None:
        kind = _kind(request, answer)
        if kind not in self._lately and len(self._lately) >= KINDS:
            kind = _REST
        if kind in self._lately:
            self._lately[kind] += 1
            return
        self._lately[kind] = 0
        self._clock.call_later(QUIET, partial(self._sum_up, kind))
        what = f"{_clean(request.method)} {_clean(request.path)}"
        why = discreet(answer.detail or answer.error)
        log.warning("%s from %s: %d, %s", what, _clean(request.client), answer.status, why)

    def _sum_up(self, kind: Kind) -> None:
        more, (status, reason, path) = self._lately.pop(kind), kind
        if more:
            log.warning("%d more%s: %d, %s", more, f" at {path}" if path else "", status, reason)


def _kind(request: Request, answer: Answer) -> Kind:
    # Paths that do not exist are without number: those are told apart by the reason alone.
    known = answer.status not in {404, 405}
    return (answer.status, answer.error, _clean(request.path) if known else "")


def _clean(text: str) -> str:
    """It may hold anything, also what would look like another line of the log."""
    return discreet("".join(one if one.isprintable() else "?" for one in text))[:_LONGEST]
