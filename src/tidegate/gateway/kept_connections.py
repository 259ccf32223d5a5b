"""Forwards small calls over connections that stay open: HTTP/1.1 as far as it is needed for them.

A second client beside `BotApiClient`, because a general one costs more than all else that the gateway does
with a call: it makes a request of an address, headers, cookies and redirects, and hands the answer over as a
stream. Here a request is one write, and its answer one future. Uploads, downloads, and addresses other than
`http(s)://host[:port][/path]` are left to `BotApiClient`.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import aiohappyeyeballs
import aiohttp
import httptools

from tidegate.clock import Clock
from tidegate.delivery.bot_api import CONNECT_TIMEOUT, JSON, LARGEST_ANSWER, BotApiClient, RawCall
from tidegate.delivery.request_body import DiskFile
from tidegate.delivery.transport import NoAnswer, RawAnswer

LARGEST_BODY: Final = 64 * 1024  # bytes of a request: what a transport takes at once
IDLE_FOR: Final = 15.0  # seconds after which an unused connection is closed: servers wait longer
NEXT_ADDRESS_AFTER: Final = 0.25  # seconds until the next address of a host is tried beside the first
_FINAL_STATUS: Final = 200  # below: an answer before the answer, such as 100 Continue


class Origin(NamedTuple):
    """A Bot API server. `prefix` is what its paths begin with."""

    host: str
    port: int
    is_secure: bool
    authority: str
    prefix: str

    @classmethod
    def of(cls, api_url: str) -> "Origin | None":
        """Return None for an address that is not understood here."""
        try:
            parts = urlsplit(api_url)
            port = parts.port
        except ValueError:
            return None
        is_plain = parts.scheme in {"http", "https"} and parts.hostname and not parts.query
        if not is_plain or "@" in parts.netloc or "{" in api_url or not _is_header_text(api_url):
            return None
        is_secure = parts.scheme == "https"
        port = port or (443 if is_secure else 80)
        return cls(str(parts.hostname), port, is_secure, parts.netloc, parts.path.rstrip("/"))


class KeptConnectionsClient:
    """A `ForwardingClient`. Belongs to one event loop.

    It opens as many connections as there are calls under way, which the gateway bounds. A call is written
    once and never repeated; it counts as left from the moment in which it is written.
    """

    def __init__(self, clock: Clock, others: BotApiClient, *, timeout: float) -> None:
        self._clock = clock
        self._others = others
        self._timeout = timeout
        self._origins: dict[str, Origin | None] = {}
        self._idle: dict[Origin, deque[_Connection]] = {}  # the one used last on the right
        self._open: set[_Connection] = set()
        self._tls: ssl.SSLContext | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def forward(
        self,
        token: str,
        call: RawCall,
        *,
        api_url: str,
        deadline: float,
        timeout: float | None = None,  # noqa: ASYNC109  (of the answer, from the last byte that was sent)
        on_left: Callable[[], None] | None = None,
    ) -> RawAnswer | NoAnswer:
        """Make a call whose body is sent as it is, and return the answer as it came."""
        origin = self._origin(api_url)
        request = None if origin is None else _request(origin, token, call)
        if origin is None or request is None:
            return await self._others.forward(
                token, call, api_url=api_url, deadline=deadline, timeout=timeout, on_left=on_left
            )
        connection = self._kept(origin) or await self._connect(origin, deadline)
        if isinstance(connection, NoAnswer):
            return connection
        if self._clock.monotonic() >= deadline:
            self._keep(origin, connection)
            return NoAnswer(left=False, reason="late")
        if on_left is not None:
            on_left()
        answering = connection.send(request)
        timer = self._clock.call_later(timeout or self._timeout, connection.time_out)
        try:
            return await answering
        finally:
            timer.cancel()
            self._keep(origin, connection)

    def download(
        self, url: str, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse | NoAnswer]:
        return self._others.download(url, headers)

    async def close(self) -> None:
        """Close the connections. Calls under way return without an answer, later ones do not leave."""
        self._is_closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in list(self._open):
            connection.close()
        await self._others.close()

    def _origin(self, api_url: str) -> Origin | None:
        if api_url not in self._origins:
            self._origins[api_url] = Origin.of(api_url)
        return self._origins[api_url]

    def _kept(self, origin: Origin) -> "_Connection | None":
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.is_usable and self._clock.monotonic() - connection.idle_since < IDLE_FOR:
                return connection
            connection.close()
        return None

    def _keep(self, origin: Origin, connection: "_Connection") -> None:
        if not connection.is_usable or self._is_closed:
            connection.close()
            return
        connection.idle_since = self._clock.monotonic()
        self._idle.setdefault(origin, deque()).append(connection)
        if self._sweeping is None:
            self._sweeping = self._clock.call_later(IDLE_FOR, self._sweep)

    def _sweep(self) -> None:
        """Close what has been idle for too long: at the left of each line."""
        self._sweeping, now = None, self._clock.monotonic()
        for idle in self._idle.values():
            while idle and (now - idle[0].idle_since >= IDLE_FOR or not idle[0].is_usable):
                idle.popleft().close()
        if any(self._idle.values()):
            self._sweeping = self._clock.call_later(IDLE_FOR, self._sweep)

    async def _connect(self, origin: Origin, deadline: float) -> "_Connection | NoAnswer":
        seconds = deadline - self._clock.monotonic()
        if self._is_closed or seconds <= 0:
            return NoAnswer(left=False, reason="closed" if self._is_closed else "late")
        try:
            async with self._clock.timeout(min(seconds, CONNECT_TIMEOUT)):
                return await self._connected(origin)
        except TimeoutError:
            return NoAnswer(left=False, reason="late")
        except (ssl.SSLError, ssl.CertificateError):
            return NoAnswer(left=False, reason="tls")
        except (socket.gaierror, UnicodeError):
            return NoAnswer(left=False, reason="dns")
        except OSError:
            return NoAnswer(left=False, reason="connect")

    async def _connected(self, origin: Origin) -> "_Connection":
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
        plain = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=NEXT_ADDRESS_AFTER)
        try:
            tls = await self._tls_context() if origin.is_secure else None
            name = origin.host if origin.is_secure else None
            _, connection = await loop.create_connection(
                lambda: _Connection(self._open), sock=plain, ssl=tls, server_hostname=name
            )
        except BaseException:
            plain.close()
            raise
        return connection

    async def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:  # reads the certificates of the system
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        return self._tls


class _Connection(asyncio.Protocol):
    """One call at a time: a request is written, and its answer is parsed as it arrives."""

    def __init__(self, all_open: "set[_Connection]") -> None:
        self.idle_since = 0.0
        self._all_open = all_open
        self._transport: asyncio.Transport
        self._answering: asyncio.Future[RawAnswer | NoAnswer] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._kind = JSON
        self._parts: list[bytes] = []
        self._bytes = 0  # of an answer, with its head
        self._ends_with_connection = True
        self._has_head = False

    @property
    def is_usable(self) -> bool:
        return self._answering is None and not self._transport.is_closing()

    def send(self, request: bytes) -> "asyncio.Future[RawAnswer | NoAnswer]":
        self._answering = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answering

    def time_out(self) -> None:
        self._end(NoAnswer(left=True, reason="timeout"))
        self.close()

    def close(self) -> None:
        self._transport.close()

    # Called by the transport:

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no subclass
        self._all_open.add(self)

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        if self._answering is None:
            self.close()  # nobody has asked
        elif self._bytes > LARGEST_ANSWER:
            self._fail("not_http")
        else:
            try:
                self._parser.feed_data(data)
            except (httptools.HttpParserError, httptools.HttpParserUpgrade):
                self._fail("not_http")

    def connection_lost(self, exc: Exception | None) -> None:
        self._all_open.discard(self)
        if exc is None and self._has_head and self._ends_with_connection:
            self._answer()
        self._end(NoAnswer(left=True, reason="disconnected"))

    # Called by the parser:

    def on_message_begin(self) -> None:
        if self._answering is None:  # a second answer
            self.close()
        self._kind, self._parts, self._has_head, self._ends_with_connection = JSON, [], False, True

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-type":
            self._kind = value.decode("latin-1")
        elif name in {b"content-length", b"transfer-encoding"}:
            self._ends_with_connection = False

    def on_headers_complete(self) -> None:
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < _FINAL_STATUS:
            return
        if not self._parser.should_keep_alive():
            self.close()
        self._answer()

    def _answer(self) -> None:
        self._end(RawAnswer(self._parser.get_status_code(), self._kind, b"".join(self._parts)))

    def _fail(self, reason: str) -> None:
        self._end(NoAnswer(left=True, reason=reason))
        self.close()

    def _end(self, answer: RawAnswer | NoAnswer) -> None:
        answering, self._answering, self._bytes = self._answering, None, 0
        if answering is not None and not answering.done():
            answering.set_result(answer)


def _request(origin: Origin, token: str, call: RawCall) -> bytes | None:
    """Return a request; None if it is not for this client."""
    parts = call.parts
    if len(parts) != 1 or isinstance(body := parts[0], DiskFile) or len(body) > LARGEST_BODY:
        return None
    target = f"{origin.prefix}/bot{token}/{call.method}" + (f"?{call.query}" if call.query else "")
    if " " in target or not _is_header_text(target) or not _is_header_text(call.content_type):
        return None
    head = (
        f"POST {target} HTTP/1.1\r\nHost: {origin.authority}\r\nUser-Agent: tidegate\r\nAccept: */*\r\n"
        f"Accept-Encoding: identity\r\nContent-Type: {call.content_type}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _is_header_text(text: str) -> bool:
    """Return whether a text can stand in a head: without line ends, and without signs of another charset."""
    return text.isascii() and text.isprintable()
