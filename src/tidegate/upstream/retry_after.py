"""For how long an answer closes the API, to everyone who uses the same token."""

import math
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from tidegate.upstream.wire import NoResponse, Response

LONGEST: Final = 3600.0  # seconds; whoever says more is asked again by then
LONGEST_TEXT: Final = 64  # of a header worth reading


def closing(outcome: Response | NoResponse, *, lockout: float, now: float) -> float | None:
    """Seconds; None if it closes nothing. `now`: since the epoch. `lockout`: if a 429 does not say."""
    if isinstance(outcome, NoResponse):
        return None
    if outcome.status == HTTPStatus.TOO_MANY_REQUESTS:
        told = retry_after(outcome, now)
        return lockout if told is None else told
    # It may name its return; without that each request backs off by itself.
    return retry_after(outcome, now) if outcome.status == HTTPStatus.SERVICE_UNAVAILABLE else None


def retry_after(response: Response, now: float) -> float | None:
    """As RFC 9110 has it: seconds, or a date. None if it is missing or cannot be read."""
    text = response.headers.get("retry-after", "").strip()[:LONGEST_TEXT]
    seconds = _seconds(text) if text else None
    if seconds is None and text:
        # The server's own clock, where it tells: ours may be wrong, and a date is of its clock.
        at, today = _date(text), _date(response.headers.get("date", ""))
        seconds = None if at is None else at - (now if today is None else today)
    return None if seconds is None else min(max(seconds, 0.0), LONGEST)


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
