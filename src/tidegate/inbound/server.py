"""Serves an ASGI application with uvicorn in the running event loop."""

import asyncio
import logging
import math
import re
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError, ClosedError
from tidegate.extras import extra
from tidegate.failure import scrub
from tidegate.frozen_heap import frozen_heap, rare_searches
from tidegate.inbound.webhook_request import ARRIVED, Receive, Scope, Send

if TYPE_CHECKING:
    from uvicorn import Server

MAX_CONNECTIONS: Final = 2_000  # requests on more are refused. Telegram opens up to 100 for each bot
REFUSED_FOR: Final = 5  # seconds after which a client on one more is asked to come again
KEEP_ALIVE: Final = 60  # seconds that a connection may be idle between two requests
LAST_REQUESTS: Final = 0.2  # seconds for them to arrive on connections that stay open between requests
FIRST_REQUESTS: Final = 2.0  # seconds for them to arrive on connections that were just accepted
SHUTDOWN_GRACE: Final = 15  # seconds that requests have to end when the server stops
BACKLOG: Final = 1_024
MAX_PORT: Final = 65_535
HEAD_TIMEOUT: Final = 10.0  # seconds that the head of a request may take to arrive
TAKE_TIMEOUT: Final = 60.0  # seconds in which a client has to take some of what waits for it
MAX_HEAD_BYTES: Final = 65_536  # received without completing a head or a part of a body
UVICORN_NO_HTTP: Final = "Invalid HTTP request received."
_BAD_REQUEST_HEAD: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
)
_NOT_ASCII: Final = re.compile(rb"[\x80-\xff]")
UVICORN_FAILED: Final = "Application startup failed. Exiting."

AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
OnReady = Callable[[int], object]
# Returns the content type and the body of an answer that the server gives itself, without the application.
# It is given the status, the reason, and the seconds after which the client should try again, if it should.
WordError = Callable[[HTTPStatus, str, int | None], tuple[str, bytes]]


def word_bot_api_error(status: HTTPStatus, why: str, retry_after: int | None) -> tuple[str, bytes]:
    """Word an error as the gateway and as webhooks and hooks do."""
    wait = {} if retry_after is None else {"parameters": {"retry_after": retry_after}}
    words = {"ok": False, "error_code": int(status), "description": f"{status.phrase}: {why}", "error": why}
    return "application/json", msgspec.json.encode(words | wait)


async def serve(
    app: AsgiApp,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    reuse_port: bool = False,
    listening: socket.socket | None = None,
    on_ready: OnReady | None = None,
    on_stopping: Callable[[], object] = bool,
    on_second_signal: Callable[[], object] = bool,
    word_error: WordError = word_bot_api_error,
) -> None:
    """Return after SIGTERM or SIGINT, when everything is answered and the application has stopped.

    A cancelled call does the same first. With `reuse_port` several processes listen at one port, and the
    system shares the connections out; a socket that is given listens instead, for instance one that a parent
    process shares. `on_ready` is called with the port as soon as it listens.
    `on_stopping` is called when it begins to stop: what is answered without an end has to end then.
    `on_second_signal` is called when Ctrl-C comes again: requests are not waited for any more, and the
    application should stop at once. `word_error` words what the server refuses without the application:
    what is no HTTP, and connections too many.
    Raises BadInputError if it cannot listen there, and ClosedError if the application does not start.
    """
    listening = listening or listen(host, port, reuse_port=reuse_port)
    frozen_heap.hold()
    try:
        server = _server(app, on_ready, on_stopping, on_second_signal, word_error)
        with rare_searches():
            serving = asyncio.create_task(server.serve([listening]), name="tidegate: http")
            try:
                await asyncio.shield(serving)
            except asyncio.CancelledError:
                server.handle_exit(signal.SIGTERM, None)
                await asyncio.gather(serving, return_exceptions=True)
                raise
    finally:
        frozen_heap.release()
        listening.close()


def listen(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Raises BadInputError if the address or port cannot be used.

    A shared port is only bound: uvicorn listens when the application has started. Otherwise the system would
    give connections to this process that another one could answer at once.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    _check_port(port)
    if reuse_port and not hasattr(socket, "SO_REUSEPORT"):
        raise BadInputError("this system cannot share a port between processes: give each its own")
    try:
        if reuse_port:
            return _bind_shared(host, port, family)
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        reason = reason.partition(" (while attempting")[0]  # create_server repeats the address
        raise BadInputError(f"cannot listen at {host} port {port}: {reason}") from None


def _check_port(port: object) -> None:
    if not isinstance(port, int) or not 0 <= port <= MAX_PORT:
        raise BadInputError(f"a port is a number from 0 (any that is free) to {MAX_PORT}, not {port!r}")


def _bind_shared(host: str, port: int, family: socket.AddressFamily) -> socket.socket:
    shared = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            shared.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # No SO_REUSEADDR: with it, a socket that does not share could take the port before this one listens.
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        shared.bind((host, port))
    except BaseException:
        shared.close()
        raise
    return shared


def _server(
    app: AsgiApp,
    on_ready: OnReady | None,
    on_stopping: Callable[[], object],
    on_second_signal: Callable[[], object],
    word_error: WordError,
) -> "Server":
    with extra("uvicorn"):
        import uvicorn  # noqa: PLC0415  (an extra)

    watched = _AppWatch(app, on_second_signal)

    class EmbeddedServer(uvicorn.Server):
        """Uvicorn, except that a signal or a failure ends the server and not the process."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            with _signals(self.handle_exit):
                yield

        def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ANN401  (uvicorn's)
            super().handle_exit(sig, frame)
            watched.note_signal(is_started=self.started, is_second=self.force_exit)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            for server in self.servers:
                server.close()
            on_stopping()
            await _wait_for_last_requests(self)
            await super().shutdown(sockets)
            if not watched.has_stopped:  # left out after a second Ctrl-C, but the store has to be closed
                await self.lifespan.shutdown()

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            try:
                with _without_line(UVICORN_FAILED):  # the error below says why
                    await super().startup(sockets)
            except SystemExit:
                raise ClosedError(f"the server did not start: {watched.reason}") from None
            frozen_heap.add()
            if on_ready is not None and sockets:
                on_ready(sockets[0].getsockname()[1])

    config = uvicorn.Config(
        watched,
        http=_http_protocol(word_error),
        interface="asgi3",
        lifespan="on",
        ws="none",
        log_config=None,  # logging is the application's to set up
        log_level="error",  # any client can cause any number of warnings
        access_log=False,  # the address of a hook may hold a secret
        server_header=False,
        proxy_headers=False,  # the client's address matters only for refused requests: looked up then
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=SHUTDOWN_GRACE,
    )
    return EmbeddedServer(config)


async def _wait_for_last_requests(server: "Server") -> None:
    """Wait for requests on their way: uvicorn closes connections that have none under way."""
    accepted = cast("set[BoundedHeadProtocol]", server.server_state.connections)
    clock = Clock()
    began = clock.monotonic()
    while not server.force_exit and (waited := clock.monotonic() - began) < FIRST_REQUESTS:
        if waited >= LAST_REQUESTS and all(one.cycle is not None for one in accepted):
            return
        await clock.sleep(LAST_REQUESTS / 4)


def _http_protocol(word: WordError) -> type[asyncio.Protocol]:
    from uvicorn.protocols.http.auto import AutoHTTPProtocol  # noqa: PLC0415  (an extra)

    class HttpProtocol(BoundedHeadProtocol, AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # one of two, as installed
        word_error = staticmethod(word)

        def connection_made(self, transport: Any) -> None:  # noqa: ANN401  (uvicorn's)
            super().connection_made(CoalescingTransport(transport))  # type: ignore[arg-type]  # has all of its methods

    return HttpProtocol


class _AppWatch:
    """Passes everything on to an application, and notes why it does not start: uvicorn does not say."""

    def __init__(self, app: AsgiApp, on_second_signal: Callable[[], object]) -> None:
        self._app = app
        self._on_second_signal = on_second_signal
        self.reason = "the application did not start"
        self._starting: asyncio.Task[Any] | None = None  # while it starts
        self._is_given_up = False
        self.has_stopped = False
        self._loop = asyncio.get_running_loop()

    def note_signal(self, *, is_started: bool, is_second: bool) -> None:
        """Cancel the start, at which uvicorn itself would look only later. Called in a signal handler."""
        if not is_started:
            self._loop.call_soon_threadsafe(self._stop_starting)
        if is_second:
            self._loop.call_soon_threadsafe(self._on_second_signal)

    def _stop_starting(self) -> None:
        self._is_given_up = True
        if self._starting is not None:
            self._starting.cancel()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401  (uvicorn has types of its own)
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        self._starting = asyncio.current_task()

        async def send_on(message: MutableMapping[str, Any]) -> None:
            self._starting = None  # it has started: from now on it has to be stopped in good order
            if message["type"] == "lifespan.startup.failed":
                self.reason = message.pop("message", "") or self.reason
            self.has_stopped = message["type"].startswith("lifespan.shutdown.")
            await send(message)

        try:
            if not self._is_given_up:
                await self._app(scope, receive, send_on)
        except asyncio.CancelledError:
            if not self._is_given_up:
                raise
        if self._is_given_up and self._starting is not None:
            # Otherwise uvicorn would log an error with a traceback.
            await send_on({"type": "lifespan.startup.failed", "message": "stopped before it had started"})


async def run_lifespan(
    start: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]], receive: Receive, send: Send
) -> None:
    """Start and stop an application when the server says so. A failure is reported to the server."""
    while True:
        step = (await receive())["type"]
        act = start if step == "lifespan.startup" else stop
        try:
            await act()
        except Exception as error:  # noqa: BLE001  (whatever it is, the server has to know)
            await send({"type": f"{step}.failed", "message": scrub(str(error) or repr(error))})
            return
        await send({"type": f"{step}.complete"})
        if step == "lifespan.shutdown":
            return


@contextmanager
def _without_line(line: str) -> Iterator[None]:
    """Keep uvicorn from logging one line."""

    def is_another(record: logging.LogRecord) -> bool:
        return record.getMessage() != line

    logger = logging.getLogger("uvicorn.error")
    logger.addFilter(is_another)
    try:
        yield
    finally:
        logger.removeFilter(is_another)


@contextmanager
def _signals(handler: Callable[..., None]) -> Iterator[None]:
    """Uvicorn itself raises a signal again when it has stopped, which would end the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class BoundedHeadProtocol(asyncio.Protocol):
    """Bounds the seconds and bytes of a head, and how long a client takes nothing: uvicorn does neither.

    It also bounds the connections: with uvicorn's own limit, those that are open already are refused, too.

    A mixin before a protocol of uvicorn, which handles idle connections between two requests itself.
    Httptools reports where heads and bodies are. H11 does not, but bounds a head itself.
    """

    if TYPE_CHECKING:  # uvicorn's
        app: AsgiApp
        transport: asyncio.Transport
        cycle: Any
        scope: Any  # of the request that arrives
        connections: set[Any]  # of all clients
        tasks: set[asyncio.Task[None]]  # of all requests, also of those whose client has gone

    word_error: WordError = staticmethod(word_bot_api_error)
    _timer: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None  # while more waits for the client than the transport keeps
    _in_head = False
    _in_request = False  # from its first byte to the last one of its body
    _useless_bytes = 0  # since the last progress
    _has_progress = False  # made by the bytes just received

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS or len(self.tasks) >= MAX_CONNECTIONS:
            self.app = self._refuse_connection
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_taking()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_taking(math.inf)

    def resume_writing(self) -> None:
        self._stop_taking()
        super().resume_writing()

    def _watch_taking(self, before: float) -> None:
        """Cut the client off if no less waits for it than before. A close would wait for it, too."""
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._taking = asyncio.get_running_loop().call_later(TAKE_TIMEOUT, self._watch_taking, left)
        else:
            self.transport.abort()

    def _stop_taking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def data_received(self, data: bytes) -> None:
        self._has_progress = False
        if not self._in_request and not data.isascii() and hasattr(self, "parser"):
            data = _quoted_target(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        # With no request under way, the bytes are none, or only the beginning of one.
        if self._in_head or self.cycle is None or self.cycle.response_complete:
            self._start_timer()
        else:
            self._stop_timer()
        if hasattr(self, "parser"):  # httptools
            self._useless_bytes = 0 if self._has_progress else self._useless_bytes + len(data)
            if self._useless_bytes > MAX_HEAD_BYTES:
                self.send_400_response("the head of the request is too large")

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP. Uvicorn calls it, too, and would send plain text."""
        why = "the request is no valid HTTP" if msg == UVICORN_NO_HTTP else msg
        content_type, body = self.word_error(HTTPStatus.BAD_REQUEST, why, None)
        self.transport.write(_BAD_REQUEST_HEAD % (content_type.encode(), len(body)) + body)
        self.transport.close()

    async def _refuse_connection(self, _: Scope, __: Receive, send: Send) -> None:
        """Answer a request on a connection too many, which then ends: its client tries another one."""
        why = f"more than {MAX_CONNECTIONS:,} connections are open here: retry after {REFUSED_FOR}"
        content_type, body = self.word_error(HTTPStatus.SERVICE_UNAVAILABLE, why, REFUSED_FOR)
        headers = [
            (b"content-type", content_type.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"retry-after", b"%d" % REFUSED_FOR),
            (b"connection", b"close"),
        ]
        status = HTTPStatus.SERVICE_UNAVAILABLE
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HEAD_TIMEOUT, self._time_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        self.transport.close()

    # Called by httptools:

    def on_message_begin(self) -> None:
        self._in_head = self._in_request = self._has_progress = True
        super().on_message_begin()  # type: ignore[misc]

    def on_headers_complete(self) -> None:
        self._in_head, self._has_progress = False, True
        self._stop_timer()
        super().on_headers_complete()  # type: ignore[misc]

    def on_body(self, body: bytes) -> None:
        self._has_progress = True
        super().on_body(body)  # type: ignore[misc]

    def on_message_complete(self) -> None:
        self._in_request, self._has_progress = False, True
        self.scope[ARRIVED] = True
        super().on_message_complete()  # type: ignore[misc]


def _quoted_target(data: bytes) -> bytes:
    """Quote letters of other languages in the first line of a request.

    Shells and small HTTP libraries send them as they are. Telegram takes that, httptools refuses it.
    """
    line, end, rest = data.partition(b"\r\n")
    return (
        data if line.isascii() else _NOT_ASCII.sub(lambda found: b"%%%02X" % ord(found[0]), line) + end + rest
    )


class CoalescingTransport:
    """A transport that sends all writes of one turn of the loop at once: head and body of a response.

    Uvicorn writes them apart. Each write is a system call, which costs more than the rest of a response.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._written: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._written:
            self._loop.call_soon(self._flush)
        self._written.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()
        if (
            self._transport.get_write_buffer_size()
        ):  # else it would be open for as long as the client takes nothing
            self._loop.call_later(TAKE_TIMEOUT, self._transport.abort)

    def _flush(self) -> None:
        if self._written:
            self._transport.write(b"".join(self._written))
            self._written = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever a transport has)
        return getattr(self._transport, name)
