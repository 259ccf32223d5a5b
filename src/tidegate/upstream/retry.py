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
from tidegate.upstream.request_log import OK_STATUSES
from tidegate.upstream.transport import NoResponse, UpstreamResponse

LONGEST_RETRY_AFTER: Final = 3600.0  # seconds; whoever says more is asked again by then
LONGEST_RETRY_AFTER_TEXT: Final = 64  # of a header worth reading


def lockout_of(outcome: UpstreamResponse | NoResponse, *, lockout: float, now: float) -> float | None:
    """Seconds; None if it closes nothing. `now`: since the epoch. `lockout`: if a 429 does not say."""
    if isinstance(outcome, NoResponse):
        return None
    if outcome.status == HTTPStatus.TOO_MANY_REQUESTS:
        told = retry_after(outcome, now)
        return lockout if told is None else told
    # It may name its return; without that each request backs off by itself.
    return retry_after(outcome, now) if outcome.status == HTTPStatus.SERVICE_UNAVAILABLE else None


def retry_after(response: UpstreamResponse, now: float) -> float | None:
    """As RFC 9110 has it: seconds, or a date. None if it is missing or cannot be read."""
    text = response.headers.get("retry-after", "").strip()[:LONGEST_RETRY_AFTER_TEXT]
    seconds = _seconds(text) if text else None
    if seconds is None and text:
        # The server's own clock, where it tells: ours may be wrong, and a date is of its clock.
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


LONGEST_COMPLAINT: Final = 200  # characters
COMPLAINT_BYTES_READ: Final = 16 * 1024  # bytes: no complaint is longer
COMPLAINT_CHARACTERS_READ: Final = 5 * LONGEST_COMPLAINT  # characters that are looked at

_LONG = re.compile(r"[\w.~+=-]{24,}")
_DIGIT = re.compile(r"\d")
_WHITE = re.compile(r"\s+")


def unredacted(text: str) -> str:
    return text


def complaint(response: UpstreamResponse, hide: Callable[[str], str] = unredacted) -> str:
    """In its own words, or a plain "no reason given". `hide` takes out what the wire knows to be secret."""
    said = hide(_WHITE.sub(" ", _complaint_text(response.body[:COMPLAINT_BYTES_READ])))[
        :COMPLAINT_CHARACTERS_READ
    ]
    clean = "".join(char for char in said if char.isprintable()).strip()
    clean = _LONG.sub(_without_tokens, clean)
    return (
        clean if len(clean) <= LONGEST_COMPLAINT else clean[: LONGEST_COMPLAINT - 1] + "…"
    ) or "no reason given"


def _without_tokens(word: re.Match[str]) -> str:
    """A long word with a digit in it could be one."""
    return "…" if _DIGIT.search(word[0]) else word[0]


def _complaint_text(raw: bytes) -> str:
    try:
        body: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return raw.decode(errors="replace")
    if not isinstance(body, dict):
        return str(body)
    words = [body[name] for name in ("error", "message", "msg") if isinstance(body.get(name), str)]
    return ": ".join(words)


READS: Final = frozenset({"GET", "HEAD"})
IDEMPOTENT: Final = READS | {"PUT", "DELETE"}
PERMANENT_SERVER_ERRORS: Final = frozenset({501, 505})  # what a server cannot do, it cannot do later either
TRANSIENT_CLIENT_ERRORS: Final = frozenset(
    {408, 425}
)  # errors of the client, by their numbers, that pass by themselves
GONE_STATUSES: Final = frozenset({404, 410})
REDIRECT_TEXT: Final = (
    "it points to another address, which is not followed: give the API's own, perhaps with https://"
)
UNREADABLE: Final = "too_large"  # of an answer that came, but is not read
MOST_DOUBLINGS: Final = 60


class UpstreamRetryPolicy(msgspec.Struct, frozen=True):
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


class UpstreamAttempts(msgspec.Struct, frozen=True):
    """What this request went through: attempts that count, 429s, and whether one may have done its work."""

    attempts: int = 0
    refusals: int = 0
    unsure: bool = False

    def after(self, outcome: UpstreamResponse | NoResponse, method: str) -> "UpstreamAttempts":
        if isinstance(outcome, UpstreamResponse) and outcome.status == HTTPStatus.TOO_MANY_REQUESTS:
            return msgspec.structs.replace(self, refusals=self.refusals + 1)
        unsure = self.unsure or (method not in READS and may_have_happened(outcome))
        return UpstreamAttempts(self.attempts + 1, self.refusals, unsure)


class UpstreamOk(msgspec.Struct, frozen=True):
    """An answer to return."""


class UpstreamRetry(msgspec.Struct, frozen=True):
    """To be asked again after `delay` seconds, and when the limiter lets it."""

    delay: float
    reason: str


class UpstreamRefused(msgspec.Struct, frozen=True):
    status: int
    text: str


class UpstreamAway(msgspec.Struct, frozen=True):
    """Tried often enough."""

    reason: str


class UpstreamUnknown(msgspec.Struct, frozen=True):
    """It may have happened, so it must not be repeated."""

    reason: str


class UpstreamGarbled(msgspec.Struct, frozen=True):
    reason: str


UpstreamVerdict = (
    UpstreamOk | UpstreamRetry | UpstreamRefused | UpstreamAway | UpstreamUnknown | UpstreamGarbled
)


def is_transient(status: int) -> bool:
    """What a server says that may work a moment later. Proxies have numbers of their own, such as 524."""
    return status in TRANSIENT_CLIENT_ERRORS or (
        status >= HTTPStatus.INTERNAL_SERVER_ERROR and status not in PERMANENT_SERVER_ERRORS
    )


def may_have_happened(outcome: UpstreamResponse | NoResponse) -> bool:
    return outcome.left if isinstance(outcome, NoResponse) else is_transient(outcome.status)


def failure_word(outcome: UpstreamResponse | NoResponse) -> str | None:
    """A word for what went wrong; None if nothing did."""
    if isinstance(outcome, NoResponse):
        return outcome.reason
    if outcome.status == HTTPStatus.TOO_MANY_REQUESTS:
        return "refused"
    return None if outcome.status in OK_STATUSES else f"status_{outcome.status}"


def judge(
    outcome: UpstreamResponse | NoResponse,
    *,
    method: str,
    idempotent: bool,
    tries: UpstreamAttempts,
    policy: UpstreamRetryPolicy,
    draw: random.Random,
    hide: Callable[[str], str] = unredacted,
) -> UpstreamVerdict:
    """Decide; `tries` includes this one. Never raises, whatever was answered."""
    reason = failure_word(outcome) or ""
    if isinstance(outcome, UpstreamResponse) and outcome.status == HTTPStatus.TOO_MANY_REQUESTS:
        # The limiter waits as long as it was told to; that may be no time at all.
        return _retry_or_give_up(
            tries.refusals <= policy.refusals, policy.delay(tries.refusals, draw), reason, tries
        )
    if isinstance(outcome, UpstreamResponse) and not is_transient(outcome.status):
        return _judge_answer(outcome, method, tries, hide)
    if reason == UNREADABLE:
        return UpstreamGarbled("its answer is too large: ask for less at once")
    if may_have_happened(outcome) and not idempotent:
        return UpstreamUnknown(reason)
    return _retry_or_give_up(
        tries.attempts < policy.attempts, policy.delay(tries.attempts, draw), reason, tries
    )


def _retry_or_give_up(more: bool, delay: float, reason: str, tries: UpstreamAttempts) -> UpstreamVerdict:  # noqa: FBT001  (private)
    if more:
        return UpstreamRetry(delay, reason)
    return UpstreamUnknown(reason) if tries.unsure else UpstreamAway(_attempts_text(tries, reason))


def _judge_answer(
    response: UpstreamResponse, method: str, tries: UpstreamAttempts, hide: Callable[[str], str]
) -> UpstreamVerdict:
    status = response.status
    if status in OK_STATUSES:
        return UpstreamOk()
    if status < OK_STATUSES.start:
        return UpstreamGarbled(f"it answered {status}, which is no answer: is this the address of the API?")
    text = complaint(response, hide) if status >= HTTPStatus.BAD_REQUEST else REDIRECT_TEXT
    if not tries.unsure:
        return UpstreamRefused(status, text)
    if method == "DELETE" and status in GONE_STATUSES:  # it is not there: whoever deleted it
        return UpstreamRefused(status, f"{text} (an attempt before, without an answer, may have deleted it)")
    return UpstreamUnknown(f"{status}, {text}, after an attempt without an answer")


def _attempts_text(tries: UpstreamAttempts, reason: str) -> str:
    refusals = f" and {tries.refusals} refusals (429)" if tries.refusals else ""
    return f"given up after {tries.attempts} attempts{refusals}, the last: {reason}"
