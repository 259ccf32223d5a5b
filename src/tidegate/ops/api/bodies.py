"""Bodies of requests: read with bounds of size and time, and of the type that a route takes."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final

from tidegate.clock import Clock
from tidegate.inbound.webhook_request import BODY_TIMEOUT, BodyReader, WebhookRequest
from tidegate.ops.api.problems import (
    MALFORMED,
    TOO_LARGE,
    TOO_MANY,
    TOO_SLOW,
    UNSUPPORTED_TYPE,
    ProblemError,
    ProblemKind,
)

JSON: Final = "application/json"
NDJSON: Final = frozenset(
    ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")
)
MOST_STREAMS: Final = 4
STREAM_RETRY: Final = 2  # seconds after which another stream may be sent
CSV: Final = frozenset(("text/csv", "text/tab-separated-values"))
_REFUSALS: Final[dict[int, ProblemKind]] = {
    HTTPStatus.REQUEST_TIMEOUT: TOO_SLOW,
    HTTPStatus.SERVICE_UNAVAILABLE: TOO_MANY,
}


async def body_of(reader: BodyReader, request: WebhookRequest, limit: int) -> bytes:
    """Return a whole body. Raises ProblemError if it is compressed, too large, too slow or not all there."""
    _check_plain(request)
    body = await reader.read(request, limit)
    if isinstance(body, bytes):
        return body
    if body is None:
        raise ProblemError(MALFORMED, "the connection ended before the body did")
    if body.status == TOO_LARGE.status:
        raise ProblemError(TOO_LARGE, f"the body is too large: send {limit:,} bytes at most")
    raise ProblemError(_REFUSALS[body.status], body.error, retry_after=body.retry_after or None)


async def parts_of(request: WebhookRequest, clock: Clock) -> AsyncIterator[bytes]:
    """Yield the parts of a body as they arrive.

    Raises ProblemError if it is compressed, one takes too long, or the client has gone.
    """
    _check_plain(request)
    more = True
    while more:
        try:
            async with clock.timeout(BODY_TIMEOUT):
                message = await request.receive()
        except TimeoutError:
            raise ProblemError(TOO_SLOW, f"no part of the body arrived for {BODY_TIMEOUT:g} s") from None
        if message["type"] != "http.request":
            raise ProblemError(MALFORMED, "the connection ended before the body did")
        more = bool(message.get("more_body"))
        if part := message.get("body", b""):
            yield part
    request.is_read = True


def _check_plain(request: WebhookRequest) -> None:
    encoding = header(request, "content-encoding")
    if encoding.lower() not in {"", "identity"}:
        raise ProblemError(UNSUPPORTED_TYPE, f"the body is encoded as {encoding}: send it as it is")


class StreamLimit:
    """Bounds how many bodies without an end in sight are read at a time, in one process."""

    def __init__(self, most: int = MOST_STREAMS) -> None:
        self._most = most
        self._open = 0

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold a place while the body runs. Raises ProblemError if there is none."""
        if self._open >= self._most:
            text = f"{self._most} streams are being read already: send this one again"
            raise ProblemError(TOO_MANY, text, retry_after=STREAM_RETRY)
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


class LineBuffer:
    """Cuts a body that arrives in parts into lines. Holds the line that has not ended yet, and no more."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, part: bytes) -> list[bytes]:
        """Return the lines that have ended, without their ends."""
        *lines, self.rest = (self.rest + part).split(b"\n")
        return lines


def header(request: WebhookRequest, name: str) -> str:
    return request.headers.get(name.encode(), b"").decode("latin-1")


def media_type(content_type: str) -> str:
    """Return `text/csv` of `text/csv; charset=utf-8`."""
    return content_type.partition(";")[0].strip().lower()


def is_json(content_type: str) -> bool:
    kind = media_type(content_type)
    return kind == JSON or (kind.startswith("application/") and kind.endswith("+json"))
