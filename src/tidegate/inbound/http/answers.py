"""What is answered: a status and a little JSON."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

_JSON: Final = (b"content-type", b"application/json")


class Answer(msgspec.Struct, frozen=True):
    """`error` is told to the client and to the log; `detail` to the log alone."""

    status: int
    error: str = ""
    detail: str = ""
    retry_after: int = 0  # seconds
    allow: str = ""  # methods
    problems: Mapping[str, str] = {}

    def body(self) -> bytes:
        if not self.error:
            return b'{"ok":true}'
        content: dict[str, Any] = {"ok": False, "error": self.error}
        if self.problems:
            content["problems"] = self.problems
        return msgspec.json.encode(content)

    def headers(self, length: int, *, closes: bool) -> list[tuple[bytes, bytes]]:
        headers = [_JSON, (b"content-length", b"%d" % length)]
        if self.retry_after:
            headers.append((b"retry-after", b"%d" % self.retry_after))
        if self.allow:
            headers.append((b"allow", self.allow.encode()))
        if closes:
            headers.append((b"connection", b"close"))
        return headers


OK: Final = Answer(200)
NOT_FOUND: Final = Answer(404, "there is nothing here")


def not_now(error: Exception) -> Answer:
    """Whoever sent it sends it again. Why is not for everybody to know."""
    return Answer(503, "it cannot be taken now: send it again", detail=str(error), retry_after=5)


def not_by(allow: str) -> Answer:
    return Answer(405, f"this takes {allow} only", allow=allow)
