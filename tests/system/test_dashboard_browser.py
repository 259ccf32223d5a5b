"""The dashboard in a real browser: what people do on it, what keeps it safe, and who can use it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # ships none
from playwright.sync_api import Browser, Page, Route, expect

from browser import COOKIE, Visitor
from make_screenshots import addresses
from system.dashboard_service import (
    HOSTILE,
    PAUSED,
    SECRET_TEXT,
    SENDING,
    WAITING_CHAT,
    DashboardService,
)
from system.service_process import serving
from tidegate.clock import Clock
from tidegate.ops.dashboard.dashboard import NAVIGATION, PAGES

pytestmark = pytest.mark.usefixtures("a_command_may_block")
STOPS_WITHIN = 6.0  # seconds; 1 where nothing else runs. A stream that is not ended lasts for a minute
MARK = "window.isTheSamePage = true"
IS_SAME = "window.isTheSamePage === true"
# Everything that is reached by Tab: what is shown, not switched off, and takes the focus.
CONTROLS = """
() => {
  window.controls = [...document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [tabindex]:not([tabindex='-1'])")]
    .filter((one) => one.checkVisibility() && !one.disabled && !one.closest("dialog:not([open])"));
  return controls.map((one) => one.outerHTML.slice(0, 120));
}
"""
FOCUSED = "() => controls.indexOf(document.activeElement)"
PLANTED = "[onerror], [onload], [onfocus], script:not([src]), [href^='javascript:'], img[src='x']"


# No flow runs in this process: its page is in the screenshots, and in tests of the pages of sources.
PATHS: Final = [page.path for page in PAGES if page.path != "/flows/{flow}"]


@pytest.fixture
def admin(dashboard: DashboardService) -> Iterator[Visitor]:
    """Somebody who may do everything, and to whom nothing may happen that should not."""
    with dashboard.visitor() as visitor:
        yield visitor
    assert visitor.complaints == []


@pytest.fixture
def viewer(dashboard: DashboardService) -> Iterator[Visitor]:
    with dashboard.visitor("viewer") as visitor:
        yield visitor


def test_a_first_look_at_the_sample_by_the_one_time_link(chromium: Browser, tmp_path: Path) -> None:
    started = serving("up", "--sample", folder=tmp_path, TMPDIR=str(tmp_path))  # it is killed in the end
    with started as service, Visitor(chromium, service.url) as visitor:
        link, page = service.link(), visitor.page
        visitor.open(link)
        expect(page).to_have_url(f"{service.url}/")
        expect(page.get_by_role("heading", name="Now", level=1)).to_be_visible()

        # Numbers move, and the page is not loaded anew.
        page.evaluate(MARK)
        sends = page.get_by_role("region", name="All bots").locator(".fact-value").first
        for _ in range(3):
            expect(sends).not_to_have_text(sends.inner_text())
        assert page.evaluate(IS_SAME)
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        assert visitor.complaints == []

        # The link is used up, for others and for its user.
        with Visitor(chromium, service.url) as late:
            assert late.open(link).status == 401
            expect(late.page.get_by_role("alert")).to_contain_text("was used")
            expect(late.page.get_by_label("API token")).to_be_focused()


def test_an_open_page_lets_the_service_stop_says_so_and_comes_back_with_it(
    chromium: Browser, tmp_path: Path
) -> None:
    up, clock = ("up", "--store", "bot.db"), Clock()
    with serving(*up, folder=tmp_path) as service, Visitor(chromium, service.url) as visitor:
        page, connection = visitor.page, visitor.page.locator("#connection")
        visitor.open(service.link())
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        page.evaluate(MARK)
        started = clock.monotonic()
        service.process.terminate()
        assert service.process.wait(10) == 0
        assert clock.monotonic() - started < STOPS_WITHIN
        expect(page.get_by_text("not live")).to_be_visible()
        expect(connection).to_contain_text("Tidegate cannot be reached. What you see is from")

        with serving(*up, folder=tmp_path, port=service.port):
            expect(connection).to_be_hidden()
            expect(page.get_by_text("live", exact=True)).to_be_visible()
            assert page.evaluate(IS_SAME)

            # The session ends in another tab: this one says so when its stream has to begin anew.
            page.evaluate("dispatchEvent(new Event('pagehide'))")
            visitor.context.clear_cookies()
            page.evaluate("dispatchEvent(new Event('pageshow'))")
            expect(connection).to_contain_text("Your session has ended.")
            page.get_by_role("link", name="Log in again").click()
            expect(page).to_have_url(f"{service.url}/login?next=%2F")


def test_a_page_whose_store_is_away_says_since_when_it_is_old(admin: Visitor) -> None:
    page, connection = admin.page, admin.page.locator("#connection")
    told = "event: trouble\ndata: Redis cannot be reached\n\n"
    page.route("**/live?*", lambda route: route.fulfill(body=told, content_type="text/event-stream"))
    admin.open("/bots")
    expect(page.get_by_text("not live")).to_be_visible()
    expect(connection).to_contain_text("Redis cannot be reached. What you see is from")
    page.unroute("**/live?*")
    expect(connection).to_be_hidden()
    expect(page.get_by_text("live", exact=True)).to_be_visible()


def test_a_token_logs_in_to_the_page_that_was_asked_for_and_out_again(dashboard: DashboardService) -> None:
    with dashboard.visitor(None) as visitor:
        page = visitor.page
        visitor.open("/bots?x=1")
        expect(page).to_have_url(re.compile(r"/login\?next="))
        assert visitor.complaints == []
        page.get_by_label("API token").fill("tg_wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("wrong")
        visitor.complaints.clear()  # the console says that the answer was 401
        page.get_by_label("API token").fill(dashboard.tokens["operator"])
        page.get_by_role("button", name="Log in").click()
        expect(page).to_have_url(re.compile(r"/bots\?x=1$"))

        page.get_by_role("button", name="Log out").click()
        expect(page).to_have_url(re.compile("/login$"))
        for address in ("/", "/bots", f"/bots/{SENDING}"):
            visitor.open(address)
            expect(page).to_have_url(re.compile("/login"))
        assert visitor.complaints == []


def test_a_link_on_another_site_leads_somebody_who_is_logged_in_to_its_page(admin: Visitor) -> None:
    """The cookie does not come with the first request: the login page asks again, from here."""
    page, elsewhere = admin.page, "http://elsewhere.example/"
    link = f'<a href="{admin.origin}/bots?x=1">Look</a>'
    page.route(elsewhere, lambda route: route.fulfill(body=link, content_type="text/html"))
    admin.open(elsewhere)
    page.get_by_text("Look").click()
    expect(page).to_have_url(f"{admin.origin}/bots?x=1")


def test_numbers_change_on_an_open_page_and_what_has_the_focus_keeps_it(
    dashboard: DashboardService, admin: Visitor
) -> None:
    page = admin.page
    admin.open("/bots")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=str(SENDING), exact=True))
    link = page.get_by_role("link", name=str(PAUSED), exact=True)
    link.focus()
    page.evaluate(MARK)
    page.evaluate("addEventListener('focusout', () => { window.isTheSamePage = false; })")
    dashboard.put(45)
    expect(row.get_by_role("cell").nth(1)).not_to_have_text("0")  # sends a second
    expect(row.get_by_role("cell").nth(3)).to_have_text("0")  # and all have gone
    expect(link).to_be_focused()
    assert page.evaluate(IS_SAME)


def test_a_button_that_had_the_focus_became_that_of_another_row(
    dashboard: DashboardService, admin: Visitor
) -> None:
    """A row came above it: Enter would have acted on what nobody had chosen."""
    page = admin.page
    admin.open("/broadcasts")
    button = page.get_by_role("row").filter(has_text="sale").get_by_role("button", name="Cancel")
    button.focus()
    asked = button.get_attribute("data-action")
    names = [f"later-{number}" for number in range(3)]
    for name in names:
        body = {"name": name, "bot": PAUSED, "audience": [WAITING_CHAT], "text": "Hello"}
        dashboard.told("POST", "/api/v1/broadcasts", body=body)
        expect(page.get_by_role("rowheader").filter(has_text=name)).to_be_visible()
    expect(page.get_by_role("rowheader")).to_contain_text([*reversed(names), "sale"])
    assert page.evaluate("document.activeElement.dataset.action") == asked


def test_a_button_could_be_pressed_again_before_its_call_had_an_answer(
    dashboard: DashboardService, admin: Visitor
) -> None:
    """The live view had switched it on."""
    page, held = admin.page, list[Route]()

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/resume", hold)
    admin.open("/bots")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=str(SENDING), exact=True))
    button = page.get_by_role("button", name="Resume")
    button.click()
    expect(button).to_be_disabled()
    dashboard.put(45)
    expect(row.get_by_role("cell").nth(1)).not_to_have_text("0")  # it is live
    expect(button).to_be_disabled()
    held[0].fulfill(status=204)
    expect(button).to_be_enabled()


def test_what_was_typed_was_lost_when_the_session_had_ended(dashboard: DashboardService) -> None:
    with dashboard.visitor() as visitor:
        page = visitor.page
        visitor.open("/broadcasts/new")
        page.get_by_label("Name").fill("spring")
        page.get_by_label("Text", exact=True).fill("typed for an hour")
        page.get_by_label("Audience", exact=True).fill("1001")
        visitor.context.clear_cookies()
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("#connection")).to_contain_text("Your session has ended. Log in again")
        fresh = dashboard.cookie("operator")
        visitor.context.add_cookies([{"name": COOKIE, "value": fresh, "url": visitor.origin}])
        page.get_by_role("button", name="Preview").click()
        expect(page.locator(".bubble")).to_contain_text("typed for an hour")


def test_a_page_without_scripts_has_its_numbers_its_menu_and_a_word_about_it(
    dashboard: DashboardService,
) -> None:
    phone = {"width": 390, "height": 844}
    with dashboard.visitor(java_script_enabled=False, viewport=phone) as visitor:
        page = visitor.page
        visitor.open("/bots")
        expect(page.get_by_text("Without JavaScript")).to_be_visible()
        expect(page.get_by_role("row").filter(has_text=str(SENDING))).to_be_visible()
        expect(page.get_by_role("button")).to_have_count(0)
        page.get_by_role("link", name="Dead letters", exact=True).click()
        expect(page.get_by_role("heading", name="Dead letters", level=1)).to_be_visible()


def test_no_form_with_a_secret_writes_it_into_the_address_before_its_script_has_come(
    admin: Visitor,
) -> None:
    for address in ("/bots", f"/bots/{SENDING}", "/tokens", "/broadcasts/new"):
        admin.open(address)
        methods = admin.page.locator("main form:not([role=search])").evaluate_all(
            "all => all.map((one) => one.method)"
        )
        assert methods
        assert set(methods) == {"post"}, address


def test_a_bot_whose_token_was_revoked_gets_its_new_one_on_its_page(
    dashboard: DashboardService, admin: Visitor
) -> None:
    page, before = admin.page, dashboard.told("GET", f"/api/v1/bots/{SENDING}")
    admin.open(f"/bots/{SENDING}")
    page.get_by_text("Give it a new token").click()
    page.get_by_label("Token, from @BotFather").fill(f"{SENDING}:token")
    page.get_by_role("button", name="Save the token").click()
    expect(page.get_by_role("status").filter(has_text="used from now on")).to_be_visible()
    assert dashboard.told("GET", f"/api/v1/bots/{SENDING}")["api_url"] == before["api_url"]


def test_a_bot_is_paused_and_resumed(dashboard: DashboardService, admin: Visitor) -> None:
    page = admin.page
    admin.open("/bots")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=str(SENDING), exact=True))

    row.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Back").click()
    assert not is_paused(dashboard)

    row.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_contain_text(f"Bot {SENDING} is paused.")
    expect(row.get_by_text("paused")).to_be_visible()
    assert is_paused(dashboard)

    # By keys alone: the button keeps the focus when it becomes the other one.
    expect(row.get_by_role("button", name="Resume")).to_be_focused()
    page.keyboard.press("Enter")
    expect(row.get_by_text("open")).to_be_visible()
    assert not is_paused(dashboard)


def test_who_logs_in_anew_in_another_tab_can_go_on_in_this_one(dashboard: DashboardService) -> None:
    with dashboard.visitor() as visitor:
        page, bot = visitor.page, f"/bots/{PAUSED}"
        visitor.open(bot)
        fresh = dashboard.cookie("operator")
        visitor.context.add_cookies([{"name": COOKIE, "value": fresh, "url": visitor.origin}])
        page.get_by_role("button", name="Resume").click()  # with the CSRF token of the session before
        expect(page.get_by_role("status").filter(has_text="sends again")).to_be_visible()
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("dialog").get_by_role("button", name="Pause").click()
        expect(page.get_by_role("button", name="Resume")).to_be_visible()


def is_paused(dashboard: DashboardService) -> bool:
    return bool(dashboard.told("GET", f"/api/v1/bots/{SENDING}")["paused"])


def test_a_token_is_made_shown_once_and_revoked(dashboard: DashboardService, admin: Visitor) -> None:
    page, name = admin.page, f"guest {HOSTILE[1]}"
    admin.open("/tokens")
    page.get_by_text("Make a token").click()
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Make", exact=True).click()
    secret = page.get_by_role("status").filter(has_text="tg_").inner_text()
    assert dashboard.service.ask("GET", "/queue/stats", secret)[0] == 200

    page.reload()
    assert secret not in page.content()
    row = page.get_by_role("row").filter(has_text=name)
    row.get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"Revoke the token {name}?")
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(row).to_contain_text("revoked")
    assert dashboard.service.ask("GET", "/queue/stats", secret)[0] == 401
    assert not page.evaluate("'hacked' in window")


def test_a_viewer_sees_numbers_no_texts_and_nothing_that_changes_something(
    dashboard: DashboardService, viewer: Visitor
) -> None:
    page, allowed = viewer.page, list[str]()
    for address in addresses(PATHS, dashboard.examples):
        viewer.complaints.clear()  # the console says that an answer was 403
        if viewer.open(address).status == 403:
            continue
        allowed.append(address)
        assert viewer.complaints == [], address
        assert page.locator("main [data-action], main form[data-api]").count() == 0, address
        assert SECRET_TEXT not in page.content(), address
    assert {"/", "/bots", f"/bots/{SENDING}"} <= set(allowed)
    assert not {"/tokens", "/audit"} & set(allowed)

    # The API refuses what the page does not offer, also with the CSRF token of the page.
    viewer.open("/bots")
    refused = page.evaluate(
        """async (address) => {
          try { await tidegate.call(address); return "done"; } catch (error) { return error.content.status; }
        }""",
        f"/api/v1/bots/{SENDING}/pause",
    )
    assert refused == 403
    assert not is_paused(dashboard)


@pytest.fixture(scope="module", params=PATHS)
def opened(request: pytest.FixtureRequest, dashboard: DashboardService) -> Iterator[Visitor]:
    """An admin who has opened a page. Tests leave it as it is."""
    with dashboard.visitor() as visitor:
        visitor.open(next(addresses([request.param], dashboard.examples)))
        yield visitor


def test_a_page_loads_from_its_own_address_and_obeys_its_policy(opened: Visitor) -> None:
    assert opened.response.status == 200
    policy = opened.response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert opened.page.locator("[style], style, script:not([src])").count() == 0
    assert opened.complaints == []


def test_no_name_or_text_becomes_markup(opened: Visitor) -> None:
    assert opened.page.locator(PLANTED).count() == 0
    assert not opened.page.evaluate("'hacked' in window")


def test_every_control_is_reached_by_tab_and_has_a_name(opened: Visitor) -> None:
    page = opened.page
    controls = page.evaluate(CONTROLS)
    page.evaluate("document.activeElement.blur()")
    reached = set[int]()
    for _ in range(len(controls) + 2):  # once around, past the end of the page, which belongs to the browser
        page.keyboard.press("Tab")
        reached.add(page.evaluate(FOCUSED))
    assert [html for at, html in enumerate(controls) if at not in reached] == []
    assert nameless(page) == []


def test_axe_finds_nothing_in_light_and_dark(opened: Visitor) -> None:
    assert axe_violations(opened.page) == []
    opened.page.emulate_media(color_scheme="dark")
    assert axe_violations(opened.page, "color-contrast") == []
    opened.page.emulate_media(color_scheme="light")


def test_a_phone_shows_a_page_without_scrolling_sideways(opened: Visitor) -> None:
    before = opened.page.viewport_size
    assert before is not None
    opened.page.set_viewport_size({"width": 390, "height": 844})
    wide = opened.page.evaluate("document.documentElement.scrollWidth")
    opened.page.set_viewport_size(before)
    assert wide <= 390


def axe_violations(page: Page, *rules: str) -> list[str]:
    """Return what axe-core objects to. It is run by the debugger: the content policy does not apply to it."""
    options: dict[str, Any] = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
    results: dict[str, Any] = Axe().run(page, options=options).response
    return [
        f"{one['id']}: {node['html'][:160]}" for one in results["violations"] for node in one["nodes"][:3]
    ]


def nameless(page: Page) -> list[str]:
    """Return the controls that a screen reader could not name, as the browser computes names."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()

    def takes_focus(node: dict[str, Any]) -> bool:
        return any(one["name"] == "focusable" and one["value"]["value"] for one in node.get("properties", ()))

    containers = {"RootWebArea", "generic", "main", "none"}
    return [
        str(node["role"]["value"])
        for node in nodes
        if not node["ignored"]
        and takes_focus(node)
        and node["role"]["value"] not in containers
        and not node.get("name", {}).get("value", "").strip()
    ]


def test_hostile_names_and_texts_are_shown_as_they_are(admin: Visitor) -> None:
    page, shown = admin.page, set[str]()
    for address in ("/tokens", "/audit"):
        admin.open(address)
        text = page.locator("main").inner_text()
        shown |= {hostile for hostile in HOSTILE if hostile in text}
    assert shown == set(HOSTILE)

    # An address is a page's own input.
    for hostile in HOSTILE:
        admin.open(f"/audit?action={quote(hostile)}")
        expect(page.get_by_label("Action")).to_have_value(hostile)
        assert page.locator(PLANTED).count() == 0, hostile
    assert not page.evaluate("'hacked' in window")


def test_a_script_that_got_into_a_page_would_not_run(admin: Visitor) -> None:
    admin.open("/tokens")  # not a live page: what is put into it stays
    forbidden = admin.page.evaluate("""
    () => new Promise((resolve) => {
      const seen = new Set();
      addEventListener("securitypolicyviolation", (event) => {
        if (seen.add(event.effectiveDirective).size === 2) resolve([...seen]);
      });
      document.body.append(Object.assign(document.createElement("script"), { text: "hacked=1" }));
      document.querySelector("main").innerHTML = "<img src=x onerror=hacked=1>";
    })""")
    assert set(forbidden) == {"script-src-elem", "script-src-attr"}
    assert not admin.page.evaluate("'hacked' in window")
    assert admin.complaints
    admin.page.wait_for_load_state("networkidle")  # what the markup asks for is not there, which is one more
    admin.complaints.clear()


def test_hostile_words_that_come_live_or_as_a_note_are_shown_and_never_run(
    dashboard: DashboardService, admin: Visitor
) -> None:
    page = admin.page
    admin.open("/audit")
    page.evaluate(MARK)
    hostile = f"live {HOSTILE[1]}{HOSTILE[0]}"
    dashboard.told("POST", "/api/v1/tokens", body={"name": hostile, "role": "viewer"})
    expect(page.locator("#live")).to_contain_text("token.create")
    for number, text in enumerate(HOSTILE):
        page.evaluate("(text) => tidegate.note(text, {bad: true})", text)
        expect(page.get_by_role("status").locator(".note").nth(number)).to_have_text(text)
    page.evaluate("(text) => { tidegate.ask(text, 'Yes'); }", HOSTILE[1])
    expect(page.get_by_role("dialog")).to_contain_text(HOSTILE[1])
    page.keyboard.press("Escape")
    assert page.locator(PLANTED).count() == 0
    assert page.evaluate(IS_SAME)
    assert not page.evaluate("'hacked' in window")


def test_axe_finds_nothing_on_the_login_page_and_the_list_of_keys(
    dashboard: DashboardService, admin: Visitor
) -> None:
    with dashboard.visitor(None) as stranger:
        stranger.open("/login")
        assert axe_violations(stranger.page) == []
        assert nameless(stranger.page) == []
    admin.open("/bots")
    admin.page.keyboard.press("?")
    assert axe_violations(admin.page) == []


def test_a_phone_has_a_menu_and_cards_for_rows(dashboard: DashboardService) -> None:
    with dashboard.visitor(viewport={"width": 390, "height": 844}) as visitor:
        visitor.open("/bots")
        visitor.page.get_by_role("button", name="Menu").click()
        visitor.page.get_by_role("link", name="Now").click()
        expect(visitor.page.get_by_role("heading", name="Now", level=1)).to_be_visible()

        # A row is a card there: each value stands below the one before, beside the head of its column.
        visitor.open("/bots")
        row = visitor.page.get_by_role("row").filter(has_text=str(SENDING))
        cells = row.get_by_role("cell").all()
        places = [box["y"] for cell in cells if (box := cell.bounding_box()) is not None]
        assert len(places) == len(cells)
        assert places == sorted(set(places))
        assert row.get_by_role("button", name="Pause").is_visible()

        # What is in the heads is still there.
        visitor.open("/dead-letters/list")
        visitor.page.get_by_label("Select all on this page").check()
        expect(visitor.page.locator("input[name=ids]").first).to_be_checked()
        assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert visitor.complaints == []


def test_a_long_name_made_a_page_wider_than_a_phone_and_its_question_could_not_be_answered(
    dashboard: DashboardService,
) -> None:
    name = "n" * 64
    body = {"name": name, "bot": PAUSED, "audience": [1], "text": "Hello"}
    dashboard.told("POST", "/api/v1/broadcasts", body=body)
    with dashboard.visitor(viewport={"width": 390, "height": 844}) as visitor:
        page = visitor.page
        for address in (f"/broadcasts/{name}?bot={PAUSED}", f"/chats/{PAUSED}/@{'n' * 32}"):
            visitor.open(address)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, address
        visitor.open(f"/broadcasts/{name}?bot={PAUSED}")
        page.locator("main").get_by_role("button", name="Cancel").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        expect(page.locator("main")).to_contain_text("cancelled")
        assert visitor.complaints == []


def test_keys_lead_to_pages_to_the_search_and_to_the_list_of_keys(admin: Visitor) -> None:
    page = admin.page
    admin.open("/bots")
    for item in NAVIGATION:
        page.keyboard.press("g")
        page.keyboard.press(item.key)
        expect(page).to_have_url(re.compile(f"{re.escape(item.path)}$"))
        expect(page.locator("#menu [aria-current=page]")).to_have_text(item.title)
        page.wait_for_load_state()  # keys are heard from then on

    admin.open("/audit")
    page.keyboard.press("/")
    expect(page.get_by_label("Action")).to_be_focused()
    page.keyboard.type("g?d")  # is text now
    expect(page.get_by_label("Action")).to_have_value("g?d")
    expect(page.get_by_role("dialog")).to_have_count(0)

    admin.open("/bots")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)

    before = page.evaluate("getComputedStyle(document.body).color")
    page.keyboard.press("d")
    assert page.evaluate("getComputedStyle(document.body).color") != before
