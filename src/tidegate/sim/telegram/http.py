"""The simulator over HTTP: the Bot API at `/bot<token>/<method>`, files, and a control API at `/sim/`."""

import asyncio
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import parse_qsl

import aiohttp
import msgspec
from aiohttp import web

from tidegate.clock import Clock
from tidegate.sim.telegram.call import Upload, bad_request
from tidegate.sim.telegram.control import Control
from tidegate.sim.telegram.faults import Faults
from tidegate.sim.telegram.limits import Limits
from tidegate.sim.telegram.methods import UNAUTHORIZED
from tidegate.sim.telegram.telegram import ConnectionCut, Telegram
from tidegate.sim.telegram.webhooks import WebhookAnswer
from tidegate.sim.telegram.world import World

MAX_BODY = 50 * 1024 * 1024
WEBHOOK_TIMEOUT = aiohttp.ClientTimeout(total=60)


class TelegramServer:
    """`async with` it: listens on loopback unless told otherwise, port 0 takes a free one."""

    def __init__(  # options of a simulator
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
        self._host, self._port = host, port
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None
        self.telegram = Telegram(
            clock or Clock(), limits=limits, faults=faults, world=world, seed=seed, post=self._post
        )
        self.control = Control(self.telegram)

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_route("*", "/bot{token}/{method}", self._bot_api)
        app.router.add_get("/file/bot{token}/files/{file_id}", self._download)
        app.add_routes(self.control.routes())
        # Requests go on when their client hangs up, as they would on Telegram's side of the wire.
        # No access log: its lines would hold tokens. Polls that wait are cut at the end.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, backlog=1024)
        try:
            await site.start()
        except OSError:
            await self._runner.cleanup()
            raise
        if self._port == 0:
            self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.control.close()
        await self.telegram.close()
        if self._session is not None:
            await self._session.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _bot_api(self, request: web.Request) -> web.Response:
        try:
            params, uploads = await _read(request)
        except ValueError:
            return _json(400, bad_request("can't parse the request").json())
        try:
            answer = await self.telegram.call(
                request.match_info["token"], request.match_info["method"], params, uploads
            )
        except ConnectionCut:
            if request.transport is not None:
                request.transport.close()
            return web.Response()  # nobody hears it
        if answer.raw is not None:
            return web.Response(status=answer.status, body=answer.raw)
        return _json(answer.status, answer.body)

    async def _download(self, request: web.Request) -> web.Response:
        if self.telegram.world.bot(request.match_info["token"]) is None:
            return _json(401, UNAUTHORIZED.json())
        file = self.telegram.world.files.get(request.match_info["file_id"])
        if file is None:
            return _json(404, {"ok": False, "error_code": 404, "description": "Not Found"})
        return web.Response(body=file.content, content_type="application/octet-stream")

    async def _post(self, url: str, headers: dict[str, str], body: bytes) -> WebhookAnswer:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=WEBHOOK_TIMEOUT)
        try:
            async with self._session.post(url, headers=headers, data=body, allow_redirects=False) as answer:
                try:
                    return WebhookAnswer(answer.status, *await _read_body(answer, {}))
                except ValueError:  # no call in it
                    return WebhookAnswer(answer.status)
        except aiohttp.ClientError as error:
            raise OSError(str(error)) from error


async def _read(request: web.Request) -> tuple[Mapping[str, Any], Mapping[str, Upload]]:
    """Parameters and uploads, from the query and from a body of any kind that Telegram takes."""
    params: dict[str, Any] = dict(request.query) if request.query_string else {}
    if not request.can_read_body:
        return params, {}
    return await _read_body(request, params)


async def _read_body(
    sent: web.Request | aiohttp.ClientResponse, params: dict[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Upload]]:
    kind = sent.content_type
    if kind.startswith("multipart/"):
        return await _read_multipart(aiohttp.MultipartReader(sent.headers, sent.content), params)
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
    parts: aiohttp.MultipartReader, params: dict[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Upload]]:
    uploads: dict[str, Upload] = {}
    async for part in parts:
        if not isinstance(part, aiohttp.BodyPartReader) or part.name is None:
            continue
        content = bytes(await part.read())
        if part.filename is None:
            params[part.name] = content.decode()
        else:
            mime = part.headers.get("Content-Type", "application/octet-stream")
            uploads[part.name] = Upload(part.filename, mime, content)
    return params, uploads


def _json(status: int, body: object) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")


async def serve_forever(server: TelegramServer) -> None:
    """Serve until cancelled."""
    async with server:
        await asyncio.Event().wait()
