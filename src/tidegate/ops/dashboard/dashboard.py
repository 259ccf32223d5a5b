"""Serves the dashboard: pages on the functions of the API, and their live parts."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

from tidegate.inbound.webhook_request import Receive, Scope, Send, WebhookRequest
from tidegate.ops.access import AccessControl, Principal
from tidegate.ops.api.api_call import ApiCall, ApiContext
from tidegate.ops.api.bodies import header
from tidegate.ops.api.login import PlainResponse, cookie_of, redirect
from tidegate.ops.api.problems import BAD_INPUT, METHOD_NOT_ALLOWED, NOT_FOUND, ProblemError, problem_of
from tidegate.ops.api.routes import check_access
from tidegate.ops.dashboard import (
    access_pages,
    bot_pages,
    broadcast_pages,
    letter_pages,
    message_pages,
    now_page,
    source_pages,
)
from tidegate.ops.dashboard.live import LiveHub, LiveKey
from tidegate.ops.dashboard.page import DashboardPage, PageIndex, PageMovedError, PageRequest
from tidegate.ops.dashboard.page_files import PAGE_HEADERS, render, render_live
from tidegate.tasks import BackgroundTasks

LIVE: Final = "/live"
PAGES: Final[tuple[DashboardPage, ...]] = (
    *now_page.PAGES,
    *message_pages.PAGES,
    *broadcast_pages.PAGES,
    *letter_pages.PAGES,
    *bot_pages.PAGES,
    *source_pages.PAGES,
    *access_pages.PAGES,
)
# Pages that are reached from another one, which the menu shows as the present one.
AREAS: Final = dict.fromkeys(("/polling", "/reminders", "/jobs", "/flows"), "/sources")
# What no page is below: there, programs are answered, also those that say they take HTML.
PROGRAMS: Final = frozenset({"api", "queue", "metrics", "openapi.json"})
STREAM_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),  # nginx would collect events
)


class NavigationItem(NamedTuple):
    """A link of the menu. `key`: the letter that leads there after g."""

    path: str
    title: str
    key: str
    role: str = "viewer"


NAVIGATION: Final = (
    NavigationItem("/", "Now", "n"),
    NavigationItem("/messages", "Messages", "m"),
    NavigationItem("/broadcasts", "Broadcasts", "b"),
    NavigationItem("/dead-letters", "Dead letters", "x"),
    NavigationItem("/bots", "Bots and limits", "l"),
    NavigationItem("/sources", "Sources", "s"),
    NavigationItem("/audit", "Audit", "a", "admin"),
    NavigationItem("/tokens", "Tokens", "t", "admin"),
)


class Dashboard:
    """Answers requests for pages. `live` is told when the server stops."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._index = PageIndex(list(PAGES))
        self.live = LiveHub(context.gate.clock)

    def serves(self, request: WebhookRequest) -> bool:
        """Return whether a request is the dashboard's: for a page, or of a person who has mistyped one."""
        path = request.path
        if path == LIVE or self._index.find(path) is not None:
            return True
        is_typed = request.method == "GET" and "text/html" in header(request, "accept")
        return is_typed and path.removeprefix("/").partition("/")[0] not in PROGRAMS

    def login_address(self, request: WebhookRequest, scope: Scope) -> str | None:
        """Return where somebody who is not known is led: whoever opens a page in a browser. Else None."""
        if request.method not in {"GET", "HEAD"} or request.path == LIVE or not self.serves(request):
            return None
        query = scope["query_string"].decode("latin-1")
        wanted = request.path + (f"?{query}" if query else "")
        return "/login" if wanted == "/" else f"/login?next={quote(wanted)}"

    async def answer(self, request: WebhookRequest, scope: Scope, send: Send, principal: Principal) -> None:
        """Answer with a page, or follow its live part, for which it raises ProblemError."""
        if request.method not in {"GET", "HEAD"}:
            raise ProblemError(METHOD_NOT_ALLOWED, "use GET", headers={"allow": "GET, HEAD"})
        query = scope["query_string"].decode("latin-1")
        if request.path == LIVE:
            await self._follow(parse_qs(query).get("page", [""])[0], request.receive, principal, send)
            return
        frame = _frame(request, query, principal)
        try:
            page, context = await self._context_of(request.path, query, principal)
            status, body = 200, render(page.template, frame | context)
        except PageMovedError as moved:
            await redirect(moved.path).send(send)
            return
        except Exception as error:  # noqa: BLE001  (whatever it is, the reader gets a page)
            problem = problem_of(error)
            status, body = problem.status, render("error.html", frame | {"problem": problem})
        await PlainResponse(status, PAGE_HEADERS, body.encode()).send(send)

    async def _context_of(
        self, path: str, query: str, principal: Principal
    ) -> tuple[DashboardPage, dict[str, Any]]:
        """Return the page of an address, and what it shows to this principal. Raises ProblemError."""
        found = self._index.find(path)
        if found is None:
            raise ProblemError(NOT_FOUND, f"{path}: there is no such page")
        page, parts = found
        check_access(principal, page.access, parts.get("bot"))
        asked = PageRequest(ApiCall(self._context, principal), parts, query)
        shared = {"can": asked.can, "now": asked.call.clock.now(), "title": page.title, "every": page.every}
        return page, shared | await page.view(asked)

    async def _follow(self, address: str, receive: Receive, principal: Principal, send: Send) -> None:
        """Send a live part as long as the connection is there. The session was checked when it began."""
        place = urlsplit(address)
        page, shown = await self._context_of(place.path, place.query, principal)  # raises while it may still
        every: float | None = shown["every"]
        if every is None:
            raise ProblemError(BAD_INPUT, f"{place.path} has no live part")
        self.live.check_room()

        async def draw() -> str:
            _, context = await self._context_of(place.path, place.query, principal)
            return render_live(page.template, context)

        await send({"type": "http.response.start", "status": 200, "headers": list(STREAM_HEADERS)})
        key = LiveKey(f"{place.path}?{place.query}", principal.role, principal.bot)
        tasks = BackgroundTasks()
        try:
            sending = tasks.start(self._send_events(key, draw, every, send), "sends a live page")
            watching = tasks.start(_until_gone(receive), "watches who follows a live page")
            await asyncio.wait((sending, watching), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await tasks.stop()

    async def _send_events(
        self, key: LiveKey, draw: Callable[[], Awaitable[str]], every: float, send: Send
    ) -> None:
        async with aclosing(self.live.follow(key, draw, every)) as events:
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _frame(request: WebhookRequest, query: str, principal: Principal) -> dict[str, Any]:
    """Return what every page shows around its own part."""
    cookie = cookie_of(request)
    is_session = principal.session_id is not None and cookie is not None
    area = "/" + request.path.split("/")[1]
    return {
        "principal": principal,
        "can": lambda role: principal.role.includes(type(principal.role)(role)),
        "csrf": AccessControl.csrf_of(cookie or "") if is_session else "",
        "address": request.path + (f"?{query}" if query else ""),
        "area": AREAS.get(area, area),
        "navigation": [
            item for item in NAVIGATION if principal.role.includes(type(principal.role)(item.role))
        ],
        "every": None,
        "title": "Tidegate",
    }
