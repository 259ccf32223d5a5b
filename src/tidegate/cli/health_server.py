"""`/healthz` and `/readyz` of a command that runs for long: the same answers as those of the webhook app."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from tidegate.cli import terminal
from tidegate.cli.listen_address import ListenAddress
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.gate import Tidegate
from tidegate.inbound.handlers import gate_problems
from tidegate.inbound.webhook_app import respond_health


@asynccontextmanager
async def serve_health(gate: Tidegate, place: ListenAddress | None, clock: Clock) -> AsyncIterator[None]:
    """Serve while the body runs, and say where; not at all without a place.

    Raises BadInputError if it cannot listen there.
    """
    if place is None:
        yield
        return
    place.check()

    def notes() -> Sequence[str]:
        return gate.health().reasons

    async def problems() -> dict[str, str]:
        return gate_problems(gate.health())

    async def answer(request: web.BaseRequest) -> web.Response:
        response = await respond_health(request.method, request.path, problems, notes, clock)
        body = response.body()
        headers = {name.decode(): value.decode() for name, value in response.headers(len(body), closes=False)}
        return web.Response(status=response.status, body=body, headers=headers)

    runner = web.ServerRunner(web.Server(answer, access_log=None), shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, place.host, place.port).start()
        except OSError as error:
            raise BadInputError(place.why_not(error)) from error
        host = f"[{place.host}]" if ":" in place.host else place.host
        terminal.note(f"health: http://{host}:{runner.addresses[0][1]}/healthz and /readyz")
        yield
    finally:
        await runner.cleanup()
