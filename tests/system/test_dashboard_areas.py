"""Pages of sources, reminders, jobs and flows in a browser: they are there, and for whom."""

import pytest
from playwright.sync_api import expect

from system.dashboard_service import DashboardService

pytestmark = pytest.mark.usefixtures("a_command_may_block")


@pytest.mark.parametrize("address", ["/sources", "/polling", "/reminders", "/jobs", "/flows"])
def test_a_page_of_an_area_opens_from_the_menu_and_says_what_is_there(
    dashboard: DashboardService, address: str
) -> None:
    with dashboard.visitor("viewer") as viewer:
        viewer.open("/")
        viewer.page.get_by_role("navigation", name="Pages").get_by_role("link", name="Sources").click()
        if address != "/sources":
            viewer.page.locator(f'main nav a[href="{address}"]').first.click()
        expect(viewer.page.get_by_role("heading", level=1)).to_be_visible()
        assert viewer.page.locator("main").inner_text().strip()
        assert viewer.page.locator("main [data-action], main form[data-api]").count() == 0
        assert viewer.complaints == []
