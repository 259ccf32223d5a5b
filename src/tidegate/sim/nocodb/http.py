"""The simulated NocoDB over HTTP: the v2 API at `/api/`, and a control API at `/sim/`."""

from aiohttp import http_exceptions, web

from tidegate.clock import Clock
from tidegate.sim.faults import ConnectionCut, Faults
from tidegate.sim.nocodb.answers import NocoDbAnswer, NocoDbApiError
from tidegate.sim.nocodb.control import NocoDbControl
from tidegate.sim.nocodb.limits import NocoLimits
from tidegate.sim.nocodb.nocodb import SimulatedNocoDb
from tidegate.sim.server import MAX_BODY, SimulatorServer, UnloggedRequestHandler


class _Connection(UnloggedRequestHandler):
    """A connection that refuses unreadable requests as Node does."""

    __slots__ = ()

    def error_response(self, status: int, error: BaseException | None) -> web.Response:
        if isinstance(error, http_exceptions.LineTooLong):
            status = 431
        return _response(NocoDbApiError(status, "", "the request could not be carried out").answer())


class NocoDbServer(SimulatorServer):
    """Use it with `async with`. It listens on loopback by default; port 0 takes a free one.

    While it is down, requests to the API are cut off without an answer; the control API works.
    """

    connection = _Connection

    def __init__(
        self,
        noco: SimulatedNocoDb | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: NocoLimits | None = None,
        faults: Faults | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(host, port)
        self.noco = noco or SimulatedNocoDb(Clock(), limits=limits, faults=faults, seed=seed)

    def _application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY)
        app.add_routes(NocoDbControl(self.noco).routes())
        app.router.add_route("*", "/{path:.*}", self._api)
        return app

    async def _api(self, request: web.Request) -> web.Response:
        body = await request.read() if request.can_read_body else None
        try:
            answer = await self.noco.handle(request.method, request.raw_path, request.headers, body)
        except ConnectionCut:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()  # the client does not receive it
        return _response(answer)


def _response(answer: NocoDbAnswer) -> web.Response:
    headers = {name: value for name, value in answer.headers.items() if name != "connection"}
    response = web.Response(status=answer.status, headers=headers, body=answer.body)
    if "connection" in answer.headers:
        response.force_close()
    return response
