"""Every route refuses no token, a wrong one, an expired one, a role too low, and another bot's scope.

The routes are enumerated: a new one is tested without being named here.
"""

from collections.abc import Callable
from typing import Any, assert_never

import pytest
from fastapi.routing import APIRoute

from api_caller import Answer, ApiCaller
from tidegate.ops.access import Role
from tidegate.ops.api.app import declared_routes, make_routes
from tidegate.ops.api.document import openapi_document
from tidegate.ops.api.document_parts import OPEN_PATHS
from tidegate.ops.api.routes import SAFE, DeclaredRoute, GuardedRoute, RouteAccess, RouteTable, Scope
from tidegate.sim.virtual_time import VirtualClock
from unit.ops.api.service import BOT, CHAT, OTHER_BOT, SECRET_TEXT, Service, problem

ROUTES = declared_routes()
DOCUMENT = openapi_document()  # outside of the event loop: it reads files
WRONG = "tg_" + "w" * 43
NEEDED_QUERY = {"/api/v1/history/search": "?text=mill&"}
LOWER = {Role.OPERATOR: "viewer", Role.ADMIN: "operator"}


def routes(chosen: Callable[[DeclaredRoute], bool] = lambda _: True) -> pytest.MarkDecorator:
    found = [route for route in ROUTES if chosen(route)]
    return pytest.mark.parametrize("route", found, ids=[f"{one.method} {one.path}" for one in found])


async def path_of(route: DeclaredRoute, service: Service) -> str:
    """Return the path of a thing that belongs to bot 42."""
    is_letter = "dead-letters" in route.path
    things = {
        "{bot}": lambda: BOT,
        "{chat_id}": lambda: CHAT,
        "{message_id}": service.put_letter if is_letter else service.put,
        "{job_id}": service.put_job,
        "{reminder_id}": service.put_reminder,
        "{token_id}": lambda: 1,
        "{pending_id}": service.put_pending,
        "{telegram_id}": service.put_history,
        "{name}": service.run_flow if "flows" in route.path else service.put_broadcast,
    }
    path = route.path
    path += NEEDED_QUERY.get(path, "?")
    for name, make in things.items():
        if name in path:
            made: Any = make()
            path = path.replace(name, str(await made if hasattr(made, "__await__") else made))
    assert "{" not in path, f"say in `path_of` what {path} is about"
    return path


def request_of(route: DeclaredRoute, path: str, **more: object) -> dict[str, Any]:
    """Return a request as the OpenAPI document gives it in its example."""
    operation = DOCUMENT["paths"][route.path][route.method.lower()]
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        example = content.get("example") or _example(content["schema"])
        if isinstance(example, str):
            line = f'{{"chat_id": 1, "text": "Hi", "bot": {more.get("bot", BOT)}}}'
            return {"path": path, "content": line.encode(), "headers": {"content-type": media_type}}
        return {"path": path, "json": {**example, **more}}
    return {"path": path}


def _example(schema: dict[str, Any]) -> Any:  # noqa: ANN401
    found = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found["example"]


async def ask(route: DeclaredRoute, caller: ApiCaller, request: dict[str, Any]) -> Answer:
    return await caller.call(route.method, **request)


@routes()
async def test_a_route_refuses_whoever_is_not_known(
    route: DeclaredRoute, service: Service, clock: VirtualClock
) -> None:
    request = request_of(route, await path_of(route, service))
    expired = await service.token("admin", expires_in=60.0)
    await clock.sleep(61.0)

    for caller in (
        ApiCaller(service.app),
        ApiCaller(service.app, WRONG),
        ApiCaller(service.app, expired),
        ApiCaller(service.app, headers={"cookie": "tidegate_session=tgs_" + "w" * 43}),
        ApiCaller(service.app, headers={"authorization": "Basic YWRtaW46YWRtaW4="}),
    ):
        answer = await ask(route, caller, request)
        assert problem(answer)[:2] == (401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"


@routes()
async def test_a_route_refuses_a_parameter_that_it_does_not_have(
    route: DeclaredRoute, service: Service
) -> None:
    """A misspelt filter was left out unseen: the list had everything."""
    path = f"{await path_of(route, service)}no_such_filter=1"

    answer = await ask(route, service.admin, request_of(route, path))

    assert problem(answer)[:2] == (422, "bad-input")
    assert "query.no_such_filter: there is no such parameter: " in answer.body.decode()


@routes(lambda route: route.access.role is not Role.VIEWER)
async def test_a_route_refuses_a_role_that_is_too_low(route: DeclaredRoute, service: Service) -> None:
    caller = await service.caller(LOWER[route.access.role])

    answer = await ask(route, caller, request_of(route, await path_of(route, service)))

    assert problem(answer)[:2] == (403, "forbidden")


@routes()
async def test_a_route_keeps_a_token_of_one_bot_to_that_one(route: DeclaredRoute, service: Service) -> None:
    caller = await service.caller("admin", OTHER_BOT)
    path = await path_of(route, service)
    if "dead-letters" in path:
        await service.put_letter()
    else:
        await service.put()
    await service.put_job()
    await service.put_reminder()
    await service.put_history()
    await service.put_broadcast()
    await service.run_flow()

    match route.access.scope:
        case Scope.ALL | Scope.PATH:
            answer = await ask(route, caller, request_of(route, path))
            assert problem(answer)[:2] == (403, "forbidden")
        case Scope.OBJECT:
            answer = await ask(route, caller, request_of(route, path))
            assert problem(answer)[:2] == (404, "not-found")
        case Scope.BODY:
            answer = await ask(route, caller, request_of(route, path, bot=BOT))
            assert answer.status in {403, 422}
            assert f"this token is for bot {OTHER_BOT} alone" in answer.body.decode()
        case Scope.FILTER:
            answer = await ask(route, caller, request_of(route, f"{path}bot={BOT}"))
            assert route.path == "/api/v1/bots" or problem(answer)[:2] == (403, "forbidden")
            answer = await ask(route, caller, request_of(route, path))
            if route.method == "GET":
                assert answer.status == 200
                items = answer.json.get("items", [answer.json])
                assert all(item.get("bot") == OTHER_BOT for item in items)
            else:
                assert answer.status in {201, 422}
                assert str(BOT) not in answer.body.decode()
        case Scope.NO_BOT:
            answer = await ask(route, caller, request_of(route, path))
            assert str(BOT) not in answer.body.decode() or route.path == "/openapi.json"
        case other:
            assert_never(other)
    assert SECRET_TEXT not in answer.body.decode()


@routes(lambda route: route.access.role is Role.VIEWER)
async def test_a_viewer_sees_no_text_of_a_message(route: DeclaredRoute, service: Service) -> None:
    path = await path_of(route, service)
    await service.put()
    await service.put_letter()
    await service.put_job()
    await service.put_reminder()
    await service.put_history()
    await service.put_broadcast()

    seen = await ask(route, service.viewer, request_of(route, path))
    by_operator = await ask(route, service.operator, request_of(route, path))

    assert SECRET_TEXT not in seen.body.decode()
    assert by_operator.status == seen.status


@routes()
async def test_a_session_changes_nothing_without_its_csrf_token(
    route: DeclaredRoute, service: Service
) -> None:
    session = await service.access.log_in(await service.token("admin"))
    assert session is not None
    caller = ApiCaller(service.app, headers={"cookie": f"other=1; tidegate_session={session.cookie}"})

    answer = await ask(route, caller, request_of(route, await path_of(route, service)))

    if route.method in SAFE:
        assert answer.status < 400
    else:
        assert problem(answer)[:2] == (403, "forbidden")
        assert "X-CSRF-Token" in answer.json["detail"]


def test_the_application_has_the_declared_routes_and_no_others() -> None:
    found = make_routes().router.routes

    assert all(isinstance(route, GuardedRoute) and route.declared is not None for route in found)
    with_framework = [route for route in ROUTES if route.endpoint is not None]
    declared = [route.declared for route in found if isinstance(route, GuardedRoute)]
    assert declared == with_framework


def test_the_document_describes_every_route_and_no_others() -> None:
    described = {
        (method.upper(), path)
        for path, item in DOCUMENT["paths"].items()
        for method in item
        if path not in OPEN_PATHS
    }
    assert described == {(route.method, route.path) for route in ROUTES}


def test_every_operation_of_the_document_has_an_example_of_all_that_goes_in_and_comes_out() -> None:
    missing = []
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            parts = {one["name"]: one for one in operation.get("parameters", [])}
            parts |= operation.get("requestBody", {}).get("content", {})
            for status, answer in operation["responses"].items():
                parts |= {f"{status} {kind}": one for kind, one in answer.get("content", {}).items()}
            missing += [f"{method} {path}: {name}" for name, one in parts.items() if not shows_itself(one)]
    assert missing == []


def shows_itself(part: dict[str, Any]) -> bool:
    """Return whether a parameter or body has an example, or one can be made of what its schema says."""
    schema = part.get("schema", part)
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    told = {*part, *schema} & {"example", "examples", "enum", "const", "default", "properties"}
    inner = [one for key in ("anyOf", "allOf", "oneOf") for one in schema.get(key, [])]
    inner += [schema["items"]] if "items" in schema else []
    return bool(told) or schema.get("type") == "boolean" or any(map(shows_itself, inner))


def test_a_route_that_changes_something_has_an_action_for_the_audit_log() -> None:
    assert all((route.action is not None) == route.changes for route in ROUTES)
    only_ask = [route.path for route in ROUTES if route.method not in SAFE and not route.changes]
    assert only_ask == ["/api/v1/broadcasts/preview"]
    table = RouteTable("test")
    with pytest.raises(TypeError, match="has an action"):
        table.change("GET", "/x", RouteAccess(Role.ADMIN, Scope.ALL), "x.change")
    with pytest.raises(TypeError):
        table.get("/x")  # type: ignore[call-arg]  # without access


@routes(lambda route: not route.changes)
async def test_a_route_that_only_asks_writes_nothing_to_the_audit_log(
    route: DeclaredRoute, service: Service
) -> None:
    path = await path_of(route, service)
    before = await service.audited()

    answer = await ask(route, service.admin, request_of(route, path, bot=BOT))

    assert answer.status < 300
    assert await service.audited() == before


async def test_a_route_that_was_not_declared_is_refused_to_everybody(service: Service) -> None:
    app = make_routes()

    async def sneaky() -> str:
        return "secret"

    app.add_api_route("/sneaky", sneaky)
    try:
        answer = await service.admin.get("/sneaky")
    finally:
        [route] = [one for one in app.router.routes if isinstance(one, APIRoute) and one.path == "/sneaky"]
        app.router.routes.remove(route)
    assert problem(answer)[:2] == (403, "forbidden")
