"""Limits of a bot in a browser: seen, changed, and refused to those who may not."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from browser import Visitor
from system.dashboard_service import SENDING, DashboardService

pytestmark = pytest.mark.usefixtures("a_command_may_block")


@pytest.fixture
def admin(dashboard: DashboardService) -> Iterator[Visitor]:
    with dashboard.visitor() as visitor:
        yield visitor


def form(visitor: Visitor) -> Locator:
    return visitor.page.get_by_role("form", name="Limits")


def test_a_limit_is_changed_and_holds_at_once(dashboard: DashboardService, admin: Visitor) -> None:
    admin.open(f"/bots/{SENDING}")
    form(admin).get_by_label("Calls a second of the bot").fill("10")
    form(admin).get_by_role("button", name="Save").click()
    expect(admin.page.get_by_role("region", name="Numbers")).to_contain_text("of 10 allowed")
    dashboard.put(45)
    admin.page.reload()
    expect(form(admin).get_by_label("Calls a second of the bot")).to_have_value("10")
    assert admin.complaints == []


def test_the_form_still_showed_limits_that_an_operator_had_ended(admin: Visitor) -> None:
    page, field = admin.page, form(admin).get_by_label("Calls a second to a private chat")
    admin.open(f"/bots/{SENDING}")
    before = field.input_value()
    field.fill("0.5")
    form(admin).get_by_role("button", name="Save").click()
    page.get_by_role("button", name="Back to the settings").click()
    page.get_by_role("dialog").get_by_role("button", name="Back to the settings").click()
    expect(field).to_have_value(before)
    expect(page.get_by_role("button", name="Back to the settings")).to_have_count(0)
    assert admin.complaints == []


@pytest.mark.parametrize("wrong", ["0", "-1", "1e99"])
def test_a_limit_that_is_none_is_refused_in_words_and_changes_nothing(
    dashboard: DashboardService, admin: Visitor, wrong: str
) -> None:
    admin.open(f"/bots/{SENDING}")
    field = form(admin).get_by_label("Calls a second of the bot")
    before = field.input_value()
    field.fill(wrong)
    form(admin).get_by_role("button", name="Save").click()
    is_held_by_browser = not field.evaluate("(input) => input.checkValidity()")
    if not is_held_by_browser:
        expect(admin.page.locator(".note.bad")).to_be_visible()
    admin.open(f"/bots/{SENDING}")
    assert form(admin).get_by_label("Calls a second of the bot").input_value() == before
    assert dashboard.told("GET", f"/api/v1/bots/{SENDING}")["bot"] == SENDING


def test_a_viewer_sees_limits_and_no_form(dashboard: DashboardService) -> None:
    with dashboard.visitor("viewer") as viewer:
        viewer.open(f"/bots/{SENDING}")
        expect(viewer.page.get_by_role("region", name="Numbers")).to_contain_text("allowed")
        assert form(viewer).count() == 0
