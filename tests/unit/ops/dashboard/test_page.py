"""Pages are found by their path; what a query holds is read strictly."""

from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.ops.access import Role
from tidegate.ops.api.api_call import ApiCall
from tidegate.ops.api.routes import RouteAccess, Scope
from tidegate.ops.dashboard.dashboard import NAVIGATION, PAGES
from tidegate.ops.dashboard.page import MOST_FIELDS, Context, PageIndex, PageRequest, PageTable
from tidegate.ops.dashboard.page_files import templates

TABLE = PageTable()
ACCESS = RouteAccess(Role.VIEWER, Scope.ALL)


async def view(_: PageRequest) -> Context:
    return {}


for path in ("/things/new", "/things/{name}", "/bots/{bot:int}"):
    TABLE.page(path, "now.html", path, ACCESS)(view)
INDEX = PageIndex(list(TABLE))


def asked(query: str) -> PageRequest:
    return PageRequest(ApiCall.__new__(ApiCall), {}, query)


def test_the_first_page_that_matches_counts() -> None:
    found = [INDEX.find(path) for path in ("/things/new", "/things/old", "/bots/42")]
    assert [(one[0].path, one[1]) for one in found if one] == [
        ("/things/new", {}),
        ("/things/{name}", {"name": "old"}),
        ("/bots/{bot:int}", {"bot": 42}),
    ]
    assert [INDEX.find(path) for path in ("/", "/bots/abc", "/bots/-1", "/bots/4/2", "/things/")] == [
        None
    ] * 5


@given(path=st.text(max_size=30))
def test_any_path_is_found_or_not(path: str) -> None:
    found = INDEX.find(f"/{path}")
    assert found is None or found[0] in list(TABLE)


@given(value=st.text(max_size=30))
def test_a_field_of_a_query_is_what_was_typed_without_blanks_around_it(value: str) -> None:
    value = value.encode("utf-8", "ignore").decode()
    assert asked(urlencode({"text": value, "other": "x"})).one("text") == (value.strip() or None)


@given(value=st.integers(min_value=1 - 10**17, max_value=10**18 - 1))
def test_a_number_of_a_query_is_read(value: int) -> None:
    assert asked(f"bot={value}").number("bot") == value


@pytest.mark.parametrize("value", ["x", "1.5", "1e5", "--1", "-", "٣", "1_000", "9" * 19, "0x10", "+1"])
def test_what_is_no_number_is_refused_with_its_name(value: str) -> None:
    with pytest.raises(BadInputError, match="bot is a number"):
        asked(f"bot={quote(value)}").number("bot")


def test_a_query_that_is_missing_empty_or_repeated() -> None:
    request = asked("state=dead&state=parked&empty=&reason=%20%20")
    assert request.all("state") == ["dead", "parked"]
    assert request.one("state") == "dead"
    assert [request.one(name) for name in ("empty", "reason", "none")] == [None] * 3
    assert request.number("none") is None


def test_a_query_with_too_many_fields_is_bad_input() -> None:
    with pytest.raises(BadInputError, match="fields"):
        asked("&".join(["a=1"] * (MOST_FIELDS + 1)))


def test_every_page_has_a_template_a_title_and_one_address() -> None:
    paths = [page.path for page in PAGES]
    assert len(set(paths)) == len(paths)
    for page in PAGES:
        assert page.title
        blocks = templates().get_template(page.template).blocks
        assert "live" in blocks or page.every is None, page.template


def test_the_menu_leads_to_pages_by_different_keys() -> None:
    index = PageIndex(list(PAGES))
    for item in NAVIGATION:
        found = index.find(item.path)
        assert found is not None, item.path
        assert Role(item.role).includes(found[0].access.role), item.path
    keys = [item.key for item in NAVIGATION]
    assert len(set(keys)) == len(keys)
    assert not {"g", "d", "?", "/"} & set(keys), "these do something else"
