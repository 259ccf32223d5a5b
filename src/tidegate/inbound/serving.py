"""Serves an ASGI application with uvicorn, in the loop that runs."""

import asyncio
import gc
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import BadInputError, ClosedError
from tidegate.extras import extra
from tidegate.inbound.http.heads import BoundedHead
from tidegate.inbound.http.joined import JoinedTransport
from tidegate.inbound.http.request import Receive, Scope, Send

if TYPE_CHECKING:
    from uvicorn import Server

CONNECTIONS: Final = 2_000  # at once; more are answered with 503. Telegram opens up to 100 for each bot
KEEP_ALIVE: Final = 60  # seconds that a connection may be idle between two requests
GRACE: Final = 15  # seconds that requests have to end when the server stops
BACKLOG: Final = 1_024
LAST_PORT: Final = 65_535

App = Callable[[Scope, Receive, Send], Awaitable[None]]
OnReady = Callable[[int], object]


async def serve(
    app: App,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    reuse_port: bool = False,
    on_ready: OnReady | None = None,
) -> None:
    """Return after SIGTERM or SIGINT, when everything is answered and the application has stopped.

    Cancelled, it does the same first. With `reuse_port` several processes listen at one port, and the system
    shares the connections out. `on_ready` hears the port as soon as it listens. Raises BadInputError if it
    cannot listen there, and ClosedError if the application does not start.
    """
    listening = listen(host, port, reuse_port=reuse_port)
    try:
        server = _server(app, on_ready)
        serving = asyncio.create_task(server.serve([listening]), name="tidegate: http")
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            server.handle_exit(signal.SIGTERM, None)
            await asyncio.gather(serving, return_exceptions=True)
            raise
    finally:
        gc.unfreeze()
        listening.close()


def listen(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Raises BadInputError if it cannot be listened there.

    A port that is shared is only taken: uvicorn listens when the application has started. The system would
    give connections to this process before, which another one could answer at once.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    _check_port(port)
    if reuse_port and not hasattr(socket, "SO_REUSEPORT"):
        raise BadInputError("this system cannot share a port between processes: give each its own")
    try:
        if reuse_port:
            return _share(host, port, family)
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise BadInputError(f"cannot listen at {host} port {port}: {reason}") from None


def _check_port(port: object) -> None:
    if not isinstance(port, int) or not 0 <= port <= LAST_PORT:
        raise BadInputError(f"a port is a number from 0 (any that is free) to {LAST_PORT}, not {port!r}")


def _share(host: str, port: int, family: socket.AddressFamily) -> socket.socket:
    shared = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            shared.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # No SO_REUSEADDR: with it, one that does not share could take the port before this one listens.
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        shared.bind((host, port))
    except BaseException:
        shared.close()
        raise
    return shared


def _server(app: App, on_ready: OnReady | None) -> "Server":
    with extra("service", "uvicorn"):
        import uvicorn  # noqa: PLC0415  (an extra)
        from uvicorn.protocols.http.auto import AutoHTTPProtocol  # noqa: PLC0415

    failure = _Failure(app)

    class Serving(uvicorn.Server):
        """Uvicorn, except that a signal or a failure ends the server and not the process."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            with _signals(self.handle_exit):
                yield

        def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ANN401  (as uvicorn has it)
            super().handle_exit(sig, frame)
            if not self.started:  # uvicorn looks at it only then
                failure.give_up()

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            try:
                await super().startup(sockets)
            except SystemExit:
                raise ClosedError(f"nothing is served: {failure.reason}") from None
            # What is there now stays: it need not be looked through for garbage again and again.
            gc.freeze()
            if on_ready is not None and sockets:
                on_ready(sockets[0].getsockname()[1])

    class Joining(BoundedHead, AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # one of two, as installed
        def connection_made(self, transport: Any) -> None:  # noqa: ANN401  (as uvicorn has it)
            super().connection_made(JoinedTransport(transport))  # type: ignore[arg-type]  # as good as one

    config = uvicorn.Config(
        failure,
        http=Joining,
        interface="asgi3",
        lifespan="on",
        ws="none",
        log_config=None,  # logging is the application's to set up
        log_level="error",  # a stranger can cause any number of warnings
        access_log=False,  # the address of a hook may hold a secret
        server_header=False,
        proxy_headers=False,  # whose address it is matters only for what is refused: looked up then
        limit_concurrency=CONNECTIONS,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
    )
    return Serving(config)


class _Failure:
    """Notes why an application does not start: uvicorn keeps it to itself."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.reason = "the application did not start"
        self._living: asyncio.Task[Any] | None = None  # while it starts
        self._is_given_up = False
        self._loop = asyncio.get_running_loop()

    def give_up(self) -> None:
        self._loop.call_soon_threadsafe(self._stop_starting)

    def _stop_starting(self) -> None:
        self._is_given_up = True
        if self._living is not None:
            self._living.cancel()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401  (uvicorn has names of its own for these)
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        self._living = asyncio.current_task()

        async def send_on(message: MutableMapping[str, Any]) -> None:
            self._living = None  # it has started: now it has to be stopped in good order
            if message["type"] == "lifespan.startup.failed":
                self.reason = message.pop("message", "") or self.reason
            await send(message)

        try:
            if not self._is_given_up:
                await self._app(scope, receive, send_on)
        except asyncio.CancelledError:
            if not self._is_given_up:
                raise
        if self._is_given_up and self._living is not None:
            # Otherwise uvicorn would call it an error, with a traceback.
            await send_on({"type": "lifespan.startup.failed", "message": "stopped before it had started"})


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
