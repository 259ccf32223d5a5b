"""Broadcasts in a browser: begun from a file, and watched while they go."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from system.dashboard_service import SENDING, DashboardService

pytestmark = pytest.mark.usefixtures("a_command_may_block")
PEOPLE = 120  # four seconds at the limit of a bot


def test_a_broadcast_is_begun_from_a_file_and_watched(dashboard: DashboardService, tmp_path: Path) -> None:
    audience = tmp_path / "people.csv"
    people = "".join(f"{20_000 + number},Ada{number}\n" for number in range(PEOPLE))
    audience.write_text(f"chat_id,name\n{people}")
    with dashboard.visitor("operator") as operator:
        page = operator.page
        operator.open("/broadcasts/new")
        page.get_by_label("Name", exact=True).fill("spring")
        page.get_by_role("textbox", name="Text").fill("Hello {name}, <b>spring</b> is here")
        page.locator("select[name=bot]").select_option(str(SENDING))
        page.get_by_label("Audience file").set_input_files(audience)

        page.get_by_role("button", name="Preview").click()
        expect(page.locator("main")).to_contain_text("Hello Ada0, <b>spring</b> is here")
        expect(page.locator("main")).to_contain_text(str(PEOPLE))
        assert dashboard.told("GET", "/api/v1/messages?chat_id=20000")["items"] == []

        page.get_by_role("button", name="Begin").click()
        dialog = page.get_by_role("dialog")
        if dialog.is_visible():
            dialog.get_by_role("button", name="Begin").click()
        expect(page).to_have_url(re.compile("/broadcasts/spring"))
        page.evaluate("window.isTheSamePage = true")
        expect(page.locator("main")).to_contain_text("finished")
        expect(page.locator("main")).to_contain_text(str(PEOPLE))
        assert page.evaluate("window.isTheSamePage === true"), "it came live"
        assert operator.complaints == []


def test_the_names_of_columns_were_counted_as_a_message_of_a_large_file(
    dashboard: DashboardService, tmp_path: Path
) -> None:
    audience, rows = tmp_path / "people.csv", 50_000  # of which the beginning is previewed
    audience.write_text("chat_id,name\n" + "".join(f"{20_000 + number},Ada\n" for number in range(rows)))
    with dashboard.visitor("operator") as operator:
        page = operator.page
        operator.open("/broadcasts/new")
        page.get_by_label("Name", exact=True).fill("large")
        page.get_by_role("textbox", name="Text").fill("Hello {name}")
        page.locator("select[name=bot]").select_option(str(SENDING))
        page.get_by_label("Audience file").set_input_files(audience)
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("region", name="Preview")).to_contain_text("About 50,000 messages")


def test_a_preview_of_nobody_said_when_the_last_message_leaves(dashboard: DashboardService) -> None:
    with dashboard.visitor("operator", viewport={"width": 390, "height": 844}) as operator:
        page = operator.page
        operator.open("/broadcasts/new")
        page.get_by_label("Name", exact=True).fill("nobody")
        page.get_by_role("textbox", name="Text").fill("Hello")
        page.get_by_role("textbox", name="Audience").fill("chat_id")
        page.get_by_role("button", name="Preview").click()
        preview = page.get_by_role("region", name="Preview")
        expect(preview).to_contain_text("There is nobody in the audience")
        expect(preview).not_to_contain_text("leaves at")
        expect(page.get_by_role("button", name="Begin")).to_be_disabled()
        expect(preview.get_by_role("heading")).to_be_in_viewport()  # below the form on a phone
        assert operator.complaints == []


def test_a_broadcast_is_paused_and_cancelled(dashboard: DashboardService) -> None:
    with dashboard.visitor("operator") as operator:
        page = operator.page
        operator.open(f"/broadcasts/{dashboard.broadcast}")
        for name, state in (("Pause", "paused"), ("Resume", "running"), ("Cancel", "cancelled")):
            page.locator("main").get_by_role("button", name=name, exact=True).click()
            dialog = page.get_by_role("dialog")
            if dialog.is_visible():
                dialog.get_by_role("button", name=name, exact=True).last.click()
            expect(page.locator("main")).to_contain_text(state)
        assert operator.complaints == []


def test_a_viewer_watches_a_broadcast_and_cannot_begin_one(dashboard: DashboardService) -> None:
    with dashboard.visitor("viewer") as viewer:
        assert viewer.open(f"/broadcasts/{dashboard.broadcast}").status == 200
        assert viewer.page.locator("main").get_by_role("button").count() == 0
        assert viewer.open("/broadcasts/new").status == 403
