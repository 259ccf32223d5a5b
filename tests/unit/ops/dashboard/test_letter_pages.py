"""Pages of dead letters: grouped by reason with advice, listed, and what is about to happen to them."""

import html
import re

import pytest

from tidegate.model import State
from tidegate.ops.dashboard.letter_advice import ADVICE, advice_for
from tidegate.ops.dashboard.letter_pages import about, selection_of
from tidegate.ops.dashboard.message_texts import excerpt, shortened, text_in
from tidegate.sim.virtual_time import VirtualClock
from unit.ops.api.service import BOT, OTHER_BOT, SECRET_TEXT, Service

HOSTILE = "<img src=x onerror=alert(1)> \"'\u202e\n"


async def page(service: Service, path: str, role: str = "operator", status: int = 200) -> str:
    caller = {"viewer": service.viewer, "operator": service.operator}[role]
    answer = await caller.get(path)
    assert answer.status == status, answer.body
    return answer.body.decode()


async def test_letters_are_grouped_by_reason_the_most_frequent_first(service: Service) -> None:
    await service.put_letter(1, reason="not_found")
    for chat in (2, 3):
        await service.put_letter(chat)
    last = await service.put_letter(4, OTHER_BOT)

    shown = await page(service, "/dead-letters")

    assert "4 messages were not delivered" in shown
    assert shown.index("3 messages</a> · The user has blocked the bot") < shown.index("1 message</a>")
    assert ADVICE["blocked"].do in html.unescape(shown)
    assert "of 2 bots" in shown
    assert "/dead-letters/list?reason=blocked&amp;state=dead" in shown
    assert SECRET_TEXT in shown
    only = await page(service, f"/dead-letters?bot={OTHER_BOT}")
    assert last in only
    assert "not_found" not in only


async def test_a_viewer_sees_reasons_and_numbers_and_no_text(service: Service) -> None:
    await service.put_letter()
    for path in ("/dead-letters", "/dead-letters/list"):
        shown = await page(service, path, "viewer")
        assert "blocked" in shown
        assert SECRET_TEXT not in shown
        assert "data-action" not in shown
        assert 'name="ids"' not in shown


async def test_buttons_ask_with_the_number_that_a_dry_run_finds(service: Service) -> None:
    await service.put_letter()
    shown = html.unescape(await page(service, "/dead-letters"))
    assert 'data-confirm="Drop {count} {messages} that died as blocked?' in shown
    [body] = set(re.findall(r'data-body="(\{[^>]*?\})"', shown))
    assert '"reason": "blocked"' in body
    assert '"undo_for": 15' in body
    assert "data-count" in shown


async def test_what_can_be_undone_is_told_on_both_pages(service: Service, clock: VirtualClock) -> None:
    await service.put_letter()
    asked = await service.operator.post("/api/v1/dead-letters/drop", {"reason": "blocked", "undo_for": 15})
    for path in ("/dead-letters", "/dead-letters/list"):
        shown = await page(service, path)
        assert "<strong>Drop</strong> of 1 message that died as blocked: asked for by operator" in shown
        assert asked.json["undo"] in shown
        assert asked.json["undo"] not in await page(service, path, "viewer")
    await clock.sleep(16)
    for path in ("/dead-letters", "/dead-letters/list"):  # with no filter that could be taken away
        assert "No dead letters" in await page(service, path)


async def test_a_list_has_filters_and_rows_to_select(service: Service, clock: VirtualClock) -> None:
    old = await service.put_letter(1)
    await clock.sleep(7_200)
    young, other = await service.put_letter(2), await service.put_letter(3, OTHER_BOT, "attempts")

    async def listed(query: str) -> set[str]:
        return set(
            re.findall(r'name="ids" value="([^"]+)"', await page(service, f"/dead-letters/list?{query}"))
        )

    assert await listed("") == {old, young, other}
    assert await listed("reason=blocked") == {old, young}
    assert await listed(f"bot={OTHER_BOT}") == {other}
    assert await listed("chat=2") == {young}
    assert await listed("older_than=3600") == {old}
    assert await listed("state=parked") == set()
    shown = await page(service, "/dead-letters/list?older_than=3600&chat=1")
    assert "{messages} to chat 1 that died more than an hour ago?" in shown


async def test_a_list_that_nothing_fits_teaches(service: Service) -> None:
    assert "No dead letter fits" in await page(service, "/dead-letters/list?reason=odd")
    assert "kept here with its reason" in await page(service, "/dead-letters")


@pytest.mark.parametrize(
    "query", ["bot=x", "state=odd", "chat=0", "older_than=-1", "older_than=x", "cursor=x", "bot=" + "9" * 40]
)
async def test_what_cannot_be_asked_gets_a_page_with_a_sentence(service: Service, query: str) -> None:
    shown = await page(service, f"/dead-letters/list?{query}", status=422)
    assert 'role="alert"' in shown


async def test_a_hostile_reason_and_text_are_shown_as_they_are(service: Service) -> None:
    await service.put_letter(1, reason=HOSTILE)
    for path in ("/dead-letters", "/dead-letters/list"):
        shown = await page(service, path)
        assert "<img" not in shown
        assert "&lt;img src=x onerror=alert(1)&gt;" in shown


async def test_the_pages_are_there_while_the_database_is_away(service: Service) -> None:
    await service.put_letter()
    service.pending.away = True
    for path in ("/dead-letters", "/dead-letters/list"):
        assert "blocked" in await page(service, path)


def test_every_advice_says_what_it_means_and_what_to_do() -> None:
    for reason, advice in ADVICE.items():
        assert advice.means.endswith("."), reason
        assert advice.do.endswith("."), reason
    assert advice_for("something new", State.DEAD).remedy == "look"
    assert "may have arrived" in advice_for(None, State.PARKED).means


@pytest.mark.parametrize(
    ("given", "words", "selection"),
    [
        ({}, "messages that died", {"everything": True}),
        (
            {"reason": "blocked", "bot": 42},
            "messages of bot 42 that died as blocked",
            {"reason": "blocked", "bot": 42},
        ),
        ({"state": "parked"}, "messages parked", {"state": "parked"}),
        ({"chat": "-100"}, "messages to chat -100 that died", {"chat_id": -100}),
        ({"chat": "@news"}, "messages to chat @news that died", {"chat_id": "@news"}),
        ({"older_than": 86_400}, "messages that died more than a day ago", {"older_than": 86_400}),
        ({"older_than": 90}, "messages that died more than 90 s ago", {"older_than": 90}),
    ],
)
def test_a_filter_in_words_and_as_a_request(
    given: dict[str, object], words: str, selection: dict[str, object]
) -> None:
    assert about(given, "messages") == words
    assert selection_of(given) == selection


def test_an_excerpt_is_one_line_of_what_a_message_says() -> None:
    assert text_in({"caption": "a photo"}) == "a photo"
    assert text_in({"media": [{"type": "photo"}, {"caption": "second"}]}) == "second"
    assert text_in({"chat_id": 1}) == ""
    assert shortened(" two\n lines ") == "two lines"
    assert len(shortened("x" * 500)) == 140
    assert excerpt(object()) == ""
    assert BOT != OTHER_BOT
