"""The simulator over HTTP: the Bot API at `/bot<token>/<method>`, files, and a control API at `/sim/`."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

import aiohttp
from aiohttp import web

from tidegate.clock import Clock
from tidegate.sim.faults import Faults
from tidegate.sim.server import SimulatorServer
from tidegate.sim.telegram.call import TelegramApiError
from tidegate.sim.telegram.control import TelegramControl
from tidegate.sim.telegram.flood_control import Limits
from tidegate.sim.telegram.incoming import (
    MAX_BODY,
    as_json,
    read,
    read_answer,
)
from tidegate.sim.telegram.methods import NOT_FOUND, UNAUTHORIZED
from tidegate.sim.telegram.telegram import SimulatedTelegram, TelegramConnectionCut
from tidegate.sim.telegram.update_delivery import WebhookAnswer
from tidegate.sim.telegram.world import World

WEBHOOK_TIMEOUT = aiohttp.ClientTimeout(total=60)


class TelegramServer(SimulatorServer):
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
            answer = await self.telegram.call(token, method, *await read(request))
        except TelegramApiError as error:
            answer = self.telegram.refuse(token, method, error)
        except TelegramConnectionCut:
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
        return as_json(
            error.status, {"error": phrase} if ours else TelegramApiError(error.status, phrase).json()
        )
