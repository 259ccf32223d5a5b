"""What an API said about a request that it will not do: short, printable, nothing secret."""

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tidegate.upstream.wire import Response

LONGEST: Final = 200  # characters
READ: Final = 16 * 1024  # bytes: no complaint is longer
WORTH: Final = 5 * LONGEST  # characters that are looked at

_LONG = re.compile(r"[\w.~+=-]{24,}")
_DIGIT = re.compile(r"\d")
_WHITE = re.compile(r"\s+")


def as_it_is(text: str) -> str:
    return text


def complaint(response: Response, hide: Callable[[str], str] = as_it_is) -> str:
    """In its own words, or a plain "no reason given". `hide` takes out what the wire knows to be secret."""
    said = hide(_WHITE.sub(" ", _said(response.body[:READ])))[:WORTH]
    clean = "".join(char for char in said if char.isprintable()).strip()
    clean = _LONG.sub(_without_tokens, clean)
    return (clean if len(clean) <= LONGEST else clean[: LONGEST - 1] + "…") or "no reason given"


def _without_tokens(word: re.Match[str]) -> str:
    """A long word with a digit in it could be one."""
    return "…" if _DIGIT.search(word[0]) else word[0]


def _said(raw: bytes) -> str:
    try:
        body: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return raw.decode(errors="replace")
    if not isinstance(body, dict):
        return str(body)
    words = [body[name] for name in ("error", "message", "msg") if isinstance(body.get(name), str)]
    return ": ".join(words)
