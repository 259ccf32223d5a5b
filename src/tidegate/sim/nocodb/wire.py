"""The simulator as a wire to an API, without HTTP: for whole runs in virtual time."""

import msgspec

from tidegate.sim.nocodb.answers import ConnectionCut
from tidegate.sim.nocodb.nocodb import NocoDb
from tidegate.upstream.wire import NoResponse, Request, Response


class NocoWire:
    """Speaks to a `NocoDb` of this process as `HttpWire` does to one behind a socket."""

    def __init__(self, noco: NocoDb, *, token: str = "any", timeout: float = 10.0) -> None:  # noqa: S107  (no secret)
        self._noco = noco
        # As a client over HTTP sends them: they count against the size of a request.
        self._headers = {
            "Host": "127.0.0.1:8082",
            "Accept": "*/*",
            "Accept-Encoding": "gzip, deflate",
            "User-Agent": "Python/3.11 aiohttp/3.13.0",
            "xc-token": token,
        }
        self._timeout = timeout

    async def send(self, request: Request) -> Response | NoResponse:
        body = None if request.body is None else msgspec.json.encode(request.body)
        try:
            async with self._noco.clock.timeout(self._timeout):
                answer = await self._noco.handle(request.method, request.target, self._headers, body)
        except ConnectionCut as cut:
            return NoResponse(left=cut.left, reason="disconnected" if cut.left else "connect")
        except TimeoutError:
            return NoResponse(left=True, reason="timeout")
        return Response(answer.status, answer.headers, answer.body)

    async def close(self) -> None:
        pass
