"""Every page refuses whoever is not known, a role too low and another bot's scope, and renders its live part.

The pages are enumerated: a new one is tested without being named here.
"""

from collections.abc import Callable
from typing import Any, assert_never

import pytest

from api_caller import ApiCaller
from tidegate.ops.access import Principal, Role
from tidegate.ops.api.api_call import ApiCall
from tidegate.ops.api.routes import Scope
from tidegate.ops.dashboard.dashboard import NAVIGATION, PAGES, Dashboard
from tidegate.ops.dashboard.page import DashboardPage, PageIndex, PageMovedError, PageRequest
from tidegate.ops.dashboard.page_files import render_live
from unit.ops.api.service import BOT, CHAT, OTHER_BOT, SECRET_TEXT, Service

LOWER = {Role.OPERATOR: "viewer", Role.ADMIN: "operator"}


def pages(chosen: Callable[[DashboardPage], bool] = lambda _: True) -> pytest.MarkDecorator:
    found = [page for page in PAGES if chosen(page)]
    return pytest.mark.parametrize("page", found, ids=[page.path for page in found])


async def path_of(page: DashboardPage, service: Service) -> str:
    """Return the path of a thing that belongs to the first bot."""
    await service.put_letter()
    message = await service.put()
    things: dict[str, Callable[[], Any]] = {
        "{bot:int}": lambda: BOT,
        "{bot}": lambda: BOT,
        "{chat_id}": lambda: CHAT,
        "{message_id}": lambda: message,
        "{telegram_id}": service.put_history,
        "{job}": service.put_job,
        "{flow}": service.run_flow,
        "{name}": service.put_broadcast,
    }
    path = page.path
    for name, make in things.items():
        if name in path:
            made: Any = make()
            path = path.replace(name, str(await made if hasattr(made, "__await__") else made))
    assert "{" not in path, f"say in `path_of` what {path} is about"
    return path


@pages()
async def test_a_page_leads_whoever_is_not_known_to_the_login(page: DashboardPage, service: Service) -> None:
    path = await path_of(page, service)
    for caller in (ApiCaller(service.app), ApiCaller(service.app, "tg_" + "w" * 43)):
        answer = await caller.get(path)

        assert answer.status == 303
        assert answer.headers["location"].startswith("/login")
        assert SECRET_TEXT not in answer.body.decode()


@pages(lambda page: page.access.role is not Role.VIEWER)
async def test_a_page_refuses_a_role_that_is_too_low(page: DashboardPage, service: Service) -> None:
    caller = await service.caller(LOWER[page.access.role])

    answer = await caller.get(await path_of(page, service))

    assert answer.status == 403
    assert "needs the role" in answer.body.decode()


@pages()
async def test_a_page_is_there_for_its_role_and_shows_no_text_to_a_viewer(
    page: DashboardPage, service: Service
) -> None:
    path = await path_of(page, service)
    caller = await service.caller(page.access.role.value)

    answer = await caller.get(path)

    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    if page.access.role is Role.VIEWER:
        assert SECRET_TEXT not in answer.body.decode()
        assert "data-action=" not in answer.body.decode()


@pages()
async def test_a_page_keeps_a_token_of_one_bot_to_that_one(page: DashboardPage, service: Service) -> None:
    path = await path_of(page, service)
    caller = await service.caller("admin", OTHER_BOT)

    answer = await caller.get(path)

    match page.access.scope:
        case Scope.ALL | Scope.PATH:
            assert answer.status == 403
        case Scope.OBJECT:
            assert answer.status == 404
        case Scope.FILTER:
            assert answer.status == 200
            foreign = await caller.get(f"{path}?bot={BOT}")
            _, _, shown = foreign.body.decode().partition("<main")
            assert foreign.status == 403 or str(BOT) not in shown
        case Scope.NO_BOT:
            assert answer.status == 200
        case Scope.BODY:
            pytest.fail("a page has no body")
        case other:
            assert_never(other)
    assert SECRET_TEXT not in answer.body.decode()


@pages(lambda page: page.every is not None)
@pytest.mark.parametrize("role", list(Role))
async def test_the_live_part_of_a_page_renders_alone(
    page: DashboardPage, role: Role, service: Service
) -> None:
    path = await path_of(page, service)
    if not role.includes(page.access.role):
        return
    dashboard: Dashboard = service.app._dashboard  # noqa: SLF001  (what it gives to templates)
    found = PageIndex(list(PAGES)).find(path)
    assert found is not None
    call = ApiCall(dashboard._context, Principal(name="x", role=role))  # noqa: SLF001
    asked = PageRequest(call, found[1], "")

    context = {"can": asked.can, "now": call.clock.now(), **await page.view(asked)}

    assert "<html" not in render_live(page.template, context)


def test_every_place_of_the_menu_is_a_page_for_its_role_with_a_key_of_its_own() -> None:
    index = PageIndex(list(PAGES))
    for item in NAVIGATION:
        found = index.find(item.path)
        assert found is not None, item.path
        assert found[0].access.role.value == item.role
    keys = [item.key for item in NAVIGATION]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("path", ["/bots/" + "9" * 5_000, "/bots/99999999999999999999999", "/nothing/here"])
async def test_an_address_that_is_no_page_is_not_an_error_of_the_server(path: str, service: Service) -> None:
    assert (await service.admin.get(path)).status == 404


async def test_a_person_who_mistypes_an_address_gets_a_page_and_a_program_a_problem(service: Service) -> None:
    typed = await service.viewer.get("/mesages", accept="text/html,*/*;q=0.8")
    assert (typed.status, "<h1>There is nothing like that</h1>" in typed.body.decode()) == (404, True)
    for path, accept in (("/mesages", "*/*"), ("/api/v1/mesages", "text/html"), ("/queue/x", "text/html")):
        answer = await service.viewer.get(path, accept=accept)
        assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json")
    stranger = await ApiCaller(service.app).get("/mesages", accept="text/html")
    assert (stranger.status, stranger.headers["location"]) == (303, "/login?next=/mesages")


async def test_a_page_that_has_moved_leads_on(service: Service) -> None:
    ticket = await service.put()

    answer = await service.viewer.get(f"/messages?id={ticket}")

    assert (answer.status, answer.headers["location"]) == (303, f"/messages/{ticket}")
    assert str(PageMovedError("/x")) == "/x"
