"""The simulator over HTTP: the Bot API at `/bot<token>/<method>`, files, and a control API at `/sim/`."""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Self

import aiohttp
from aiohttp import web

from tidegate.clock import Clock
from tidegate.sim.telegram.call import ApiError
from tidegate.sim.telegram.control import Control
from tidegate.sim.telegram.faults import Faults
from tidegate.sim.telegram.incoming import (
    MAX_BODY,
    MAX_HEADER,
    MAX_LINE,
    DiscreetHandler,
    as_json,
    read,
    read_answer,
)
from tidegate.sim.telegram.limits import Limits
from tidegate.sim.telegram.methods import NOT_FOUND, UNAUTHORIZED
from tidegate.sim.telegram.telegram import ConnectionCut, Telegram
from tidegate.sim.telegram.webhooks import WebhookAnswer
from tidegate.sim.telegram.world import World

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
        self._listening: asyncio.Server | None = None
        self.telegram = Telegram(
            clock or Clock(), limits=limits, faults=faults, world=world, seed=seed, post=self._post
        )
        self.control = Control(self.telegram)

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=MAX_BODY, middlewares=[_errors_as_json])
        app.router.add_route("*", "/bot{token}/{method}", self._bot_api)
        app.router.add_get("/file/bot{token}/files/{file_id}", self._download)
        app.add_routes(self.control.routes())
        # Requests go on when their client hangs up, as they would on Telegram's side of the wire.
        # No access log: its lines would hold tokens. Polls that wait are cut at the end.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
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
        await self.control.close()
        await self.telegram.close()
        if self._session is not None:
            await self._session.close()
        if self._listening is not None:
            self._listening.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _connection(self) -> DiscreetHandler:
        assert self._runner is not None  # noqa: S101  (set before anybody can connect)
        assert self._runner.server is not None  # noqa: S101
        return DiscreetHandler(
            self._runner.server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # that is how it is switched off
            max_line_size=MAX_LINE,
            max_field_size=MAX_HEADER,
        )

    async def _bot_api(self, request: web.Request) -> web.Response:
        token, method = request.match_info["token"], request.match_info["method"]
        try:
            answer = await self.telegram.call(token, method, *await read(request))
        except ApiError as error:
            answer = self.telegram.refuse(token, method, error)
        except ConnectionCut:
            if request.transport is not None:
                request.transport.close()
            return web.Response()  # nobody hears it
        if answer.raw is not None:
            return web.Response(status=answer.status, body=answer.raw)
        return as_json(answer.status, answer.body)

    async def _download(self, request: web.Request) -> web.Response:
        if self.telegram.world.bot(request.match_info["token"]) is None:
            return as_json(401, UNAUTHORIZED.json())
        file = self.telegram.world.files.get(request.match_info["file_id"])
        if file is None:
            return as_json(404, NOT_FOUND.json())
        return web.Response(body=file.content, content_type="application/octet-stream")

    async def _post(self, url: str, headers: dict[str, str], body: bytes) -> WebhookAnswer:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=WEBHOOK_TIMEOUT)
        try:
            async with self._session.post(url, headers=headers, data=body, allow_redirects=False) as answer:
                return WebhookAnswer(answer.status, *await read_answer(answer))
        except aiohttp.ClientError as error:
            raise OSError(str(error)) from error


@web.middleware
async def _errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """What aiohttp itself refuses (404, 405, 413) is said the way everything else here is."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        phrase = HTTPStatus(error.status).phrase
        ours = request.path.startswith("/sim/")
        return as_json(error.status, {"error": phrase} if ours else ApiError(error.status, phrase).json())
