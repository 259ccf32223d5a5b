"""`/healthz`, `/readyz` and `/metrics` of a command that runs for long.

Health is answered as by the webhook app. Metrics need an API token.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Self

from aiohttp import web

from tidegate.cli.listen_address import ListenAddress
from tidegate.clock import Clock
from tidegate.database import tables_exist
from tidegate.errors import BadInputError, MissingExtraError, TidegateError
from tidegate.extras import extra
from tidegate.gate import Tidegate
from tidegate.inbound.handlers import gate_problems
from tidegate.inbound.webhook_app import respond_health
from tidegate.inbound.webhook_request import WebhookResponse, method_not_allowed
from tidegate.ops.access import AccessControl, Principal, Role

if TYPE_CHECKING:  # an extra
    from tidegate.ops.metrics import Metrics

Authenticate = Callable[[str], Awaitable[Principal | None]]

_HOW: Final = "tidegate token create --name prometheus makes one, sent as Authorization: Bearer …"
NO_TOKEN: Final = WebhookResponse(401, f"metrics need a valid API token: {_HOW}")
ONE_BOT: Final = WebhookResponse(403, f"metrics are of all bots, and this token is for one: {_HOW}")

log = logging.getLogger("tidegate")


@asynccontextmanager
async def serve_health(
    gate: Tidegate,
    place: ListenAddress | None,
    clock: Clock,
    *,
    authenticate: Authenticate | None = None,
    shared: bool = False,
) -> AsyncIterator[None]:
    """Serve while the body runs, and say where; not at all without a place.

    With `shared`, several processes of one command serve there: the system picks one for each connection.
    Health is that of this one, metrics are those of all.
    `authenticate` returns who has an API token; by default, as the database of the gate says. Raises
    BadInputError if it cannot listen there.
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
        if request.path == "/metrics":
            return await metrics.answer(request)
        return _response(await respond_health(request.method, request.path, problems, notes, clock))

    async with AsyncExitStack() as stack:
        if authenticate is None:
            authenticate = await stack.enter_async_context(tokens_of(gate))
        metrics = await stack.enter_async_context(MetricsEndpoint(gate, authenticate))
        runner = web.ServerRunner(web.Server(answer, access_log=None), shutdown_timeout=1.0)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        try:
            await web.TCPSite(runner, place.host, place.port, reuse_port=shared or None).start()
        except OSError as error:
            raise BadInputError(place.why_not(error)) from error
        host = f"[{place.host}]" if ":" in place.host else place.host
        log.info("health: http://%s:%s/healthz and /readyz", host, runner.addresses[0][1])
        yield


@asynccontextmanager
async def tokens_of(gate: Tidegate) -> AsyncIterator[Authenticate]:
    """Check API tokens by the database of a gate. One that does not exist is not made, and knows none."""
    access: AccessControl | None = None
    async with AsyncExitStack() as stack:

        async def authenticate(secret: str) -> Principal | None:
            nonlocal access
            if access is None and not await tables_exist(gate.core.store_name, gate.settings, gate.clock):
                return None
            if access is None:
                access = AccessControl.of(gate.core)
                await stack.enter_async_context(access)
            return await access.authenticate(secret)

        yield authenticate


class MetricsEndpoint:
    """`/metrics`, for API tokens that may see all bots. `async with` it while it is served.

    Without the extra that it needs, it says so, and counts nothing.
    """

    def __init__(self, gate: Tidegate, authenticate: Authenticate) -> None:
        self._authenticate = authenticate
        self._metrics: Metrics | None = None
        self._missing = ""
        try:
            with extra("prometheus_client"):
                from tidegate.ops import metrics  # noqa: PLC0415
        except MissingExtraError as error:
            self._missing = str(error)
        else:
            self._metrics = metrics.Metrics(gate, history=gate.history_recorder)

    async def __aenter__(self) -> Self:
        if self._metrics is not None:
            self._metrics.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._metrics is not None:
            await self._metrics.stop()

    async def answer(self, request: web.BaseRequest) -> web.Response:
        if request.method not in {"GET", "HEAD"}:
            return _response(method_not_allowed("GET, HEAD"))
        if self._metrics is None:
            return _response(WebhookResponse(503, self._missing))
        if (
            refusal := await _refuse(self._authenticate, request.headers.get("Authorization", ""))
        ) is not None:
            return _response(refusal)
        from tidegate.ops.metrics_text import render_metrics  # noqa: PLC0415  (an extra)

        kind, body = await render_metrics(self._metrics, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": kind, "Vary": "Accept"})


async def _refuse(authenticate: Authenticate, authorization: str) -> WebhookResponse | None:
    """Return the answer to somebody who may not see metrics; None to one who may."""
    scheme, _, secret = authorization.partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        return NO_TOKEN
    try:
        principal = await authenticate(secret.strip())
    except TidegateError as error:
        return WebhookResponse(503, f"the API token cannot be checked now: {error}", retry_after=5)
    if principal is None:
        return NO_TOKEN
    return None if principal.may(Role.VIEWER) and principal.bot is None else ONE_BOT


def _response(response: WebhookResponse) -> web.Response:
    body = response.body()
    headers = {name.decode(): value.decode() for name, value in response.headers(len(body), closes=False)}
    if response.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return web.Response(status=response.status, body=body, headers=headers)
