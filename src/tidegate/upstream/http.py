"""Requests over HTTP, with aiohttp. Its errors end here: what is known comes back as a value."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final, NoReturn

import aiohttp
import msgspec
from yarl import URL

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.network_words import word_for
from tidegate.upstream.access import checked, secrets_in, sendable, words_of
from tidegate.upstream.retrying import UNREADABLE
from tidegate.upstream.wire import NoResponse, Request, Response, Wire

TIMEOUT: Final = 10.0  # seconds for a connection, and again from the first byte sent to the last one read
LARGEST_ANSWER: Final = 16 * 1024 * 1024
KEPT_ALIVE: Final = 4.0  # seconds; Node hangs up after 5, and a request must not cross that
DNS_CACHE: Final = 300
NO_TIMEOUT: Final = aiohttp.ClientTimeout(total=None)  # a trip has its own


class SentBeforeError(aiohttp.ClientError):
    """aiohttp repeats idempotent requests by itself; here it is the limiter who says when."""


class _Trip:
    """One request. `left` is true as soon as a byte of it may have reached the network."""

    __slots__ = ("_bound", "_seconds", "left")

    def __init__(self, bound: asyncio.Timeout, seconds: float) -> None:
        self._bound, self._seconds = bound, seconds
        self.left = False

    def depart(self) -> None:
        """There is a connection: from now on the seconds are for the answer."""
        self.left = True
        self._bound.reschedule(asyncio.get_running_loop().time() + self._seconds)


async def _departs(session: aiohttp.ClientSession, context: SimpleNamespace, sent: object) -> None:
    """Called when there is a connection, right before the request is written to it."""
    del session, sent
    trip: _Trip = context.trace_request_ctx
    if trip.left:
        raise SentBeforeError
    trip.depart()


class HttpWire(Wire):
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
        self._base = checked(base_url)
        given = sendable(headers)
        self._headers = {"Accept": "application/json", "User-Agent": "tidegate", **given}
        self._secrets = words_of(secrets_in(given).values())
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

    async def send(self, request: Request) -> Response | NoResponse:
        bound = self._clock.timeout(self._timeout)
        trip = _Trip(bound, self._timeout)
        if self._closed:
            return NoResponse(left=False, reason="closed")
        try:
            async with bound:
                return await self._send(request, trip)
        except TimeoutError:
            return NoResponse(trip.left, "timeout")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return NoResponse(trip.left, "disconnected" if trip.left else word_for(error))

    async def close(self) -> None:
        """Hang up. Requests under way come back without an answer, later ones do not leave."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def _send(self, request: Request, trip: _Trip) -> Response | NoResponse:
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
            return Response(response.status, headers, read)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            departs: Any = aiohttp.TraceConfig()
            departs.on_request_headers_sent.append(_departs)
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
