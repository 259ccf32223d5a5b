"""How pages write numbers, times and states: filters of the templates. Pure."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from markupsafe import Markup, escape

NOTHING: Final = "\u2013"  # a dash
SECONDS: Final = re.compile(r"\b(\d+(?:\.\d+)?) s\b")
MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0  # seconds

# The colour of a state, and of the label that shows it.
TONES: Final = {
    "queued": "calm",
    "retry": "warn",
    "sending": "busy",
    "delivered": "good",
    "done": "good",
    "received": "good",
    "finished": "good",
    "active": "good",
    "dead": "bad",
    "failed": "bad",
    "parked": "warn",
    "paused": "warn",
    "expired": "dim",
    "cancelled": "dim",
    "replaced": "dim",
    "running": "busy",
    "delivering": "busy",
    "stopped": "warn",
}


# Why a bot cannot send, by the word that stores and logs have for it.
OBSTACLES: Final = {
    "unauthorized": "Telegram refuses its token",
    "connect": "Telegram cannot be reached",
    "no connection in time": "Telegram cannot be reached",
    "connection": "Telegram cannot be reached",
    "dns": "the name of the Bot API server is not found",
    "tls": "the Bot API server has no valid certificate",
    "address": "the address of the Bot API server is not valid",
    "disconnected": "Telegram cuts connections off",
    "not_http": "what answers is no Bot API server",
    "server_error": "Telegram answers every call with an error of its own",
}


def number(value: float | None) -> str:
    """`12,345`, or `0.5`: at most one decimal."""
    if value is None:
        return NOTHING
    if float(value).is_integer() or abs(value) >= 100:  # noqa: PLR2004
        return f"{round(value):,}"
    return f"{value:,.1f}"


def duration(seconds: float | None) -> str:
    """`40 ms`, `0.4 s`, `12 s`, `3 min`, `2 h 5 min`, `4 d 2 h`."""
    if seconds is None:
        return NOTHING
    if 0 < seconds < 0.1:  # noqa: PLR2004
        return f"{max(1, round(1000 * seconds))} ms"
    if seconds < 10:  # noqa: PLR2004
        return f"{seconds:.1f} s".replace(".0 s", " s")
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    if seconds < HOUR:
        return f"{seconds / MINUTE:.0f} min"
    large, small, names = (HOUR, MINUTE, ("h", "min")) if seconds < DAY else (DAY, HOUR, ("d", "h"))
    whole, rest = divmod(seconds, large)
    second = int(rest // small)
    return f"{whole:.0f} {names[0]}" + (f" {second} {names[1]}" if second else "")


def spans(text: str) -> str:
    """Write the seconds in a sentence as people say them: `in 25932.2 s` becomes `in 7 h 12 min`."""
    return SECONDS.sub(lambda found: duration(float(found[1])), text)


def clock_time(at: float | None, style: str = "moment") -> Markup:
    """A moment, which the browser shows in the zone of the viewer; without scripts it is UTC.

    `style`: moment (date and time), time (of day), ago ("3 min ago", or "in 3 min"), due ("in 3 min", and
    "by now" when that has passed: not every page is live).
    """
    if at is None:
        return escape(NOTHING)
    try:
        moment = datetime.fromtimestamp(at, UTC)
    except (OverflowError, OSError, ValueError):
        return escape(NOTHING)
    shown = moment.strftime("%H:%M:%S UTC" if style == "time" else "%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{}" data-style="{}">{}</time>').format(
        moment.isoformat(timespec="milliseconds"), style, shown
    )


def badge(state: object) -> Markup:
    """A state as a coloured label: its word is always there, so that nobody needs the colour."""
    word = str(getattr(state, "value", state))
    return Markup('<span class="badge {}">{}</span>').format(TONES.get(word, "calm"), word)


def obstacle(word: str) -> str:
    """`Telegram refuses its token (unauthorized)`: the word is what logs and metrics are searched for."""
    return f"{OBSTACLES[word]} ({word})" if word in OBSTACLES else word


def rate(value: Any) -> str:  # noqa: ANN401  (a Rate, or its text)
    """`30 a second`, `20 a minute`, `3 in 5 s`."""
    text = str(value)
    count, slash, seconds = text.partition("/")
    if not slash:
        return text
    unit = {1.0: "a second", MINUTE: "a minute"}.get(float(seconds)) or f"in {duration(float(seconds))}"
    return f"{number(float(count))} {unit}"


def plural(count: float, one: str, many: str | None = None) -> str:
    """`1 message`, `2 messages`."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def pretty(value: object) -> str:
    """JSON to read."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def lines(text: object) -> Markup:
    """A text with its line breaks."""
    return Markup("<br>").join(escape(line) for line in str(text).splitlines())


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "number": number,
    "duration": duration,
    "spans": spans,
    "when": clock_time,
    "badge": badge,
    "obstacle": obstacle,
    "rate": rate,
    "plural": plural,
    "pretty": pretty,
    "lines": lines,
}
