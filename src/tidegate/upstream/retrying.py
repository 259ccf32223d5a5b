"""What an answer, or its absence, means for a request. Pure: the client acts on it."""

import random
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import msgspec

from tidegate.errors import BadInputError
from tidegate.upstream.complaint import as_it_is, complaint
from tidegate.upstream.exchange import OK
from tidegate.upstream.wire import NoResponse, Response

READS: Final = frozenset({"GET", "HEAD"})
IDEMPOTENT: Final = READS | {"PUT", "DELETE"}
NEVER: Final = frozenset({501, 505})  # what a server cannot do, it cannot do later either
LATER: Final = frozenset({408, 425})  # errors of the client, by their numbers, that pass by themselves
GONE: Final = frozenset({404, 410})
MOVED: Final = (
    "it points to another address, which is not followed: give the API's own, perhaps with https://"
)
UNREADABLE: Final = "too_large"  # of an answer that came, but is not read
MOST_DOUBLINGS: Final = 60


class RetryPolicy(msgspec.Struct, frozen=True):
    """Full jitter: a pause anywhere between 0 and a bound that doubles with each attempt. Seconds.

    A 429 surely did nothing: it is not counted as an attempt, but there are at most `refusals` of them.
    `patience`: no retry is begun so long after the first attempt. A retry waits for its turn behind those who
    came before it, and that wait, as the one for the first attempt, is not cut short.
    """

    attempts: int = 5
    base_delay: float = 0.5
    max_delay: float = 30.0
    refusals: int = 10
    patience: float = 300.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.base_delay, self.max_delay, self.refusals, self.patience) < 0:
            raise BadInputError("a retry policy needs 1 attempt at least, and no number below 0")

    def delay(self, attempt: int, draw: random.Random) -> float:
        doublings = min(max(attempt - 1, 0), MOST_DOUBLINGS)
        return draw.uniform(0.0, min(self.max_delay, self.base_delay * 2.0**doublings))


class Tries(msgspec.Struct, frozen=True):
    """What this request went through: attempts that count, 429s, and whether one may have done its work."""

    attempts: int = 0
    refusals: int = 0
    unsure: bool = False

    def after(self, outcome: Response | NoResponse, method: str) -> "Tries":
        if isinstance(outcome, Response) and outcome.status == HTTPStatus.TOO_MANY_REQUESTS:
            return msgspec.structs.replace(self, refusals=self.refusals + 1)
        unsure = self.unsure or (method not in READS and may_have_happened(outcome))
        return Tries(self.attempts + 1, self.refusals, unsure)


class Good(msgspec.Struct, frozen=True):
    """An answer to return."""


class Again(msgspec.Struct, frozen=True):
    """To be asked again after `delay` seconds, and when the limiter lets it."""

    delay: float
    reason: str


class Refused(msgspec.Struct, frozen=True):
    status: int
    text: str


class Away(msgspec.Struct, frozen=True):
    """Tried often enough."""

    reason: str


class Unknown(msgspec.Struct, frozen=True):
    """It may have happened, so it must not be repeated."""

    reason: str


class Garbled(msgspec.Struct, frozen=True):
    reason: str


Verdict = Good | Again | Refused | Away | Unknown | Garbled


def passes(status: int) -> bool:
    """What a server says that may work a moment later. Proxies have numbers of their own, such as 524."""
    return status in LATER or (status >= HTTPStatus.INTERNAL_SERVER_ERROR and status not in NEVER)


def may_have_happened(outcome: Response | NoResponse) -> bool:
    return outcome.left if isinstance(outcome, NoResponse) else passes(outcome.status)


def reason_of(outcome: Response | NoResponse) -> str | None:
    """A word for what went wrong; None if nothing did."""
    if isinstance(outcome, NoResponse):
        return outcome.reason
    if outcome.status == HTTPStatus.TOO_MANY_REQUESTS:
        return "refused"
    return None if outcome.status in OK else f"status_{outcome.status}"


def judge(
    outcome: Response | NoResponse,
    *,
    method: str,
    idempotent: bool,
    tries: Tries,
    policy: RetryPolicy,
    draw: random.Random,
    hide: Callable[[str], str] = as_it_is,
) -> Verdict:
    """Decide; `tries` includes this one. Never raises, whatever was answered."""
    reason = reason_of(outcome) or ""
    if isinstance(outcome, Response) and outcome.status == HTTPStatus.TOO_MANY_REQUESTS:
        # The limiter waits as long as it was told to; that may be no time at all.
        return _again(tries.refusals <= policy.refusals, policy.delay(tries.refusals, draw), reason, tries)
    if isinstance(outcome, Response) and not passes(outcome.status):
        return _answered(outcome, method, tries, hide)
    if reason == UNREADABLE:
        return Garbled("its answer is too large: ask for less at once")
    if may_have_happened(outcome) and not idempotent:
        return Unknown(reason)
    return _again(tries.attempts < policy.attempts, policy.delay(tries.attempts, draw), reason, tries)


def _again(more: bool, delay: float, reason: str, tries: Tries) -> Verdict:  # noqa: FBT001  (private)
    if more:
        return Again(delay, reason)
    return Unknown(reason) if tries.unsure else Away(_seen(tries, reason))


def _answered(response: Response, method: str, tries: Tries, hide: Callable[[str], str]) -> Verdict:
    status = response.status
    if status in OK:
        return Good()
    if status < OK.start:
        return Garbled(f"it answered {status}, which is no answer: is this the address of the API?")
    text = complaint(response, hide) if status >= HTTPStatus.BAD_REQUEST else MOVED
    if not tries.unsure:
        return Refused(status, text)
    if method == "DELETE" and status in GONE:  # it is not there: whoever deleted it
        return Refused(status, f"{text} (an attempt before, without an answer, may have deleted it)")
    return Unknown(f"{status}, {text}, after an attempt without an answer")


def _seen(tries: Tries, reason: str) -> str:
    refusals = f" and {tries.refusals} refusals (429)" if tries.refusals else ""
    return f"given up after {tries.attempts} attempts{refusals}, the last: {reason}"
