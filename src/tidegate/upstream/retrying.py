"""What an answer, or its absence, means for a request. Pure: the client acts on it."""

import random
from http import HTTPStatus
from typing import Final

import msgspec

from tidegate.errors import BadInputError
from tidegate.upstream.complaint import complaint
from tidegate.upstream.wire import NoResponse, Response

READS: Final = frozenset({"GET", "HEAD"})
IDEMPOTENT: Final = READS | {"PUT", "DELETE"}
PASSING: Final = frozenset({500, 502, 503, 504})  # what a server says that may work a moment later
UNREADABLE: Final = "too_large"  # of an answer that came, but is not read
MOST_DOUBLINGS: Final = 60


class RetryPolicy(msgspec.Struct, frozen=True):
    """Full jitter: a pause anywhere between 0 and a bound that doubles with each attempt. Seconds.

    A 429 surely did nothing: it is not counted as an attempt, but there are at most `refusals` of them.
    `patience` is for all retries of one request together, from its first attempt; waiting for the first
    is not counted.
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


def may_have_happened(outcome: Response | NoResponse) -> bool:
    return outcome.left if isinstance(outcome, NoResponse) else outcome.status in PASSING


def reason_of(outcome: Response | NoResponse) -> str | None:
    """A word for what went wrong; None if nothing did."""
    if isinstance(outcome, NoResponse):
        return outcome.reason
    if outcome.status == HTTPStatus.TOO_MANY_REQUESTS:
        return "refused"
    return f"status_{outcome.status}" if outcome.status >= HTTPStatus.BAD_REQUEST else None


def judge(
    outcome: Response | NoResponse,
    *,
    idempotent: bool,
    tries: Tries,
    policy: RetryPolicy,
    draw: random.Random,
) -> Verdict:
    """Decide; `tries` includes this one. Never raises, whatever was answered."""
    if isinstance(outcome, Response) and outcome.status not in PASSING:
        return _answered(outcome, tries, policy)
    reason = reason_of(outcome) or ""
    if reason == UNREADABLE:
        return Garbled("its answer is too large: ask for less at once")
    if may_have_happened(outcome) and not idempotent:
        return Unknown(reason)
    if tries.attempts < policy.attempts:
        return Again(policy.delay(tries.attempts, draw), reason)
    return Unknown(reason) if tries.unsure else Away(_seen(tries, reason))


def _answered(response: Response, tries: Tries, policy: RetryPolicy) -> Verdict:
    if response.status < HTTPStatus.BAD_REQUEST:
        return Good()
    if response.status != HTTPStatus.TOO_MANY_REQUESTS:
        return Refused(response.status, complaint(response))
    return Again(0.0, "refused") if tries.refusals <= policy.refusals else Away(_seen(tries, "refused"))


def _seen(tries: Tries, reason: str) -> str:
    refusals = f" and {tries.refusals} refusals (429)" if tries.refusals else ""
    return f"given up after {tries.attempts} attempts{refusals}, the last: {reason}"
