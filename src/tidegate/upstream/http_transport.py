"""The transport over HTTP with aiohttp, and checks of an API's address and headers."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import aiohttp
import msgspec
from yarl import URL

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.network_errors import network_failure
from tidegate.scrubber import hide
from tidegate.upstream.retry import UNREADABLE
from tidegate.upstream.transport import (
    NoResponse,
    UpstreamOutcome,
    UpstreamRequest,
    UpstreamResponse,
    UpstreamTransport,
)

TIMEOUT: Final = 10.0  # seconds for a connection, and again from the first byte sent to the last one read
LARGEST_ANSWER: Final = 16 * 1024 * 1024  # bytes
KEEPALIVE: Final = 4.0  # seconds; Node hangs up after 5, and a request must not cross that
DNS_CACHE: Final = 300  # seconds
NO_TIMEOUT: Final = aiohttp.ClientTimeout(total=None)  # each request has its own
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
HEADERS_WITHOUT_SECRETS: Final = ("user-agent", "accept", "content-type")  # prefixes of names
SHORTEST_SECRET: Final = 4  # characters; a shorter value may occur in any text
SHORTEST_SECRET_WORD: Final = 6
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class AlreadySentError(aiohttp.ClientError):
    """aiohttp repeats idempotent requests by itself; here only the limiter decides that."""


class _RequestInFlight:
    """`left` is true as soon as a byte of the request may have reached the network."""

    __slots__ = ("_bound", "_seconds", "left")

    def __init__(self, bound: asyncio.Timeout, seconds: float) -> None:
        self._bound, self._seconds = bound, seconds
        self.left = False

    def leave(self) -> None:
        """There is a connection: from now on the timeout is for the answer."""
        self.left = True
        self._bound.reschedule(asyncio.get_running_loop().time() + self._seconds)


async def _mark_as_left(session: aiohttp.ClientSession, context: SimpleNamespace, sent: object) -> None:
    """Called when there is a connection, right before the request is written to it."""
    del session, sent
    in_flight: _RequestInFlight = context.trace_request_ctx
    if in_flight.left:
        raise AlreadySentError
    in_flight.leave()


class HttpTransport(UpstreamTransport):
    """Opens connections as they are needed: the limiter bounds their number. Belongs to one event loop.

    `timeout`, in seconds, is for a connection, and once more for the answer: `longest` in all.
    Redirects are not followed: the token is for this address alone. A connection that was cut before the
    other end read anything counts as left too: from here it looks like one that was cut afterwards.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str],
        clock: Clock,
        timeout: float = TIMEOUT,
    ) -> None:
        if not timeout > 0:
            raise BadInputError(f"timeout={timeout}: give a number of seconds above 0")
        self._base = checked_base_url(base_url)
        given = checked_headers(headers)
        self._headers = {"Accept": "application/json", "User-Agent": "tidegate", **given}
        self._secrets = _secret_words(_secret_headers(given).values())
        hide(*self._secrets)
        self._clock = clock
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"HttpTransport({self._base!r})"  # headers hold secrets

    def __reduce__(self) -> NoReturn:
        raise TypeError("a transport cannot be pickled, as it holds a token: make one in each process")

    @property
    def longest(self) -> float:
        """Seconds that a request may last."""
        return 2 * self._timeout

    def hide(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    async def send(self, request: UpstreamRequest) -> UpstreamOutcome:
        bound = self._clock.timeout(self._timeout)
        in_flight = _RequestInFlight(bound, self._timeout)
        if self._closed:
            return NoResponse(left=False, reason="closed")
        try:
            async with bound:
                return await self._send(request, in_flight)
        except TimeoutError:
            return NoResponse(in_flight.left, "timeout")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return NoResponse(in_flight.left, "disconnected" if in_flight.left else network_failure(error))

    async def close(self) -> None:
        """Close all connections. Requests on the wire end without an answer, later ones are not sent."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def _send(self, request: UpstreamRequest, in_flight: _RequestInFlight) -> UpstreamOutcome:
        body = None if request.body is None else msgspec.json.encode(request.body)
        async with self._open().request(
            request.method,
            URL(self._base + request.target, encoded=True),  # not encoded again: its length was counted
            data=body,
            headers=None if body is None else {"Content-Type": "application/json"},
            allow_redirects=False,
            timeout=NO_TIMEOUT,
            trace_request_ctx=in_flight,
        ) as response:
            read = await _read(response)
            if read is None:
                return NoResponse(left=True, reason=UNREADABLE)
            headers = {name.lower(): value for name, value in response.headers.items()}
            return UpstreamResponse(response.status, headers, read)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            trace: Any = aiohttp.TraceConfig()
            trace.on_request_headers_sent.append(_mark_as_left)
            self._session = aiohttp.ClientSession(
                # No limit: a request that has a turn must not wait again while it holds its slot.
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=DNS_CACHE, keepalive_timeout=KEEPALIVE),
                cookie_jar=aiohttp.DummyCookieJar(),
                # A compressed answer could unpack to any size.
                headers={**self._headers, "Accept-Encoding": "identity"},
                auto_decompress=False,
                trust_env=False,
                trace_configs=[trace],
            )
        return self._session


async def _read(response: aiohttp.ClientResponse) -> bytes | None:
    """Return the whole body; None if it is larger than `LARGEST_ANSWER`."""
    length = response.content_length
    if length is not None and length <= LARGEST_ANSWER:
        return await response.read()
    raw = bytearray()
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > LARGEST_ANSWER:
            response.close()
            return None
    return bytes(raw)


def limit_identity(base_url: str, headers: Mapping[str, str]) -> tuple[object, ...]:
    """Return what shares one limit: a host with a token. Path and spelling make no difference."""
    parts = urlsplit(checked_base_url(base_url))
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    secrets = sorted(_secret_headers(checked_headers(headers)).items())
    return parts.scheme, parts.hostname, port, tuple(secrets)


def checked_base_url(base_url: object) -> str:
    """Return an address that a path can be appended to. Raises BadInputError, which does not repeat it."""
    url = base_url if isinstance(base_url, str) and base_url.isprintable() else ""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        usable = usable and bool(URL(url).host)
    except ValueError:
        usable = False
    else:
        usable = usable and not (parts.query or parts.fragment or parts.username or parts.password)
    if not usable:  # there may be a password in it
        raise BadInputError(
            "the address of an API is http:// or https://, a host, and perhaps a path, nothing more"
        )
    return url.rstrip("/")


def checked_headers(headers: object) -> dict[str, str]:
    """Return them unchanged. Raises BadInputError, which does not repeat a value."""
    if not isinstance(headers, Mapping):
        raise BadInputError(f"headers are a dict of names and texts, not {type(headers).__name__}")
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise BadInputError(f"{name!r:.60} is not the name of a header: use letters, digits and hyphens")
        if not isinstance(value, str):
            raise BadInputError(f"the header {name} is a {type(value).__name__}: is its token missing?")
        if not value.isprintable() or not value.isascii():
            raise BadInputError(f"the header {name} cannot be sent: is there a line break in its token?")
    return dict(headers)


def _secret_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that may hold a token, their names in lower case."""
    known = {name.lower(): value for name, value in headers.items()}
    return {name: value for name, value in known.items() if not name.startswith(HEADERS_WITHOUT_SECRETS)}


def _secret_words(values: Iterable[str]) -> list[str]:
    """Return each value and the words in it, the longest first, as one may contain another."""
    found = {value for value in values if len(value) >= SHORTEST_SECRET}
    words = {word for value in found for word in re.split(r"[\s,;:]+", value)}
    found |= {word for word in words if len(word) >= SHORTEST_SECRET_WORD}
    return sorted(found, key=len, reverse=True)
