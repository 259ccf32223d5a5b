"""Pages of messages: searched, one with all that happened to it, in history alone, and a chat."""

import html
from urllib.parse import quote

import pytest

from tidegate.errors import StoreAwayError
from tidegate.model import Refused, Retry, Settlement
from tidegate.sim.virtual_time import VirtualClock
from unit.ops.api.service import BOT, CHAT, OTHER_BOT, SECRET_TEXT, Service

HOSTILE = "<img src=x onerror=alert(1)> \"double\" 'single' \u202eright to left\u202c\nsecond line & more"


async def page(service: Service, path: str, role: str = "operator", status: int = 200) -> str:
    caller = {"viewer": service.viewer, "operator": service.operator, "admin": service.admin}[role]
    answer = await caller.get(path)
    assert answer.status == status, answer.body
    return answer.body.decode()


async def test_messages_are_found_by_chat_state_and_bot(service: Service) -> None:
    waiting, letter = await service.put(), await service.put_letter(7)
    foreign = await service.put(8, OTHER_BOT)

    def shown(text: str) -> list[str]:
        return [one for one in (waiting, letter, foreign) if f"/messages/{one}" in text]

    assert shown(await page(service, "/messages?in=queue")) == [waiting, letter, foreign]
    assert shown(await page(service, "/messages?state=any")) == [waiting, letter, foreign]
    assert shown(await page(service, f"/messages?chat={CHAT}")) == [waiting]
    assert shown(await page(service, "/messages?state=dead")) == [letter]
    assert shown(await page(service, f"/messages?bot={OTHER_BOT}")) == [foreign]


async def test_what_waits_stood_below_what_had_been_delivered_before(service: Service) -> None:
    letter = await service.put_letter(7)
    assert f"/messages/{letter}" not in await page(service, "/messages")
    waiting = await service.put()
    shown = await page(service, "/messages")
    assert f"/messages/{waiting}" in shown
    assert f"/messages/{letter}" not in shown
    assert ">Clear<" not in shown


async def test_one_message_was_counted_as_1_messages(service: Service) -> None:
    await service.put()
    assert "1</a> <small>message</small>" in await page(service, f"/bots/{BOT}")


async def test_a_list_comes_page_by_page(service: Service) -> None:
    tickets = [await service.put(chat) for chat in range(1, 61)]
    first = await page(service, "/messages?state=queued")
    link = html.unescape(first.split('rel="next" href="')[1].split('"')[0])
    second = await page(service, link)
    assert sum(f"/messages/{one}" in first for one in tickets) == 50
    assert [one for one in tickets if f"/messages/{one}" in second] == tickets[50:]
    assert "From the beginning" in second


@pytest.mark.parametrize(
    ("address", "is_live"),
    [
        ("/messages", True),
        ("/messages?in=history", True),
        (f"/chats/{BOT}/{CHAT}", True),
        ("/dead-letters/list", True),
        ("/messages?text=parcel", False),  # which takes long to find
        ("/messages?id=nobody", False),
    ],
)
async def test_lists_come_live(service: Service, address: str, is_live: bool) -> None:  # noqa: FBT001
    await service.put()
    assert ('data-live="1"' in await page(service, address)) is is_live
    answer = await service.operator.get(f"/live?page={quote('/messages?text=parcel', safe='')}")
    assert answer.status == 422


async def test_a_further_page_of_a_list_stays_as_it_is(service: Service) -> None:
    for chat in range(1, 61):
        await service.put(chat)
    first = await page(service, "/messages?state=queued")
    link = html.unescape(first.split('rel="next" href="')[1].split('"')[0])
    assert 'data-live="1"' in first
    assert 'data-live="1"' not in await page(service, link)


async def test_a_list_says_why_each_message_waits_and_until_when(service: Service) -> None:
    later = await service.put(1, delay=7_500)
    await service.gate.outbox.pause(OTHER_BOT)
    paused, letter = await service.put(2, OTHER_BOT), await service.put_letter(7)

    async def row(ticket: str) -> str:
        shown = (await page(service, "/messages?in=queue", "viewer")).split("<tr>")
        return next(one for one in shown if f"/messages/{ticket}" in one)

    assert "its time comes in 2 h 5 min" in await row(later)
    assert 'data-style="due"' in await row(later)
    assert "its bot is paused" in await row(paused)
    assert "When somebody acts" in await row(paused)
    assert "When somebody acts" not in await row(letter)
    assert "its time comes in 2 h 5 min" in await page(service, f"/chats/{BOT}/1")


async def test_a_list_without_an_answer_in_time_is_shown_without_reasons(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_: object) -> None:
        await service.gate.clock.sleep(3_600)

    ticket = await service.put()
    monkeypatch.setattr(service.gate.outbox, "why", never)
    shown = await page(service, "/messages")
    assert f"/messages/{ticket}" in shown
    assert "why it waits" not in shown


async def test_what_waits_is_one_state_to_look_for_as_the_first_page_counts_it(service: Service) -> None:
    tried = await service.put()
    await service.gate.outbox.start_sending()
    [claim] = await service.gate.outbox.claim(1)
    await service.gate.outbox.settle([Settlement(claim, Retry(600.0, "server_error"))])
    queued, letter = await service.put(8), await service.put_letter(7)
    shown = await page(service, "/messages?state=waiting")
    assert [f"/messages/{one}" in shown for one in (tried, queued, letter)] == [True, True, False]
    assert "/messages?state=waiting" in await page(service, "/")
    assert "fits" in await page(service, "/messages?state=waiting&in=history")


async def test_words_are_searched_in_history_by_operators_alone(service: Service) -> None:
    await service.put_history(text="a parcel for you", ticket="gone-1")
    await service.put_history(text="something else", ticket="gone-2")

    found = await page(service, "/messages?text=parcel")

    assert "/messages/gone-1" in found
    assert "/messages/gone-2" not in found
    assert "needs the role operator" in await page(service, "/messages?text=parcel", "viewer", 403)
    assert 'name="text"' not in await page(service, "/messages", "viewer")


async def test_a_search_for_words_ignored_the_state_that_was_chosen(service: Service) -> None:
    await service.put_history(text="a parcel for you", ticket="arrived", state="delivered")
    await service.put_history(text="a parcel for you", ticket="failed", state="dead", reason="blocked")
    found = await page(service, "/messages?text=parcel&state=dead")
    assert "/messages/failed" in found
    assert "/messages/arrived" not in found
    # From the first page, on which what waits is chosen: what waits is not in history.
    assert "/messages/arrived" in await page(service, "/messages?text=parcel&state=waiting")


async def test_history_is_listed_by_direction_and_leads_to_each_message(service: Service) -> None:
    number = await service.put_history(direction="in", state="received", kind="message", text="hello")
    shown = await page(service, "/messages?direction=in")
    assert f"/history/{CHAT}/{number}?bot={BOT}" in shown
    assert "hello" in shown
    assert "hello" not in await page(service, "/messages?direction=in", "viewer")


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("bot=abc", "bot is a number, not abc"),
        ("state=lost", "lost is no state"),
        ("chat=0", "is no chat"),
        ("direction=up", "direction is"),
        ("cursor=nonsense", "cursor is not one of this list"),
        ("cursor=WyJtZXNzYWdlcyIsICItMSJd", "cursor is not one of this list"),
        ("in=history&cursor=nonsense", "cursor is not one of this list"),
        ("text=!!!", "no word to search for"),
    ],
)
async def test_what_cannot_be_asked_gets_a_page_with_a_sentence(
    service: Service, query: str, sentence: str
) -> None:
    assert sentence in html.unescape(await page(service, f"/messages?{query}", status=422))


async def test_an_id_that_nobody_knows_is_said_so(service: Service) -> None:
    shown = await page(service, "/messages?id=%3Cb%3Enope")
    assert "No message with the id <code>&lt;b&gt;nope</code> is known" in shown
    assert "is not known here" in await page(service, "/messages/nope", status=404)


async def test_a_list_without_messages_says_what_would_be_there(service: Service) -> None:
    assert "Nothing waits" in await page(service, "/messages")
    assert "Look in history" in await page(service, "/messages?chat=5")
    assert "kept for 30 days" in await page(service, "/messages?in=history")


async def test_a_message_that_waits_says_why_and_when_it_leaves(service: Service) -> None:
    ticket = await service.put(delay=90, expires_in=600)
    paused = await service.put(9)
    await service.gate.outbox.pause(BOT, 9)

    shown, held = await page(service, f"/messages/{ticket}"), await page(service, f"/messages/{paused}")

    assert "It leaves in 90 s, as things stand." in shown
    assert "Its time comes in 90 s" in shown
    assert "<strong>Leaves</strong>" in shown
    assert "<strong>Deadline</strong>" in shown
    assert f'Its chat is paused: resume chat <a href="/chats/{BOT}/9">' in held
    assert "It leaves when somebody acts." in held


async def test_each_attempt_and_its_answer_are_on_the_timeline_in_order(
    service: Service, clock: VirtualClock
) -> None:
    ticket = await service.put(priority="high")
    await clock.sleep(1)
    await service.put_attempt(
        ticket, at=clock.now(), outcome="refused", reason=None, description=None, wait=17.0
    )
    await service.put_attempt(
        ticket, at=clock.now() + 20, outcome="retry", reason="server_error", description=None, wait=2.0
    )
    await service.put_attempt(
        ticket, at=clock.now() + 30, outcome="unknown", reason="timeout", wait=9.0, number=2
    )

    shown = await page(service, f"/messages/{ticket}")

    order = [
        "Accepted",
        "refused (429)",
        "asks to wait 17 s",
        "failed (server_error)",
        "Attempt 2: no answer",
    ]
    places = [shown.index(words) for words in order]
    assert places == sorted(places)
    assert SECRET_TEXT in shown
    hidden = await page(service, f"/messages/{ticket}", "viewer")
    assert "refused (429)" in hidden
    assert SECRET_TEXT not in hidden


async def test_a_message_that_is_tried_again_says_when_and_why(service: Service) -> None:
    ticket = await service.put(priority="high")
    await service.gate.outbox.start_sending()
    [claim] = await service.gate.outbox.claim(1)
    await service.gate.outbox.settle([Settlement(claim, Retry(30, "server_error"))])

    shown = await page(service, f"/messages/{ticket}")

    assert "retry</span>" in shown
    assert "The next attempt is in 30 s" in shown
    assert "The last attempt: <code>server_error</code>" in shown


async def test_operators_have_buttons_for_what_is_possible(service: Service) -> None:
    waiting, letter = await service.put(), await service.put_letter(7)

    shown = await page(service, f"/messages/{waiting}")
    assert f'data-action="/api/v1/messages/{waiting}/cancel"' in shown
    assert f'data-action="/api/v1/messages/{waiting}/priority"' in shown
    assert "{&#34;priority&#34;: &#34;high&#34;}" in shown
    assert "Make normal" not in shown
    shown = await page(service, f"/messages/{letter}")
    assert "/cancel" not in shown
    assert 'data-action="/api/v1/dead-letters/replay"' in shown
    assert 'data-action="/api/v1/dead-letters/drop"' in shown
    assert "Nothing reaches this chat until the user starts the bot again." in shown
    assert "data-action" not in await page(service, f"/messages/{letter}", "viewer")


async def test_a_letter_that_is_about_to_be_dropped_says_so(service: Service) -> None:
    letter = await service.put_letter(7)
    await service.operator.post(
        "/api/v1/dead-letters/drop", {"reason": "blocked", "bot": BOT, "undo_for": 15}
    )
    shown = await page(service, f"/messages/{letter}")
    assert "It is to be dropped" in shown
    assert 'data-action="/api/v1/dead-letters/drop"' not in shown


async def test_what_a_hostile_message_says_is_shown_and_nothing_else(service: Service) -> None:
    ticket = await service.put(chat_id=5, text=HOSTILE, dedup_key='"><script>alert(2)</script>')
    await service.put_attempt(ticket, reason="<b>odd</b>", description=HOSTILE)
    for path in (f"/messages/{ticket}", "/messages", f"/chats/{BOT}/5"):
        shown = await page(service, path)
        assert "<img" not in shown
        assert "<script>alert" not in shown
        assert "&lt;img src=x onerror=alert(1)&gt;" in shown
    shown = await page(service, f"/messages/{ticket}")
    assert "<br>second line &amp; more" in shown
    assert "&lt;b&gt;odd&lt;/b&gt;" in shown


async def test_a_message_that_the_queue_has_forgotten_is_shown_from_history(service: Service) -> None:
    number = await service.put_history(ticket="gone-1", created_at=10.0, ended_at=20.0)
    await service.put_attempt("gone-1", at=20.0)
    await service.put_history(reply_to_message_id=number, direction="in", state="received", text="and then?")

    shown = await page(service, "/messages/gone-1")

    assert "The queue has forgotten this message" in shown
    assert "Died: blocked" in shown
    assert SECRET_TEXT in shown
    hidden = await page(service, "/messages/gone-1", "viewer")
    assert SECRET_TEXT not in hidden
    other = await service.caller("operator", OTHER_BOT)
    assert (await other.get("/messages/gone-1")).status == 404


async def test_a_message_whose_end_is_not_recorded_has_its_attempts(service: Service) -> None:
    await service.put_attempt("gone-3", outcome="unknown", reason="timeout")
    shown = await page(service, "/messages/gone-3")
    assert "Attempt 1: no answer (timeout)" in shown
    assert "Only its attempts are recorded" in shown


async def test_a_message_of_history_has_its_versions_and_replies(service: Service) -> None:
    first = await service.put_history(text="the question", direction="in", state="received")
    answer = await service.put_history(text="the answer", reply_to_message_id=first, ticket="gone-1")
    await service.put_history(text="thanks", reply_to_message_id=answer, direction="in", state="received")

    shown = await page(service, f"/history/{CHAT}/{answer}?bot={BOT}")

    places = [shown.index(words) for words in ("the answer", "Before and after", "the question", "thanks")]
    assert places == sorted(places)
    assert "/messages/gone-1" in shown
    hidden = await page(service, f"/history/{CHAT}/{answer}", "viewer")
    assert "the answer" not in hidden
    other = await service.caller("operator", OTHER_BOT)
    assert (await other.get(f"/history/{CHAT}/{answer}")).status == 404


@pytest.mark.parametrize(
    "place", ["1001/x", "1001/-1", f"1001/{'9' * 400}", "1001/999999999999999999999", "0/1"]
)
async def test_a_place_that_cannot_be_in_history_is_not_an_error_of_the_server(
    place: str, service: Service
) -> None:
    assert (await service.operator.get(f"/history/{place}")).status in {404, 422}


async def test_a_page_shows_the_message_while_the_history_is_away(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = await service.put()

    async def away() -> object:
        raise StoreAwayError("the database cannot be reached")

    monkeypatch.setattr(service.gate.history, "opened", away)

    assert "The history cannot be read now" in await page(service, f"/messages/{ticket}")
    shown = await page(service, f"/chats/{BOT}/{CHAT}")
    assert "The history cannot be read now" in shown
    assert ticket in shown


async def test_a_chat_shows_what_waits_for_it_its_letters_and_its_history(service: Service) -> None:
    await service.put_history(ticket="gone-1", text="said before")
    letter, waiting = await service.put_letter(CHAT), await service.put()

    shown = await page(service, f"/chats/{BOT}/{CHAT}")

    for link in (waiting, letter, "gone-1"):
        assert f"/messages/{link}" in shown
    assert "said before" in shown
    assert f'data-action="/api/v1/bots/{BOT}/chats/{CHAT}/pause"' in shown
    hidden = await page(service, f"/chats/{BOT}/{CHAT}", "viewer")
    assert "said before" not in hidden
    assert SECRET_TEXT not in hidden


async def test_a_chat_that_is_paused_or_closed_says_until_when(service: Service) -> None:
    await service.put(5)
    await service.gate.outbox.start_sending()
    [claim] = await service.gate.outbox.claim(1)
    await service.gate.outbox.settle([Settlement(claim, Refused(40))])
    assert "by a 429, until" in await page(service, f"/chats/{BOT}/5")
    await service.gate.outbox.pause(BOT, 5)
    shown = await page(service, f"/chats/{BOT}/5")
    assert f"/api/v1/bots/{BOT}/chats/5/resume" in shown


async def test_a_chat_of_which_nothing_is_known_teaches(service: Service) -> None:
    shown = await page(service, f"/chats/{BOT}/@nobody")
    assert "Nothing waits for this chat." in shown
    assert "Nothing is recorded of this chat." in shown
    assert (await service.operator.get(f"/chats/{BOT}/0")).status == 422
    assert (await service.operator.get("/chats/99/5")).status == 404
    assert (await service.operator.get(f"/chats/{'9' * 30}/5")).status == 404
