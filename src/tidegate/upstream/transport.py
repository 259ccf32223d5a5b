"""The transport port: one request out, and how certain it is that it was sent."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote

import msgspec


class UpstreamRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, without what is secret: address and token are known to the wire alone."""

    method: str  # GET, POST …
    path: str  # behind the address of the API, without query: "api/v2/tables/m1/records"
    query: tuple[tuple[str, str], ...] = ()  # as it is meant, not yet encoded
    body: Any = None  # sent as JSON; None: none. From the client it is JSON already (msgspec.Raw)

    @property
    def target(self) -> str:
        """Path and query as they are sent: what counts against an API's limit on the length of a URL."""
        path = "/" + quote(self.path.strip("/"), safe="/")
        query = "&".join(
            f"{quote(name, safe='')}={quote(value, safe=UNQUOTED_IN_QUERY)}" for name, value in self.query
        )
        return f"{path}?{query}" if query else path


UNQUOTED_IN_QUERY = "(),:~@*'"  # in a query: read as they are everywhere, and a third as long as when encoded


class UpstreamResponse(msgspec.Struct, frozen=True):
    """Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NoResponse(msgspec.Struct, frozen=True):
    """Nothing answered. With `left` false not one byte was sent, so it surely did not happen.

    `reason` is a fixed word (connect, timeout, disconnected …), never an error's own text.
    """

    left: bool
    reason: str


class UpstreamTransport(Protocol):
    """To one API with one token."""

    async def send(self, request: UpstreamRequest) -> UpstreamResponse | NoResponse:
        """Make one request, at most once. Raises nothing but `CancelledError`."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class RedactingTransport(Protocol):
    """A wire that knows what is secret, such as a token."""

    def hide(self, text: str) -> str:
        """The same without it: some APIs repeat a token that they refuse."""
        ...
