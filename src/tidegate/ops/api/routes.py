"""Routes of the API, each with the access that it needs: without one, a route cannot be declared.

Roles and scopes are checked here, before the body of a request is read. A route that comes to the application
in any other way than through a `RouteTable` is refused to everybody.
"""

import difflib
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import nullcontext
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final, Literal, TypeVar

import msgspec
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive

from tidegate.database.idempotency import OnceKey
from tidegate.failure import scrub
from tidegate.inbound.webhook_request import MAX_BODY_BYTES, WebhookRequest
from tidegate.ops.access import Principal, Role
from tidegate.ops.api.api_call import CALL, CONTEXT, PRINCIPAL, ApiCall, ApiContext
from tidegate.ops.api.bodies import JSON, body_of, header, is_json, media_type
from tidegate.ops.api.idempotency import (
    IDEMPOTENCY_KEY,
    answer_once,
    fingerprint,
    idempotency_key,
    owner_of,
)
from tidegate.ops.api.local_files import check_local_files
from tidegate.ops.api.problems import (
    BAD_INPUT,
    FORBIDDEN,
    UNSUPPORTED_TYPE,
    ProblemError,
    problem_of,
    problem_of_fields,
    problem_of_status,
)

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
Handle = Callable[[Request], Coroutine[Any, Any, Response]]

SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS"))


class Scope(StrEnum):
    """How a route finds out which bot it is about, so that a token of one bot is kept to that one.

    ALL, NO_BOT and PATH are checked by the route; FILTER, BODY and OBJECT by its function, with `ApiCall`.
    """

    ALL = "all"  # about all bots at once: refused to a token of one bot
    NO_BOT = "no_bot"  # about none
    PATH = "path"  # {bot}
    FILTER = "filter"  # ?bot=…: a token of one bot sees what belongs to that one
    BODY = "body"  # `bot` in the body
    OBJECT = "object"  # the bot of the thing in the path; one of another bot is not found


class RouteAccess(msgspec.Struct, frozen=True):
    """Access to a route: for callers with the role, or a higher one, and for bots in their scope."""

    role: Role
    scope: Scope


class DeclaredRoute(msgspec.Struct, frozen=True, kw_only=True):
    """`action` names a change in the audit log. `endpoint` is None for routes without FastAPI.

    `takes`: types of a body that its function reads as it arrives, and then does the same thing if it is
    asked again; else a body is JSON, and is read first.
    """

    method: Method
    path: str
    access: RouteAccess
    action: str | None = None
    endpoint: Callable[..., Any] | None = None
    options: Mapping[str, Any] = {}  # of FastAPI
    changes: bool = True  # False for a safe method, and a POST that only asks
    keeps_answer: bool = True  # False: the answer to a repeated Idempotency-Key would hold a secret
    takes: frozenset[str] = frozenset()
    largest_body: int = MAX_BODY_BYTES


class RouteTable:
    """Declared routes of one area, in order. Those that change something need the name of their action."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._routes: list[DeclaredRoute] = []

    def __iter__(self) -> Iterator[DeclaredRoute]:
        return iter(self._routes)

    def get(
        self,
        path: str,
        access: RouteAccess,
        **options: Any,  # noqa: ANN401  (FastAPI's)
    ) -> Callable[[Endpoint], Endpoint]:
        """Declare a route that changes nothing."""
        return self._declare("GET", path, access, None, options, changes=False)

    def ask(
        self,
        path: str,
        access: RouteAccess,
        *,
        largest_body: int = MAX_BODY_BYTES,
        **options: Any,  # noqa: ANN401  (FastAPI's)
    ) -> Callable[[Endpoint], Endpoint]:
        """Declare a route that changes nothing, though it is a POST: what is asked about is in the body."""
        return self._declare("POST", path, access, None, options, changes=False, largest_body=largest_body)

    def change(
        self,
        method: Method,
        path: str,
        access: RouteAccess,
        action: str,
        *,
        keeps_answer: bool = True,
        takes: frozenset[str] = frozenset(),
        largest_body: int = MAX_BODY_BYTES,
        **options: Any,  # noqa: ANN401  (FastAPI's)
    ) -> Callable[[Endpoint], Endpoint]:
        """Declare a route that changes something: each success is written to the audit log as `action`."""
        more = {"keeps_answer": keeps_answer, "takes": takes, "largest_body": largest_body}
        return self._declare(method, path, access, action, options, changes=True, **more)

    def _declare(
        self,
        method: Method,
        path: str,
        access: RouteAccess,
        action: str | None,
        options: Mapping[str, Any],
        *,
        changes: bool,
        **more: Any,  # noqa: ANN401  (of a declared route)
    ) -> Callable[[Endpoint], Endpoint]:
        if (action is not None) != changes or (changes and method in SAFE):
            raise TypeError(f"{method} {path}: a route that changes something, and no other, has an action")

        def declare(endpoint: Endpoint) -> Endpoint:
            self._routes.append(
                DeclaredRoute(
                    method=method,
                    path=path,
                    access=access,
                    action=action,
                    endpoint=endpoint,
                    options={"tags": [self._tag], **options},
                    changes=changes,
                    **more,
                )
            )
            return endpoint

        return declare


class GuardedRoute(APIRoute):
    """A route of FastAPI that is refused to everybody until it has been declared."""

    declared: DeclaredRoute | None = None

    def get_route_handler(self) -> Handle:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                return await self._answer(request, handle)
            except RequestValidationError as error:
                return problem_response(problem_of_fields(error.errors()))
            except HTTPException as error:
                return problem_response(problem_of_status(error.status_code, str(error.detail)))
            except Exception as error:  # noqa: BLE001  (whatever it is, the client gets a problem)
                return problem_response(problem_of(error))

        return guarded

    async def _answer(self, request: Request, handle: Handle) -> Response:
        declared, context = self.declared, request.scope[CONTEXT]
        if declared is None:
            raise ProblemError(FORBIDDEN, "this route says to nobody who may use it")
        call = request.scope[CALL] = ApiCall(context, request.scope[PRINCIPAL])
        check_access(call.principal, declared.access, request.path_params.get("bot"))
        check_query(request.query_params, [field.alias for field in self.dependant.query_params])
        call.request = arriving = WebhookRequest(request.scope, request.receive)
        body = b""
        if declared.takes:
            _check_type(arriving, declared.takes)
        elif self.body_field is not None:
            body = await body_of(context.bodies, arriving, declared.largest_body)
            _check_type(arriving, frozenset((JSON,)) if body else frozenset())
            check_local_files(body)
        else:
            _check_bodiless(arriving)
        given = Request(request.scope, _receive_again(body))
        if declared.action is None:
            return await handle(given)
        with context.streams.hold() if declared.takes else nullcontext():
            return await self._change(declared, call, context, given, body, handle)

    @staticmethod
    async def _change(  # noqa: PLR0917
        declared: DeclaredRoute,
        call: ApiCall,
        context: ApiContext,
        request: Request,
        body: bytes,
        handle: Handle,
    ) -> Response:
        """Do it once for each Idempotency-Key, and write it to the audit log."""

        async def act() -> Response:
            response = await handle(request)
            if response.status_code < HTTPStatus.BAD_REQUEST:
                await call.access.note(
                    call.principal,
                    declared.action or "",
                    bot=call.audited_bot,
                    target=call.audited_target,
                    detail=call.audited_detail,
                )
            return response

        key = idempotency_key(request.headers.get(IDEMPOTENCY_KEY))
        if key is None or declared.takes:
            return await act()
        once = OnceKey(owner_of(call.principal), key)
        print_of = fingerprint(request, body)
        return await answer_once(
            context.answers, once, print_of, act, call.clock, keeps_answer=declared.keeps_answer
        )


def check_access(principal: Principal, access: RouteAccess, bot_in_path: object = None) -> None:
    """Raise ProblemError if the role is too low, or the route is about a bot out of scope."""
    if not principal.role.includes(access.role):
        raise ProblemError(
            FORBIDDEN, f"that needs the role {access.role}: {principal.name} has the role {principal.role}"
        )
    if principal.bot is None:
        return
    if access.scope is Scope.ALL:
        raise ProblemError(FORBIDDEN, f"that is about all bots: this token is for bot {principal.bot} alone")
    if access.scope is Scope.PATH and str(bot_in_path) != str(principal.bot):
        raise ProblemError(FORBIDDEN, f"this token is for bot {principal.bot} alone")


def check_query(given: Collection[str], known: Collection[str] = ()) -> None:
    """Raise ProblemError for a parameter that the route does not have: a filter would be left out unseen."""
    for name in given:
        if name not in known:
            meant = " or ".join(difflib.get_close_matches(name, known, 1) or known)
            hint = f"{meant} may be meant" if meant else "this path takes none"
            field, detail = scrub(f"query.{name}"), f"there is no such parameter: {hint}"
            raise ProblemError(BAD_INPUT, f"{field}: {detail}", errors=[{"field": field, "detail": detail}])


def add_routes(app: FastAPI, declared: Iterable[DeclaredRoute]) -> None:
    """Give an application its routes. Those without FastAPI are left out."""
    app.router.route_class = GuardedRoute
    for one in declared:
        if one.endpoint is None:
            continue
        app.add_api_route(one.path, one.endpoint, methods=[one.method], **one.options)
        route = app.router.routes[-1]
        if not isinstance(route, GuardedRoute):
            raise TypeError(f"{one.method} {one.path} is not guarded")
        route.declared = one


def _check_type(request: WebhookRequest, takes: frozenset[str]) -> None:
    """Raise ProblemError if the body is of none of these types. None at all: there is no body."""
    given = header(request, "content-type")
    if takes and media_type(given) not in takes and not (JSON in takes and is_json(given)):
        raise ProblemError(UNSUPPORTED_TYPE, f"send the body as content-type: {' or '.join(sorted(takes))}")


def _check_bodiless(request: WebhookRequest) -> None:
    """Raise ProblemError for fields where a route takes none: what they select would be left out unseen.

    An empty object says nothing, and is what some libraries always send.
    """
    if request.method not in SAFE and int(header(request, "content-length") or 0) > len("null"):
        raise ProblemError(BAD_INPUT, "this path takes no fields, and there is a body: leave it out")


def problem_response(problem: ProblemError) -> Response:
    return Response(problem.body(), problem.status, problem.headers())


def _receive_again(body: bytes) -> Receive:
    """Give a body that was read before to whoever reads it next."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
