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
from tidegate.upstream.retry import UNREADABLE
from tidegate.upstream.transport import NoResponse, UpstreamRequest, UpstreamResponse, UpstreamTransport

HEADERS_WITHOUT_SECRETS: Final = (
    "user-agent",
    "accept",
    "content-type",
)  # how the names of such headers begin
SHORTEST_SECRET: Final = 4  # characters of a secret: what is shorter is in any text
SHORTEST_SECRET_WORD: Final = 6
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def limit_identity(base_url: str, headers: Mapping[str, str]) -> tuple[object, ...]:
    """What has one limit: a host with a token. The path, and how they are spelled, make no difference."""
    parts = urlsplit(checked_base_url(base_url))
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    return parts.scheme, parts.hostname, port, tuple(sorted(secret_headers(checked_headers(headers)).items()))


def secret_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Those that may hold a token, their names in lower case."""
    known = {name.lower(): value for name, value in headers.items()}
    return {name: value for name, value in known.items() if not name.startswith(HEADERS_WITHOUT_SECRETS)}


def secret_words(values: Iterable[str]) -> list[str]:
    """Each value, and the words in it; the longest first, as one may be in another."""
    found = {value for value in values if len(value) >= SHORTEST_SECRET}
    found |= {
        word for value in found for word in re.split(r"[\s,;:]+", value) if len(word) >= SHORTEST_SECRET_WORD
    }
    return sorted(found, key=len, reverse=True)


def checked_base_url(base_url: object) -> str:
    """An address that a path can be put behind."""
    text = "the address of an API is http:// or https://, a host, and perhaps a path, nothing more"
    url = base_url if isinstance(base_url, str) and base_url.isprintable() else ""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        usable = usable and bool(URL(url).host)
    except ValueError:
        usable = False
    else:
        usable = usable and not (parts.query or parts.fragment or parts.username or parts.password)
    if not usable:
        raise BadInputError(text)  # without it: there may be a password in it
    return url.rstrip("/")


def checked_headers(headers: object) -> dict[str, str]:
    """As they are, or BadInputError, which does not repeat a value."""
    if not isinstance(headers, Mapping):
        raise BadInputError(f"headers are a dict of names and texts, not {type(headers).__name__}")
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise BadInputError(f"{name!r:.60} is no name of a header: letters, digits and hyphens are")
        if not isinstance(value, str):
            raise BadInputError(f"the header {name} is a {type(value).__name__}: is its token missing?")
        if not value.isprintable() or not value.isascii():
            raise BadInputError(f"the header {name} holds what cannot be sent: is a line break in its token?")
    return dict(headers)


TIMEOUT: Final = 10.0  # seconds for a connection, and again from the first byte sent to the last one read
LARGEST_ANSWER: Final = 16 * 1024 * 1024
KEPT_ALIVE: Final = 4.0  # seconds; Node hangs up after 5, and a request must not cross that
DNS_CACHE: Final = 300
NO_TIMEOUT: Final = aiohttp.ClientTimeout(total=None)  # a trip has its own


class AlreadySentError(aiohttp.ClientError):
    """aiohttp repeats idempotent requests by itself; here it is the limiter who says when."""


class _RequestInFlight:
    """One request. `left` is true as soon as a byte of it may have reached the network."""

    __slots__ = ("_bound", "_seconds", "left")

    def __init__(self, bound: asyncio.Timeout, seconds: float) -> None:
        self._bound, self._seconds = bound, seconds
        self.left = False

    def depart(self) -> None:
        """There is a connection: from now on the seconds are for the answer."""
        self.left = True
        self._bound.reschedule(asyncio.get_running_loop().time() + self._seconds)


async def _mark_as_left(session: aiohttp.ClientSession, context: SimpleNamespace, sent: object) -> None:
    """Called when there is a connection, right before the request is written to it."""
    del session, sent
    trip: _RequestInFlight = context.trace_request_ctx
    if trip.left:
        raise AlreadySentError
    trip.depart()


class HttpTransport(UpstreamTransport):
    """Connections are opened as they are needed: the limiter says how many. Belongs to one event loop.

    `timeout`, in seconds, is for a connection, and once more for the answer: a request lasts `longest`.
    Redirects are not followed: the token is for this address alone. A connection that was cut before the
    other end read anything counts as left, too: from here it looks like one that was cut afterwards.
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
            raise BadInputError(f"timeout={timeout}: a number of seconds above 0 is needed")
        self._base = checked_base_url(base_url)
        given = checked_headers(headers)
        self._headers = {"Accept": "application/json", "User-Agent": "tidegate", **given}
        self._secrets = secret_words(secret_headers(given).values())
        self._clock = clock
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"HttpWire({self._base!r})"  # without what its headers say

    def __reduce__(self) -> NoReturn:
        raise TypeError("a wire is not pickled: its token would be in it; make one in each process")

    @property
    def longest(self) -> float:
        """Seconds."""
        return 2 * self._timeout

    def hide(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    async def send(self, request: UpstreamRequest) -> UpstreamResponse | NoResponse:
        bound = self._clock.timeout(self._timeout)
        trip = _RequestInFlight(bound, self._timeout)
        if self._closed:
            return NoResponse(left=False, reason="closed")
        try:
            async with bound:
                return await self._send(request, trip)
        except TimeoutError:
            return NoResponse(trip.left, "timeout")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return NoResponse(trip.left, "disconnected" if trip.left else network_failure(error))

    async def close(self) -> None:
        """Hang up. Requests under way come back without an answer, later ones do not leave."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def _send(self, request: UpstreamRequest, trip: _RequestInFlight) -> UpstreamResponse | NoResponse:
        body = None if request.body is None else msgspec.json.encode(request.body)
        async with self._open().request(
            request.method,
            URL(self._base + request.target, encoded=True),  # as it is: its length was counted
            data=body,
            headers=None if body is None else {"Content-Type": "application/json"},
            allow_redirects=False,
            timeout=NO_TIMEOUT,
            trace_request_ctx=trip,
        ) as response:
            read = await _read(response)
            if read is None:
                return NoResponse(left=True, reason=UNREADABLE)
            headers = {name.lower(): value for name, value in response.headers.items()}
            return UpstreamResponse(response.status, headers, read)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            departs: Any = aiohttp.TraceConfig()
            departs.on_request_headers_sent.append(_mark_as_left)
            self._session = aiohttp.ClientSession(
                # No limit: who has a turn must not wait once more, with his slot.
                connector=aiohttp.TCPConnector(
                    limit=0, ttl_dns_cache=DNS_CACHE, keepalive_timeout=KEPT_ALIVE
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                # Unpacking an answer could make it any size.
                headers={**self._headers, "Accept-Encoding": "identity"},
                auto_decompress=False,
                trust_env=False,
                trace_configs=[departs],
            )
        return self._session


async def _read(response: aiohttp.ClientResponse) -> bytes | None:
    """All of it; None if it is larger than any answer may be."""
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
