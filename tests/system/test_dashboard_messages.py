"""The pages of messages and dead letters in a browser: why one waits, and what is done with a dead one."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from browser import Visitor
from system.dashboard_service import PAUSED, SECRET_TEXT, SENDING, DashboardService

pytestmark = pytest.mark.usefixtures("a_command_may_block")


@pytest.fixture
def operator(dashboard: DashboardService) -> Iterator[Visitor]:
    with dashboard.visitor("operator") as visitor:
        yield visitor
    assert visitor.complaints == []


def test_a_waiting_message_is_found_opened_and_says_why_it_waits(
    dashboard: DashboardService, operator: Visitor
) -> None:
    page = operator.page
    operator.open(f"/messages?bot={PAUSED}&state=queued")
    page.locator(f'main a[href="/messages/{dashboard.waiting}"]').first.click()
    expect(page).to_have_url(re.compile(f"/messages/{dashboard.waiting}$"))
    expect(page.get_by_text(SECRET_TEXT, exact=True)).to_be_visible()
    expect(page.get_by_role("heading", name="Why it waits")).to_be_visible()
    expect(page.locator("main")).to_contain_text("paused")


def test_a_message_was_said_to_leave_in_the_past(dashboard: DashboardService, operator: Visitor) -> None:
    """What a list foretold passes while it is looked at: not every one is live, or stays so."""
    page, chat = operator.page, 5_600
    body = {"bot": SENDING, "chat_id": chat, "text": "Hello", "delay": 3_000}
    ticket = dashboard.told("POST", "/api/v1/messages", body=body)["id"]
    page.clock.install()
    operator.open(f"/messages?chat={chat}")
    leaves = page.locator(".why time")
    expect(leaves).to_contain_text("min")
    page.clock.fast_forward("01:00:00")
    expect(leaves).to_have_text("by now")
    dashboard.told("POST", f"/api/v1/messages/{ticket}/cancel")


def test_a_list_stood_still_until_it_was_loaded_again(dashboard: DashboardService, operator: Visitor) -> None:
    page, chat = operator.page, 5_700
    address = f"/messages?bot={PAUSED}&chat={chat}"

    def put(text: str) -> str:
        body = {"bot": PAUSED, "chat_id": chat, "text": text}
        return str(dashboard.told("POST", "/api/v1/messages", body=body)["id"])

    tickets = [put("the first")]
    operator.open(address)
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(1)
    tickets.append(put("the second"))
    expect(rows).to_have_count(2)

    # It does not move under whoever points into it.
    rows.first.hover()
    tickets.append(put("the third"))
    expect(page.locator("#held")).to_contain_text("1 new in this list")
    expect(rows).to_have_count(2)
    page.locator("#held").get_by_role("button", name="Show").click()
    expect(rows).to_have_count(3)
    expect(page.locator("#held")).to_be_hidden()

    # Nor under whoever is in it by keyboard; once they look elsewhere it is shown.
    page.mouse.move(0, 0)
    rows.first.get_by_role("link").first.focus()
    dashboard.told("POST", f"/api/v1/messages/{tickets[2]}/cancel")
    tickets[2] = put("the fourth")
    expect(page.locator("#held")).to_contain_text("new in this list")
    page.locator("#main").focus()
    expect(page.locator("#held")).to_be_hidden()
    expect(page.locator("main")).to_contain_text("the fourth")
    for ticket in tickets:
        dashboard.told("POST", f"/api/v1/messages/{ticket}/cancel")


def test_a_waiting_message_is_cancelled(dashboard: DashboardService, operator: Visitor) -> None:
    body = {"bot": PAUSED, "chat_id": 5_500, "text": "Hello"}
    ticket = dashboard.told("POST", "/api/v1/messages", body=body)["id"]
    page = operator.page
    operator.open(f"/messages/{ticket}")
    page.locator("main").get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).last.click()
    expect(page.locator("main")).to_contain_text("cancelled")
    assert dashboard.told("GET", f"/api/v1/messages/{ticket}")["state"] == "cancelled"


def test_dead_letters_are_grouped_by_reason_and_one_is_replayed(
    dashboard: DashboardService, operator: Visitor
) -> None:
    page = operator.page
    operator.open("/dead-letters")
    group = page.get_by_role("article").filter(has=page.get_by_text("blocked", exact=True))
    expect(group).to_be_visible()
    group.get_by_role("link", name="Look at them").click()
    page.locator(f'main a[href="/messages/{dashboard.letter}"]').click()
    page.locator("main").get_by_role("button", name="Replay").click()
    dialog = page.get_by_role("dialog")
    if dialog.is_visible():
        dialog.get_by_role("button", name="Replay").click()
    expect(page.locator("main")).to_contain_text("delivered", timeout=60_000)  # once it cannot be undone


def test_a_dead_letter_is_dropped_only_after_a_question_and_that_can_be_undone(
    dashboard: DashboardService, operator: Visitor
) -> None:
    page = operator.page
    address = f"/api/v1/dead-letters?bot={SENDING}"
    operator.open(f"/dead-letters/list?bot={SENDING}")
    before = dashboard.told("GET", address)["items"]
    page.locator("input[name=ids]").last.check()
    drop = page.get_by_role("button", name="Drop selected")
    drop.click()
    expect(page.get_by_role("dialog")).to_contain_text("Drop 1 selected message?")
    page.get_by_role("dialog").get_by_role("button", name="Back").click()
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)
    drop.click()
    page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    page.locator("#notes").get_by_role("button", name="Undo").click()
    expect(page.locator("#notes")).to_contain_text("Taken back")
    assert dashboard.told("GET", address)["items"] == before
    assert next(one["action"] for one in dashboard.told("GET", "/api/v1/audit")["items"]).endswith("undo")


def test_a_notice_that_came_and_went_took_the_focus_and_the_choice_from_what_was_below_it(
    dashboard: DashboardService, operator: Visitor
) -> None:
    page = operator.page
    letters = dashboard.told("GET", f"/api/v1/dead-letters?bot={SENDING}")["items"]
    body = {"ids": [letters[0]["id"]], "undo_for": 60}

    # On a page that is live.
    operator.open("/dead-letters")
    link = page.get_by_role("article").first.get_by_role("link", name="Look at them")
    link.focus()
    page.evaluate("addEventListener('focusout', () => { window.wasLost = true; })")
    undo = dashboard.told("POST", "/api/v1/dead-letters/drop", body=body)["undo"]
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    dashboard.told("POST", undo)
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)
    expect(link).to_be_focused()
    assert page.evaluate("window.wasLost") is None

    # On one that is read anew after an act.
    operator.open("/dead-letters/list")
    page.locator("input[name=ids]").last.check()
    page.get_by_role("button", name="Drop selected").click()
    page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    page.locator("main").get_by_role("button", name="Undo").click()
    expect(page.locator("#notes")).to_contain_text("Taken back")
    expect(page.locator("main").get_by_role("button", name="Undo")).to_have_count(0)
    expect(page.locator("input[name=ids]").last).to_be_checked()


def test_a_viewer_reads_no_text_of_a_message(dashboard: DashboardService) -> None:
    with dashboard.visitor("viewer") as viewer:
        for address in (f"/messages/{dashboard.waiting}", "/messages", "/dead-letters"):
            assert viewer.open(address).status == 200, address
            assert SECRET_TEXT not in viewer.page.content(), address
            for name in ("Cancel", "Replay", "Drop"):
                assert viewer.page.locator("main").get_by_role("button", name=name).count() == 0, address
