"""Times as NocoDB writes and reads them: whole seconds, in UTC unless a zone is named."""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d)?)(?:\.\d+)?)? ?(?:(Z)|([+-])(\d\d):?(\d\d))?", re.ASCII
)


def as_text(at: float) -> str:
    """`2026-01-05 09:00:00+00:00`: what is below a second is cut."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%d %H:%M:%S+00:00")


def is_date(text: str) -> bool:
    found = _TIME.fullmatch(text.strip())
    return found is not None and found[2] is None


def instant(text: str, zone: ZoneInfo | None = None) -> float | None:
    """Whole seconds since the epoch; None if it is no time. Without an offset it is one of `zone`, or UTC."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}")
        zoned = moment.replace(tzinfo=_offset(found) or zone or UTC)
        return zoned.astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def _offset(found: re.Match[str]) -> tzinfo | None:
    if found[3]:
        return UTC
    if not found[4]:
        return None
    offset = timedelta(hours=int(found[5]), minutes=int(found[6]))
    return timezone(offset if found[4] == "+" else -offset)
