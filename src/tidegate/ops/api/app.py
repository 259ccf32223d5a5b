"""The HTTP service: one ASGI application for the API, webhooks, signed hooks, health and metrics.

Everything is denied unless it is declared: health is open, webhooks and hooks have secrets of their own, and
each other route says in its declaration who may use it.
"""

import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from tidegate.database.idempotency import SqlIdempotency
from tidegate.database.pending_actions import SqlPendingActions
from tidegate.inbound.handlers import gate_problems
from tidegate.inbound.server import run_lifespan
from tidegate.inbound.webhook_app import WebhookApp, respond_health
from tidegate.inbound.webhook_request import (
    BodyReader,
    Receive,
    RefusalLog,
    Scope,
    Send,
    WebhookRequest,
    WebhookResponse,
)
from tidegate.ops.access import AccessControl, Principal
from tidegate.ops.api import (
    access_routes,
    bots,
    broadcasts,
    dead_letters,
    flows,
    history,
    jobs,
    limits,
    messages,
    reminders,
    status,
)
from tidegate.ops.api.api_call import CONTEXT, PRINCIPAL, ApiContext, BotDirectory
from tidegate.ops.api.bodies import StreamLimit, header
from tidegate.ops.api.idempotency import AnswerStore
from tidegate.ops.api.login import CSRF_HEADER, LoginPages, cookie_of, redirect
from tidegate.ops.api.problems import (
    FORBIDDEN,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    UNAUTHENTICATED,
    ProblemError,
    problem_of,
    send_problem,
)
from tidegate.ops.api.puts import PUT, PUT_MANY, MessagePuts, PutTally
from tidegate.ops.api.routes import (
    SAFE,
    DeclaredRoute,
    RouteTable,
    add_routes,
    check_query,
    problem_response,
)
from tidegate.ops.dashboard.activity import Activity
from tidegate.ops.dashboard.dashboard import Dashboard
from tidegate.ops.dashboard.page_files import STATIC, send_static
from tidegate.ops.letter_actions import PendingActions, PendingActionStore
from tidegate.ops.metrics import Metrics
from tidegate.tasks import BackgroundTasks

if TYPE_CHECKING:
    from tidegate.gate import Tidegate

log = logging.getLogger("tidegate.api")

HEALTH: Final = frozenset(("/healthz", "/readyz"))
WEBHOOKS: Final = ("/webhook/", "/hooks/")
# What is answered is for nobody else, and is what its type says.
ALWAYS_SENT: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
NO_UPDATES: Final = WebhookResponse(
    404,
    "this process takes no updates and no hooks: send them to one with handlers, as tidegate up mybot:gate",
    at_unknown_path=True,
)
CLOSES: Final = ((b"connection", b"close"),)
Hot = Callable[[WebhookRequest, Send, Principal], Awaitable[None]]

ServicePart = AbstractAsyncContextManager[Any]


class ServiceApp:
    """The ASGI application. It opens the gate with the server, unless it is open, and closes what it opened.

    With a webhook app, that is served, started and stopped, too: then the process delivers. `parts` are
    entered once the gate is open, and left before it is closed.
    """

    def __init__(
        self,
        context: ApiContext,
        api: FastAPI,
        webhook: WebhookApp | None,
        parts: Sequence[ServicePart] = (),
    ) -> None:
        self._context = context
        self._gate = context.gate
        self._access = context.access
        self._api = api
        self._webhook = webhook
        self._parts = parts
        self._tally = PutTally(context.access, context.gate.clock)
        puts = MessagePuts(context, self._tally)
        self._hot: dict[tuple[str, str], Hot] = {
            (PUT.method, PUT.path): puts.put,
            (PUT_MANY.method, PUT_MANY.path): puts.put_many,
        }
        self._login = LoginPages(context.access, context.bodies)
        self._dashboard = Dashboard(context)
        self._refusals = RefusalLog(context.gate.clock)
        self._running = AsyncExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await run_lifespan(self.start, self.stop, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = WebhookRequest(scope, receive)
        if request.path in HEALTH:
            await self._answer_health(request, send)
        elif self._webhook is not None and request.path.startswith(WEBHOOKS):
            await self._webhook(scope, receive, send)
        elif request.path.startswith(STATIC) and await send_static(request.path, send):
            pass
        else:
            exchange = HttpExchange(request, send)
            try:
                await self._answer(request, scope, exchange)
            except Exception as error:  # noqa: BLE001  (whatever it is, the client gets a problem)
                problem = problem_of(error)
                if not exchange.is_answered:
                    await send_problem(problem, exchange.send)

    async def _answer(self, request: WebhookRequest, scope: Scope, exchange: "HttpExchange") -> None:
        send = exchange.send
        if request.path.startswith(WEBHOOKS):  # whoever sends here sees no log: the operator has to be told
            self._refusals.add(request, NO_UPDATES)
            raise ProblemError(NOT_FOUND, NO_UPDATES.error)
        if request.path == "/login":
            await (await self._login.answer(request, scope)).send(send)
            return
        principal = await self._authenticate(request)
        if principal is None and (login := self._dashboard.login_address(request, scope)) is not None:
            await redirect(login).send(send)
            return
        if principal is None:
            raise ProblemError(UNAUTHENTICATED, _why_unknown(request))
        if self._dashboard.serves(request):
            await self._dashboard.answer(request, scope, send, principal)
            return
        hot = self._hot.get((request.method, request.path))
        if hot is not None:
            check_query(parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True))
            await hot(request, send, principal)
            return
        if request.method not in _exact_paths().get(request.path, {request.method}):
            raise _not_allowed(request.method, request.path)  # FastAPI would take a word for an id
        scope[CONTEXT], scope[PRINCIPAL] = self._context, principal
        await self._api(scope, exchange.receive, send)

    async def _authenticate(self, request: WebhookRequest) -> Principal | None:
        """Return the one behind a token or a cookie; None if there is neither, or not a valid one."""
        kind, _, secret = header(request, "authorization").partition(" ")
        if kind.lower() == "bearer":
            return await self._access.authenticate(secret.strip())
        cookie = cookie_of(request)
        principal = None if cookie is None else await self._access.session(cookie)
        if principal is None or cookie is None or request.method in SAFE:
            return principal
        if not self._access.check_csrf(cookie, header(request, CSRF_HEADER)):
            text = "a session needs the header X-CSRF-Token to change something: see GET /api/v1/session"
            raise ProblemError(FORBIDDEN, text)
        return principal

    async def _answer_health(self, request: WebhookRequest, send: Send) -> None:
        async def problems() -> dict[str, str]:
            return gate_problems(self._gate.health().with_problems(self._access.problems()))

        def notes() -> Sequence[str]:
            return self._gate.health().reasons

        response = await respond_health(request.method, request.path, problems, notes, self._gate.clock)
        body = response.body()
        headers = response.headers(len(body), closes=False)
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else body})

    async def start(self) -> None:
        """Open what is not open. Raises whatever prevents that."""
        async with AsyncExitStack() as stack:
            if self._webhook is not None:
                await self._webhook.start()
                stack.push_async_callback(self._webhook.stop)
            elif not self._gate.is_open:
                await stack.enter_async_context(self._gate)
            await stack.enter_async_context(self._access)
            stack.push_async_callback(self._tally.close)
            self._context.metrics.start()
            stack.push_async_callback(self._context.metrics.stop)
            for part in self._parts:
                await stack.enter_async_context(part)
            await stack.enter_async_context(self._context.pending.running())
            tasks = BackgroundTasks()
            stack.push_async_callback(tasks.stop)
            activity, clock = self._context.activity, self._gate.clock
            tasks.supervise(activity.sample_often, "what samples the last hour", clock)
            tasks.supervise(activity.webhooks.ask_often, "what asks for webhooks", clock)
            self._running = stack.pop_all()

    def end_streams(self) -> None:
        """End what would last as long as somebody listens. Call it when the server begins to stop."""
        self._dashboard.live.end_streams()

    async def stop(self) -> None:
        self.end_streams()
        await self._running.aclose()


class HttpExchange:
    """A request and its answer. An answer before the end of the body ends the connection: nobody reads on."""

    def __init__(self, request: WebhookRequest, send: Send) -> None:
        self._request = request
        self._send = send
        self.is_answered = False

    async def receive(self) -> MutableMapping[str, Any]:
        message = await self._request.receive()
        self._request.is_read = self._request.is_read or not message.get("more_body")
        return message

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.is_answered = True
            closes = self._leaves_body and self._request.can_close
            message["headers"] = [*message["headers"], *ALWAYS_SENT, *(CLOSES if closes else ())]
        await self._send(message)

    @property
    def _leaves_body(self) -> bool:
        headers = self._request.headers
        has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
        return has_body and not self._request.is_read


def make_api(
    gate: "Tidegate",
    access: AccessControl,
    *,
    webhook: WebhookApp | None = None,
    metrics: Metrics | None = None,
    answers: AnswerStore | None = None,
    pending: PendingActionStore | None = None,
    parts: Sequence[ServicePart] = (),
) -> ServiceApp:
    """Return the ASGI application of a gate, for `tidegate.inbound.server.serve` or any other server.

    `webhook`: `gate.asgi()`, to receive updates and hooks, and to deliver, in this process. `metrics`: those
    of the gate, if it has some already. `answers`: where answers to requests with an Idempotency-Key are
    kept, and `pending` changes that can be undone; in the gate's database, if not given. `parts` run while it
    is served.
    """
    store = answers or SqlIdempotency(lambda: gate.database)
    bots, bodies = BotDirectory(gate), BodyReader(gate.clock)
    actions = pending or SqlPendingActions(lambda: gate.database)
    context = ApiContext(
        gate,
        access,
        bots,
        bodies,
        store,
        metrics or Metrics(gate),
        StreamLimit(),
        Activity(gate),
        PendingActions(actions, gate.outbox, access, gate.clock),
    )
    return ServiceApp(context, make_routes(), webhook, parts)


@functools.cache
def make_routes() -> FastAPI:
    """Return the routes of FastAPI. They know nothing of a gate: each request brings it along."""
    # A redirect would repeat the Host that the client named, over http:, with the token in the next request.
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    add_routes(app, declared_routes())
    app.add_exception_handler(HTTPException, _answer_unrouted)
    return app


TABLES: Final[Sequence[RouteTable]] = (
    messages.ROUTES,
    broadcasts.ROUTES,
    dead_letters.ROUTES,
    bots.ROUTES,
    limits.ROUTES,
    reminders.ROUTES,
    jobs.ROUTES,
    flows.ROUTES,
    history.ROUTES,
    access_routes.ROUTES,
    status.ROUTES,
)


def declared_routes() -> list[DeclaredRoute]:
    """Return every route that is not open to all, in the order of the document."""
    return [PUT, PUT_MANY, *(route for table in TABLES for route in table)]


def _why_unknown(request: WebhookRequest) -> str:
    """Say what to send. Why a token is refused is not told."""
    if header(request, "authorization").lower().startswith("bearer "):
        return "this token is wrong, has expired or was revoked: tidegate token create makes another"
    if cookie_of(request) is not None:
        return "this session has ended: log in again at /login"
    return "send a token: Authorization: Bearer tg_…, or log in at /login"


async def _answer_unrouted(request: Request, error: Exception) -> Response:
    """Answer a request that no route takes."""
    about = f"{request.method} {request.url.path}"
    if getattr(error, "status_code", None) != METHOD_NOT_ALLOWED.status:
        text = f"{about}: there is nothing here; GET /openapi.json has every route"
        return problem_response(ProblemError(NOT_FOUND, text))
    return problem_response(_not_allowed(request.method, request.url.path))


@functools.cache
def _exact_paths() -> Mapping[str, set[str]]:
    """Return the methods of each path that has no parameters."""
    routes = [route for route in declared_routes() if "{" not in route.path]
    return {route.path: {one.method for one in routes if one.path == route.path} for route in routes}


def _not_allowed(method: str, path: str) -> ProblemError:
    """Return the problem, with the methods that are declared for the path, also without FastAPI."""
    like = {route.method for route in declared_routes() if compile_path(route.path)[0].match(path)}
    allowed = ", ".join(sorted(_exact_paths().get(path, like)))
    text = f"{method} {path}: this path takes {allowed}"
    return ProblemError(METHOD_NOT_ALLOWED, text, headers={"allow": allowed})
