"""The transport port: one request out, and how certain it is that it was sent."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec

OK_STATUSES: Final = range(200, 300)
UNQUOTED_IN_QUERY: Final = "(),:~@*'"  # every server reads them as they are, at a third of the length


class UpstreamRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request without its secrets: only the transport knows address and token."""

    method: str  # GET, POST …
    path: str  # behind the address of the API, without query: "api/v2/tables/m1/records"
    query: tuple[tuple[str, str], ...] = ()  # not yet encoded
    body: Any = None  # sent as JSON; None: no body. The client gives encoded JSON (msgspec.Raw)

    @property
    def target(self) -> str:
        """Path and query as they are sent: what counts against an API's limit on the length of a URL."""
        path = "/" + quote(self.path.strip("/"), safe="/")
        pairs = ((quote(name, safe=""), quote(value, safe=UNQUOTED_IN_QUERY)) for name, value in self.query)
        query = "&".join(f"{name}={value}" for name, value in pairs)
        return f"{path}?{query}" if query else path


class UpstreamResponse(msgspec.Struct, frozen=True):
    """Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_refused(self) -> bool:
        return self.status == HTTPStatus.TOO_MANY_REQUESTS


class NoResponse(msgspec.Struct, frozen=True):
    """No response came. With `left` false not one byte was sent, so the request surely did nothing.

    `reason` is a fixed word (connect, timeout, disconnected …), never an error's own text.
    """

    left: bool
    reason: str


UpstreamOutcome = UpstreamResponse | NoResponse


class UpstreamTransport(Protocol):
    """Sends requests to one API with one token."""

    async def send(self, request: UpstreamRequest) -> UpstreamOutcome:
        """Send one request, at most once. Raises nothing but `CancelledError`."""
        ...

    async def close(self) -> None: ...

    def hide(self, text: str) -> str:
        """Return the text without secrets, such as a token: some APIs repeat one that they refuse."""
        return text
