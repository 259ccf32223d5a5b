"""The HTTP server of a simulator: its connections, and the requests of its control API.

A request line may hold a bot's token, so no part of a request reaches a log or an error page.
"""

import asyncio
import logging
import traceback
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeVar

import msgspec
from aiohttp import http_exceptions, web

from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.sim.faults import Latency

MAX_BODY = 50 * 1024 * 1024
MAX_LINE = 256 * 1024  # a GET may hold 4096 characters of 12 percent-encoded bytes each, and more
MAX_HEADER = 16 * 1024
# Errors of a client, and a race of aiohttp: if a request lasts longer than the shutdown may, it cancels the
# future that says when the request is over, and sets its result nevertheless.
FOREIGN_ERRORS = (
    asyncio.InvalidStateError,
    http_exceptions.HttpProcessingError,
    web.RequestPayloadError,
    ConnectionError,
)
UNREADABLE = (ValueError, RecursionError, http_exceptions.HttpProcessingError, web.RequestPayloadError)

ControlRequest = TypeVar("ControlRequest")
Options = TypeVar("Options", bound=msgspec.Struct)
ControlFunction = Callable[[web.Request], Awaitable[object]]
log = logging.getLogger("tidegate.sim.telegram.incoming")


class UnloggedRequestHandler(web.RequestHandler):
    """One connection. aiohttp would log and send back a request that it cannot parse; this does neither."""

    __slots__ = ()

    def error_response(self, status: int, error: BaseException | None) -> web.Response:
        """Return the error in the shape of the simulated service."""
        raise NotImplementedError

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002  (it quotes the request)
    ) -> web.StreamResponse:
        self.log_exception(exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer was already sent")
        answer = self.error_response(status, exc)
        answer.force_close()
        return answer

    def log_exception(self, *_: object, **about: Any) -> None:  # noqa: ANN401  (aiohttp's signature)
        """Log the type and the place of an error of the simulator; nothing of an error of the client."""
        error = about.get("exc_info")
        if isinstance(error, BaseException) and not isinstance(error, FOREIGN_ERRORS):
            place = traceback.extract_tb(error.__traceback__)[-1:]
            where = ", ".join(f"{frame.filename}:{frame.lineno}" for frame in place)
            log.error("the simulator failed: %s at %s", type(error).__name__, where)


class SimulatorServer(ABC):
    """Use it with `async with`. Port 0 takes a free one; there is no access log, as it would hold tokens.

    A request continues when its client hangs up, as on a real server. Requests that wait are cut at the end.
    """

    connection: type[UnloggedRequestHandler]

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None

    @abstractmethod
    def _application(self) -> web.Application:
        """Return the routes to serve."""

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    async def __aenter__(self) -> Self:
        self._runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                self._connection, self._host, self._port, backlog=1024
            )
        except OSError:
            await self._runner.cleanup()
            raise
        if self._port == 0:
            self._port = self._listening.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._listening is not None:
            self._listening.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _connection(self) -> UnloggedRequestHandler:
        assert self._runner is not None  # noqa: S101  (set before a client can connect)
        assert self._runner.server is not None  # noqa: S101
        return self.connection(
            self._runner.server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # this switches it off
            max_line_size=MAX_LINE,
            max_field_size=MAX_HEADER,
        )


def json_response(status: int, body: object) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")


def control_handler(action: ControlFunction) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Answer with the JSON that `action` returns, or with 400 and one line if its input is wrong."""

    async def handler(request: web.Request) -> web.Response:
        try:
            return json_response(200, await action(request))
        except (BadInputError, LookupError) as error:
            return json_response(400, {"error": str(error.args[0])})

    return handler


def option_routes(
    name: str, read: Callable[[], Options], write: Callable[[Options], None]
) -> list[web.RouteDef]:
    """Return the routes that show options (GET) and change some of them (PATCH)."""

    async def show(_: web.Request) -> object:
        return show_options(read())

    async def change(request: web.Request) -> object:
        write(change_options(read(), await read_request(request, dict[str, Any])))
        return show_options(read())

    path = f"/sim/{name}"
    return [web.get(path, control_handler(show)), web.patch(path, control_handler(change))]


async def read_request(request: web.Request, kind: type[ControlRequest]) -> ControlRequest:
    """Return the body as `kind`. Raises BadInputError if it is not."""
    try:
        return msgspec.json.decode(await request.read() or b"{}", type=kind)
    except msgspec.ValidationError as error:
        fields = getattr(kind, "__struct_fields__", ())
        hint = f": there are {', '.join(fields)}" if "unknown field" in str(error) and fields else ""
        raise BadInputError(f"{error}{hint}") from error
    except msgspec.DecodeError as error:
        raise BadInputError(str(error)) from error
    except UNREADABLE:
        raise BadInputError("the request cannot be read: send a JSON object") from None


def show_options(options: msgspec.Struct) -> dict[str, Any]:
    """Return options as JSON; rates and latencies as people write them."""
    shown: dict[str, Any] = msgspec.to_builtins(options, enc_hook=str)
    return shown


def change_options(options: Options, changes: dict[str, Any]) -> Options:
    """Return the options with `changes`, given as JSON. Raises BadInputError for a wrong one."""
    try:
        return msgspec.convert(show_options(options) | changes, type(options), dec_hook=_parse)
    except msgspec.ValidationError as error:
        raise BadInputError(str(error)) from error


def _parse(kind: type[Rate | Latency], text: object) -> Rate | Latency:
    return kind.parse(str(text))
