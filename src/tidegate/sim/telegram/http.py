"""The simulated Telegram over HTTP: Bot API at `/bot<token>/<method>`, files, control API at `/sim/`."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
import msgspec
from aiohttp import web

from tidegate.clock import Clock
from tidegate.network_errors import status_phrase
from tidegate.sim.faults import ConnectionCut, Faults
from tidegate.sim.server import MAX_BODY, UNREADABLE, SimulatorServer, UnloggedRequestHandler, json_response
from tidegate.sim.telegram.call import Upload
from tidegate.sim.telegram.control import TelegramControl
from tidegate.sim.telegram.flood_control import Limits
from tidegate.sim.telegram.parameters import NOT_FOUND, UNAUTHORIZED, TelegramApiError, bad_request
from tidegate.sim.telegram.telegram import SimulatedTelegram
from tidegate.sim.telegram.update_delivery import WebhookAnswer
from tidegate.sim.telegram.world import World

CHUNK = 256 * 1024
TOO_LARGE = TelegramApiError(413, "Request Entity Too Large")
WEBHOOK_TIMEOUT = aiohttp.ClientTimeout(total=60)

ReadParameters = tuple[Mapping[str, Any], Mapping[str, Upload]]


class _Connection(UnloggedRequestHandler):
    __slots__ = ()

    def error_response(self, status: int, error: BaseException | None) -> web.Response:  # noqa: ARG002
        return json_response(status, TelegramApiError(status, status_phrase(status)).json())


class TelegramServer(SimulatorServer):
    """Use it with `async with`. It listens on loopback by default; port 0 takes a free one."""

    connection = _Connection

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        limits: Limits | None = None,
        faults: Faults | None = None,
        world: World | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(host, port)
        self._session: aiohttp.ClientSession | None = None
        self.telegram = SimulatedTelegram(
            clock or Clock(), limits=limits, faults=faults, world=world, seed=seed, post=self._post
        )
        self.control = TelegramControl(self.telegram)

    def _application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY, middlewares=[_errors_as_json])
        app.router.add_route("*", "/bot{token}/{method}", self._bot_api)
        app.router.add_get("/file/bot{token}/files/{file_id}", self._download)
        app.add_routes(self.control.routes())
        return app

    async def __aexit__(self, *exc: object) -> None:
        await self.control.close()
        await self.telegram.close()
        if self._session is not None:
            await self._session.close()
        await super().__aexit__(*exc)

    async def _bot_api(self, request: web.Request) -> web.Response:
        token, method = request.match_info["token"], request.match_info["method"]
        try:
            answer = await self.telegram.call(token, method, *await read_parameters(request))
        except TelegramApiError as error:
            answer = self.telegram.refuse(token, method, error)
        except ConnectionCut:
            if request.transport is not None:
                request.transport.close()
            return web.Response()  # the client does not receive it
        if answer.raw is not None:
            return web.Response(status=answer.status, body=answer.raw)
        return json_response(answer.status, answer.body)

    async def _download(self, request: web.Request) -> web.Response:
        if self.telegram.world.bot(request.match_info["token"]) is None:
            return json_response(401, UNAUTHORIZED.json())
        file = self.telegram.world.files.get(request.match_info["file_id"])
        if file is None:
            return json_response(404, NOT_FOUND.json())
        return web.Response(body=file.content, content_type="application/octet-stream")

    async def _post(self, url: str, headers: dict[str, str], body: bytes) -> WebhookAnswer:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=WEBHOOK_TIMEOUT)
        try:
            async with self._session.post(url, headers=headers, data=body, allow_redirects=False) as answer:
                return WebhookAnswer(answer.status, *await _read_webhook_answer(answer))
        except aiohttp.ClientError as error:
            raise OSError(str(error)) from error


async def read_parameters(request: web.Request) -> ReadParameters:
    """Return parameters and uploads, from the query and from a body of any kind that Telegram accepts.

    Raises Telegram's 400 or 413, and nothing else, whatever was sent.
    """
    try:
        request.path_qs.encode()  # bytes that are not text come as surrogates, which an answer cannot hold
        params: dict[str, Any] = dict(request.query) if request.query_string else {}
        return await _read_body(request, params) if request.can_read_body else (params, {})
    except UNREADABLE:
        raise bad_request("can't parse the request") from None
    except web.HTTPRequestEntityTooLarge:
        raise TOO_LARGE from None


async def _read_webhook_answer(answer: aiohttp.ClientResponse) -> ReadParameters:
    """Return the call in a bot's answer to a webhook; empty if there is none that can be read."""
    try:
        return await _read_body(answer, {})
    except (*UNREADABLE, TelegramApiError):
        return {}, {}


async def _read_body(sent: web.Request | aiohttp.ClientResponse, params: dict[str, Any]) -> ReadParameters:
    kind = sent.content_type
    if kind.startswith("multipart/"):
        return await _read_multipart(sent, params)
    body = await sent.read()
    if kind == "application/json":
        content = msgspec.json.decode(body) if body else {}
        if not isinstance(content, dict):
            raise ValueError("parameters must be an object")
        params.update(content)
    else:
        params.update(parse_qsl(body.decode(), keep_blank_values=True))
    return params, {}


async def _read_multipart(
    sent: web.Request | aiohttp.ClientResponse, params: dict[str, Any]
) -> ReadParameters:
    uploads: dict[str, Upload] = {}
    async for part in aiohttp.MultipartReader(sent.headers, sent.content):
        if not isinstance(part, aiohttp.BodyPartReader) or part.name is None:
            continue
        content = bytearray()
        while chunk := await part.read_chunk(CHUNK):
            content += chunk
            if sent.content.total_bytes > MAX_BODY:
                raise TOO_LARGE
        if part.filename is None:
            params[part.name] = content.decode()
        else:
            mime = part.headers.get("Content-Type", "application/octet-stream")
            f"{part.name}{part.filename}{mime}".encode()  # refuses surrogates, as above
            uploads[part.name] = Upload(part.filename, mime, bytes(content))
    return params, uploads


@web.middleware
async def _errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Give aiohttp's own refusals (404, 405, 413) the shape of all other errors."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        phrase = status_phrase(error.status)
        ours = request.path.startswith("/sim/")
        body = {"error": phrase} if ours else TelegramApiError(error.status, phrase).json()
        return json_response(error.status, body)
