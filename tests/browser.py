"""Chromium without a window, driven by Playwright. Its pages reach nothing but their own address."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Self

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    Page,
    Response,
    Route,
    expect,
    sync_playwright,
)

from servers import CHROMIUM, find

FLAGS: Final = (
    "--no-sandbox",  # as root it would not start
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
COMPLAINTS: Final = frozenset({"error", "warning"})  # kinds of console messages
PATIENCE_MS: Final = 15_000
COOKIE: Final = "tidegate_session"
# Asked for before any script of a page runs; the console tells it to the test.
REPORT_VIOLATIONS: Final = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`the policy forbids ${event.violatedDirective}: ${event.blockedURI}`));
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser that is found or installed, never downloaded. Raises ServerMissing.

    While it lasts, asyncio takes this thread for one that runs a loop: Playwright runs one beneath.
    """
    path = str(find(CHROMIUM).path)
    with sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE_MS)
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """A person with a browser of their own: `page` is what they see, `complaints` what should not be.

    Those are errors and warnings of the console, scripts that fail, what the content policy forbids, and
    requests to anywhere else, which are not made.
    """

    def __init__(self, browser: Browser, origin: str, cookie: str | None = None, **options: Any) -> None:  # noqa: ANN401
        self.origin = origin
        self.complaints: list[str] = []
        # Nothing is looked at, or clicked, while it appears.
        self.context = browser.new_context(base_url=origin, reduced_motion="reduce", **options)
        self.context.set_default_timeout(PATIENCE_MS)
        self.context.add_init_script(REPORT_VIOLATIONS)
        self.context.route("**/*", self._let_through)
        if cookie is not None:
            self.context.add_cookies([{"name": COOKIE, "value": cookie, "url": origin}])
        self.response: Response
        self.page: Page = self.context.new_page()
        self.page.on("console", self._hear)
        self.page.on("pageerror", self._fail)
        self.page.on("dialog", lambda dialog: self.complaints.append(f"a dialog: {dialog.message}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        # Chromium does not answer when a context is closed while a script of its page is leaving for another.
        with suppress(Error):
            self.page.goto("about:blank")
        self.context.close()

    def open(self, address: str) -> Response:
        response = self.page.goto(address, wait_until="load")
        assert response is not None
        self.response = response
        return response

    def _let_through(self, route: Route) -> None:
        if route.request.url.startswith(f"{self.origin}/"):
            route.continue_()
        else:
            self.complaints.append(f"a request to {route.request.url}")
            route.abort()

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in COMPLAINTS:
            self.complaints.append(f"{message.type}: {message.text} ({message.location['url']})")

    def _fail(self, error: Error) -> None:
        self.complaints.append(f"a script failed: {error}")
