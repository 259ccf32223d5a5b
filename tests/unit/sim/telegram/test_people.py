"""What a person does beside writing: send things, change words, look something up."""

import asyncio

import pytest

from simulated import TOKEN, Call
from tidegate.errors import BadInputError
from tidegate.sim.telegram import Person, SimulatedTelegram
from tidegate.sim.telegram.entities import SimulatedBot

CAT = {"type": "article", "id": "1", "title": "Cat", "input_message_content": {"message_text": "Miaow"}}


async def test_a_photo_can_be_fetched_by_the_bot(telegram: SimulatedTelegram, ann: Person, ok: Call) -> None:
    ann.sends_photo(b"picture", caption="me")
    message = (await ok("getUpdates"))[0]["message"]
    assert message["caption"] == "me"
    file = await ok("getFile", file_id=message["photo"][-1]["file_id"])
    assert telegram.world.files[file["file_id"]].content == b"picture"


async def test_contacts_and_places_are_shared(ann: Person, ok: Call) -> None:
    ann.shares_contact("+441")
    ann.shares_location(51.9, 1.3)
    contact, place = [update["message"] for update in await ok("getUpdates")]
    assert contact["contact"] == {"phone_number": "+441", "first_name": "User 7", "user_id": 7}
    assert place["location"] == {"latitude": 51.9, "longitude": 1.3}


async def test_what_was_written_last_is_changed(ann: Person, ok: Call) -> None:
    ann.says("/strat")
    ann.sends(sticker={})
    ann.edits("/start")
    edited = (await ok("getUpdates"))[-1]["edited_message"]
    assert (edited["message_id"], edited["text"], "edit_date" in edited) == (1, "/start", True)
    assert edited["entities"][0]["length"] == 6


async def test_nothing_can_be_changed_before_something_is_written(ann: Person) -> None:
    with pytest.raises(BadInputError, match="has written nothing"):
        ann.edits("x")


async def test_somebody_in_a_group_writes_and_hears_there(
    telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call
) -> None:
    ann, bob = (Person(telegram, bot, user_id, chat=-5) for user_id in (7, 8))
    ann.says("hello")
    assert (await ok("getUpdates"))[0]["message"]["chat"]["id"] == -5
    await ok("sendMessage", chat_id=-5, text="hello both")
    assert (await ann.hears())["text"] == (await bob.hears())["text"] == "hello both"


async def test_an_inline_query_is_answered_with_results(bot: SimulatedBot, ann: Person, ok: Call) -> None:
    looking = asyncio.create_task(ann.looks_up("cat"))
    query = (await ok("getUpdates", timeout=5))[0]["inline_query"]
    assert (query["query"], query["from"]["id"]) == ("cat", 7)
    assert await ok("answerInlineQuery", inline_query_id=query["id"], results=[CAT]) is True
    assert await looking == [CAT]
    assert bot.inquiries == {}


async def test_whoever_is_not_answered_gives_up(ann: Person) -> None:
    with pytest.raises(TimeoutError):
        await ann.looks_up("cat", timeout=5)


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        (None, "expected an Array of inline query results"),
        ([CAT] * 51, "too many inline query results specified"),
        ([CAT, CAT], "RESULT_ID_DUPLICATE"),
        ([CAT | {"id": ""}], "RESULT_ID_INVALID"),
        ([{"id": "1"}], "can't parse inline query result: can't find field \"type\""),
        ([CAT], "query is too old and response timeout expired or query ID is invalid"),
    ],
)
async def test_malformed_results_are_refused(fails: Call, results: object, reason: str) -> None:
    assert await fails("answerInlineQuery", inline_query_id="1", results=results) == (
        400,
        f"Bad Request: {reason}",
    )


async def test_a_web_app_is_answered_once(
    telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call, fails: Call
) -> None:
    query_id, inquiry = Person(telegram, bot, 7).opens_web_app()
    assert "inline_message_id" in await ok("answerWebAppQuery", web_app_query_id=query_id, result=CAT)
    assert inquiry.results == [CAT]
    assert (await fails("answerWebAppQuery", web_app_query_id=query_id, result=CAT))[0] == 400
    assert (await fails("answerWebAppQuery", web_app_query_id=query_id))[0] == 400


async def test_a_notice_that_is_too_long_is_refused(
    telegram: SimulatedTelegram, bot: SimulatedBot, fails: Call
) -> None:
    message = (await telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "?"})).body["result"]
    query = telegram.world.user_presses(bot, 7, message, "x")
    assert await fails("answerCallbackQuery", callback_query_id=query, text="x" * 201) == (
        400,
        "Bad Request: MESSAGE_TOO_LONG",
    )


INLINE = {"inline_keyboard": [[{"text": "Да", "callback_data": "y"}, {"text": "Nein", "callback_data": "n"}]]}
KEYS = {
    "keyboard": [
        [{"text": "Mein Kontakt", "request_contact": True}, {"text": "Hier", "request_location": True}],
        ["よし"],
    ]
}


async def test_a_button_is_pressed_by_what_it_reads(ann: Person, ok: Call) -> None:
    await ok("sendMessage", chat_id=7, text="?", reply_markup=INLINE)
    assert ann.labels() == ["Да", "Nein"]
    ann.presses(label="Nein")
    assert (await ok("getUpdates"))[0]["callback_query"]["data"] == "n"
    with pytest.raises(LookupError, match="no button that reads 'Ja'"):
        ann.presses(label="Ja")


async def test_keys_below_the_chat_write_or_share(ann: Person, ok: Call) -> None:
    await ok("sendMessage", chat_id=7, text="?", reply_markup=KEYS)
    await ok("sendMessage", chat_id=7, text="!")  # leaves the keyboard
    assert ann.keys() == ["Mein Kontakt", "Hier", "よし"]
    ann.taps()
    ann.taps("Hier")
    ann.taps("よし")
    contact, place, text = [update["message"] for update in await ok("getUpdates")]
    assert contact["contact"]["user_id"] == 7
    assert place["location"] == {"latitude": 52.52, "longitude": 13.405}
    assert text["text"] == "よし"
    await ok("sendMessage", chat_id=7, text="Done", reply_markup={"remove_keyboard": True})
    with pytest.raises(LookupError, match="no key 'Hier'"):
        ann.taps("Hier")


@pytest.mark.parametrize("keyboard", [5, [5], [[5]], [[{"text": ""}]]])
async def test_a_keyboard_that_is_none_is_refused(fails: Call, keyboard: object) -> None:
    status, _ = await fails("sendMessage", chat_id=7, text="?", reply_markup={"keyboard": keyboard})
    assert status == 400


async def test_a_contact_can_be_asked_for_in_private_only(fails: Call) -> None:
    _, text = await fails("sendMessage", chat_id=-5, text="?", reply_markup=KEYS)
    assert text == "Bad Request: phone number can be requested in private chats only"


async def test_people_have_a_language(telegram: SimulatedTelegram, bot: SimulatedBot, ok: Call) -> None:
    Person(telegram, bot, 7, language="pt-br").says("Olá")
    assert (await ok("getUpdates"))[0]["message"]["from"]["language_code"] == "pt-br"
