"""The retry decision: what an answer, or its absence, means for a request. Pure."""

import math
import random
import re
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

import msgspec

from tidegate.errors import BadInputError
from tidegate.upstream.transport import OK_STATUSES, NoResponse, UpstreamOutcome, UpstreamResponse

READS: Final = frozenset({"GET", "HEAD"})
IDEMPOTENT: Final = READS | {"PUT", "DELETE"}
PERMANENT_SERVER_ERRORS: Final = frozenset({501, 505})  # retrying does not help
TRANSIENT_CLIENT_ERRORS: Final = frozenset({408, 425})  # 4xx, but they pass by themselves
GONE_STATUSES: Final = frozenset({404, 410})
REDIRECT_TEXT: Final = (
    "it redirects to another address, which is not followed: give the API's own address, perhaps with"
    " https://"
)
UNREADABLE: Final = "too_large"  # reason of an answer that came but is not read
MOST_DOUBLINGS: Final = 60
LONGEST_RETRY_AFTER: Final = 3600.0  # seconds; an API that says more is asked again by then
LONGEST_RETRY_AFTER_TEXT: Final = 64  # characters of the header that are read
LONGEST_COMPLAINT: Final = 200  # characters
COMPLAINT_BYTES_READ: Final = 16 * 1024
COMPLAINT_CHARACTERS_READ: Final = 5 * LONGEST_COMPLAINT

_LONG_WORD = re.compile(r"[\w.~+=-]{24,}")
_DIGIT = re.compile(r"\d")
_WHITESPACE = re.compile(r"\s+")


class UpstreamRetryPolicy(msgspec.Struct, frozen=True):
    """Full jitter: a pause anywhere between 0 and a bound that doubles with each attempt. Seconds.

    A 429 surely did nothing: it does not count as an attempt, but at most `refusals` of them are retried. No
    retry begins later than `patience` after the first attempt. The wait for a turn is not cut short.
    """

    attempts: int = 5
    base_delay: float = 0.5
    max_delay: float = 30.0
    refusals: int = 10
    patience: float = 300.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or min(self.base_delay, self.max_delay, self.refusals, self.patience) < 0:
            raise BadInputError("a retry policy needs at least 1 attempt, and no number below 0")

    def delay(self, attempt: int, draw: random.Random) -> float:
        doublings = min(max(attempt - 1, 0), MOST_DOUBLINGS)
        return draw.uniform(0.0, min(self.max_delay, self.base_delay * 2.0**doublings))


class UpstreamAttempts(msgspec.Struct, frozen=True):
    """The history of one request. `unsure`: an attempt without an answer may have done its work."""

    attempts: int = 0
    refusals: int = 0  # 429s, which are not in `attempts`
    unsure: bool = False

    def after(self, outcome: UpstreamOutcome, method: str) -> "UpstreamAttempts":
        if isinstance(outcome, UpstreamResponse) and outcome.is_refused:
            return msgspec.structs.replace(self, refusals=self.refusals + 1)
        unsure = self.unsure or (method not in READS and may_have_happened(outcome))
        return UpstreamAttempts(self.attempts + 1, self.refusals, unsure)


class UpstreamOk(msgspec.Struct, frozen=True):
    """The answer is good: return it."""


class UpstreamRetry(msgspec.Struct, frozen=True):
    """Send again after `delay` seconds, when the limiter allows it."""

    delay: float
    reason: str


class UpstreamRefused(msgspec.Struct, frozen=True):
    """The API will not do it."""

    status: int
    text: str


class UpstreamAway(msgspec.Struct, frozen=True):
    """Given up: no attempt was answered, or all of them were refused. It surely changed nothing."""

    reason: str


class UpstreamUnknown(msgspec.Struct, frozen=True):
    """It may have happened, so it must not be repeated."""

    reason: str


class UpstreamGarbled(msgspec.Struct, frozen=True):
    """The answer cannot be read."""

    reason: str


UpstreamFailure = UpstreamRefused | UpstreamAway | UpstreamUnknown | UpstreamGarbled
UpstreamVerdict = UpstreamOk | UpstreamRetry | UpstreamFailure


def is_transient(status: int) -> bool:
    """True if the same request may work a moment later. Proxies use numbers of their own, such as 524."""
    is_server_error = status >= HTTPStatus.INTERNAL_SERVER_ERROR and status not in PERMANENT_SERVER_ERRORS
    return is_server_error or status in TRANSIENT_CLIENT_ERRORS


def may_have_happened(outcome: UpstreamOutcome) -> bool:
    return outcome.left if isinstance(outcome, NoResponse) else is_transient(outcome.status)


def failure_word(outcome: UpstreamOutcome) -> str | None:
    """Return a word for what went wrong; None if nothing did."""
    if isinstance(outcome, NoResponse):
        return outcome.reason
    if outcome.is_refused:
        return "refused"
    return None if outcome.status in OK_STATUSES else f"status_{outcome.status}"


def judge(
    outcome: UpstreamOutcome,
    *,
    method: str,
    idempotent: bool,
    tries: UpstreamAttempts,
    policy: UpstreamRetryPolicy,
    draw: random.Random,
    hide: Callable[[str], str] = str,
) -> UpstreamVerdict:
    """Decide what to do next; `tries` includes this attempt. Never raises, whatever was answered."""
    reason = failure_word(outcome) or ""
    if isinstance(outcome, UpstreamResponse) and outcome.is_refused:
        # The limiter waits as long as the API said, which may be no time at all: hence a pause here too.
        again = UpstreamRetry(policy.delay(tries.refusals, draw), reason)
        return again if tries.refusals <= policy.refusals else _give_up(tries, reason)
    if isinstance(outcome, UpstreamResponse) and not is_transient(outcome.status):
        return _judge_answer(outcome, method, tries, hide)
    if reason == UNREADABLE:
        return UpstreamGarbled("its answer is too large: ask for less at once")
    if may_have_happened(outcome) and not idempotent:
        return UpstreamUnknown(reason)
    again = UpstreamRetry(policy.delay(tries.attempts, draw), reason)
    return again if tries.attempts < policy.attempts else _give_up(tries, reason)


def _give_up(tries: UpstreamAttempts, reason: str) -> UpstreamVerdict:
    if tries.unsure:
        return UpstreamUnknown(reason)
    refusals = f" and {tries.refusals} refusals (429)" if tries.refusals else ""
    return UpstreamAway(f"given up after {tries.attempts} attempts{refusals}, the last: {reason}")


def _judge_answer(
    response: UpstreamResponse, method: str, tries: UpstreamAttempts, hide: Callable[[str], str]
) -> UpstreamVerdict:
    status = response.status
    if status in OK_STATUSES:
        return UpstreamOk()
    if status < OK_STATUSES.start:
        return UpstreamGarbled(f"it answered {status}, which is no final answer: is this the API's address?")
    text = complaint(response, hide) if status >= HTTPStatus.BAD_REQUEST else REDIRECT_TEXT
    if not tries.unsure:
        return UpstreamRefused(status, text)
    if method == "DELETE" and status in GONE_STATUSES:  # it is gone, whichever attempt deleted it
        return UpstreamRefused(status, f"{text} (an earlier attempt without an answer may have deleted it)")
    return UpstreamUnknown(f"{status}, {text}, after an attempt without an answer")


def lockout_of(outcome: UpstreamOutcome, *, lockout: float, now: float) -> float | None:
    """Return for how many seconds this outcome closes the API to everyone with the same token; None: not.

    `now` is in seconds since the epoch. `lockout` is used if a 429 does not say how long.
    """
    if isinstance(outcome, NoResponse):
        return None
    if outcome.is_refused:
        seconds = retry_after(outcome, now)
        return lockout if seconds is None else seconds
    # A 503 may say when the API returns; without that each request backs off by itself.
    return retry_after(outcome, now) if outcome.status == HTTPStatus.SERVICE_UNAVAILABLE else None


def retry_after(response: UpstreamResponse, now: float) -> float | None:
    """Read the header as RFC 9110 has it: seconds, or a date. None if it is missing or cannot be read."""
    text = response.headers.get("retry-after", "").strip()[:LONGEST_RETRY_AFTER_TEXT]
    seconds = _seconds(text)
    if seconds is None:
        # A date is by the server's clock: compared with the server's own time if it gives one.
        at, today = _date(text), _date(response.headers.get("date", ""))
        seconds = None if at is None else at - (now if today is None else today)
    return None if seconds is None else min(max(seconds, 0.0), LONGEST_RETRY_AFTER)


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return None if math.isnan(seconds) else seconds


def _date(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def complaint(response: UpstreamResponse, hide: Callable[[str], str] = str) -> str:
    """Return the API's own words, short and printable, or "no reason given". `hide` removes known secrets."""
    text = hide(_WHITESPACE.sub(" ", _complaint_text(response.body[:COMPLAINT_BYTES_READ])))
    printable = "".join(char for char in text[:COMPLAINT_CHARACTERS_READ] if char.isprintable()).strip()
    # A long word with a digit in it could be a token.
    clean = _LONG_WORD.sub(lambda word: "…" if _DIGIT.search(word[0]) else word[0], printable)
    if len(clean) > LONGEST_COMPLAINT:
        clean = clean[: LONGEST_COMPLAINT - 1] + "…"
    return clean or "no reason given"


def _complaint_text(raw: bytes) -> str:
    try:
        body: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return raw.decode(errors="replace")
    if not isinstance(body, dict):
        return str(body)
    words = [body[name] for name in ("error", "message", "msg") if isinstance(body.get(name), str)]
    return ": ".join(words)
