"""What an API said about a request that it will not do: short, printable, nothing secret."""

import re
from typing import Any, Final

import msgspec

from tidegate.upstream.wire import Response

LONGEST: Final = 200  # characters
READ: Final = 16 * 1024  # bytes: no complaint is longer

_SECRET = re.compile(r"(?=[^\s\"'/]*\d)[\w.~+=-]{24,}")  # what could be a token
_WHITE = re.compile(r"\s+")


def complaint(response: Response) -> str:
    """In its own words, or a plain "no reason given"."""
    said = _said(response.body[:READ])
    clean = "".join(char for char in _WHITE.sub(" ", said) if char.isprintable()).strip()
    clean = _SECRET.sub("…", clean)
    return (clean if len(clean) <= LONGEST else clean[: LONGEST - 1] + "…") or "no reason given"


def _said(raw: bytes) -> str:
    try:
        body: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return raw.decode(errors="replace")
    if not isinstance(body, dict):
        return str(body)
    words = [body[name] for name in ("error", "message", "msg") if isinstance(body.get(name), str)]
    return ": ".join(words)
