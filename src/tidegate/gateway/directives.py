"""The header `X-Tidegate`, by which a client says that a call is to be queued, and how."""

import functools
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from tidegate.errors import BadInputError
from tidegate.gateway.answers import bad_request
from tidegate.model import Priority
from tidegate.outbox.admission import check_priority

HEADER: Final = b"x-tidegate"
LONGEST_HEADER: Final = 1_024  # characters
FORM: Final = "write it as in X-Tidegate: queue; priority=low; dedup=order-17"
OTHERS: Final = "coalesce=KEY, delay=SECONDS, expires=SECONDS, on-unknown=park or resend, and urgent"
_FLAGS: Final = frozenset(("queue", "urgent"))
_SECONDS: Final = frozenset(("delay", "expires"))
_KEYS: Final = frozenset(("dedup", "coalesce"))
_OPTIONS: Final = {  # of a queued message, by the names of the header
    "delay": "delay",
    "expires": "expires_in",
    "dedup": "dedup_key",
    "coalesce": "coalesce_key",
    "on-unknown": "on_unknown",
}


class Directives(NamedTuple):
    """How a call is to be made. `options` are those of a queued message, as `gate.send` takes them."""

    queue: bool = False
    urgent: bool = False
    priority: Priority | None = None
    options: tuple[tuple[str, Any], ...] = ()


NONE: Final = Directives()


def directives_of(headers: Iterable[tuple[bytes, bytes]]) -> Directives:
    """Read the header of a request. Raises ApiRefusal (400) for what cannot be meant."""
    given = [value for name, value in headers if name == HEADER]
    if len(given) > 1:
        raise bad_request(f"X-Tidegate is given {len(given)} times: {FORM}")
    return parse_directives(given[0]) if given else NONE


@functools.lru_cache(maxsize=256)
def parse_directives(header: bytes) -> Directives:
    """Read a header. Raises ApiRefusal (400) for what cannot be meant: nothing is ignored in silence."""
    if len(header) > LONGEST_HEADER:
        raise bad_request(f"X-Tidegate has more than {LONGEST_HEADER:,} characters: {FORM}")
    given: dict[str, Any] = {}
    for part in _text(header).split(";"):
        name, value = _read_part(part.strip())
        if name in given:
            raise bad_request(f"X-Tidegate: {name} is given twice: {FORM}")
        given[name] = value
    queue, urgent = given.pop("queue", False), given.pop("urgent", False)
    priority = given.pop("priority", None)
    if given and not (queue or urgent):
        raise bad_request(f"X-Tidegate: {next(iter(given))} is for a call that is queued: {FORM}")
    options = tuple((_OPTIONS[name], value) for name, value in given.items())
    return Directives(queue, urgent, priority, options)


def _text(header: bytes) -> str:
    """Return a header as its client meant it: clients that can send other letters at all write UTF-8."""
    try:
        return header.decode()
    except UnicodeDecodeError:
        return header.decode("latin-1")


def _read_part(part: str) -> tuple[str, Any]:
    name, equals, value = part.partition("=")
    name, value = name.strip().lower(), value.strip()
    if not equals and name in _FLAGS:
        return name, True
    if equals and name == "priority":
        return name, _priority(value)
    if equals and name in _SECONDS:
        return name, _seconds(name, value)
    if value and name in _KEYS:
        return name, value
    if name == "on-unknown" and value in {"park", "resend"}:
        return name, value
    raise bad_request(f"X-Tidegate: {part[:50]!r} is not known: {FORM}; there are also {OTHERS}")


def _priority(value: str) -> Priority:
    try:
        return check_priority(value)
    except BadInputError as error:
        raise bad_request(f"X-Tidegate: {error}") from None


def _seconds(name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 366 * 86_400:  # also refuses what is not a number
        raise bad_request(f"X-Tidegate: {name}={value[:50]} is not a number of seconds")
    return seconds
