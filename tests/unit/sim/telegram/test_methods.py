"""Each method as a bot sees it: Telegram's results, and Telegram's words for what is wrong."""

import msgspec
import pytest

from simulated import TOKEN, Call
from tidegate.sim.telegram import Limits, SimulatedTelegram, Upload, World
from tidegate.sim.virtual_time import VirtualClock

KEYBOARD = {"inline_keyboard": [[{"text": "Buy", "callback_data": "buy"}]]}


async def test_get_me_names_the_bot(ok: Call) -> None:
    me = await ok("getMe")
    assert (me["id"], me["is_bot"], me["username"]) == (42, True, "sim42_bot")


async def test_a_message_has_an_id_a_chat_and_a_date(ok: Call, clock: VirtualClock) -> None:
    first = await ok("sendMessage", chat_id=7, text="Hello", reply_markup=KEYBOARD)
    second = await ok("SENDMESSAGE", chat_id="7", text="again", reply_to_message_id=first["message_id"])
    assert first["text"] == "Hello"
    assert first["chat"] == {"id": 7, "type": "private", "first_name": "User 7", "username": "user7"}
    assert first["date"] == int(clock.now())
    assert first["reply_markup"] == KEYBOARD
    assert second["message_id"] == first["message_id"] + 1
    assert second["reply_to_message"]["text"] == "Hello"


async def test_nested_parameters_may_come_as_json_text(ok: Call) -> None:
    markup = msgspec.json.encode(KEYBOARD).decode()
    assert (await ok("sendMessage", chat_id=7, text="Hello", reply_markup=markup))["reply_markup"] == KEYBOARD


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"text": "Hello"}, "chat_id is empty"),
        ({"chat_id": "abc", "text": "Hello"}, "chat_id is empty"),
        ({"chat_id": 0, "text": "Hello"}, "chat not found"),
        ({"chat_id": "@nobody", "text": "Hello"}, "chat not found"),
        ({"chat_id": 7}, "message text is empty"),
        ({"chat_id": 7, "text": "  "}, "message text is empty"),
        ({"chat_id": 7, "text": 5}, "text must be a string"),
        ({"chat_id": 7, "text": "x" * 4097}, "message is too long"),
        ({"chat_id": 7, "text": "x", "reply_markup": "{"}, "can't parse reply_markup JSON object"),
        ({"chat_id": 7, "text": "x", "reply_markup": []}, "object expected as reply markup"),
        ({"chat_id": 7, "text": "x", "reply_to_message_id": 99}, "message to be replied not found"),
        (
            {"chat_id": 7, "text": "x", "reply_parameters": {"message_id": [1]}},
            "message to be replied not found",
        ),
        ({"chat_id": 7, "text": "x", "reply_parameters": 5}, "can't parse reply parameters JSON object"),
        (
            {"chat_id": 7, "text": "x", "reply_markup": {"inline_keyboard": [1]}},
            "can't parse inline keyboard button",
        ),
        (
            {
                "chat_id": 7,
                "text": "x",
                "reply_markup": {"inline_keyboard": [[{"text": "Buy", "callback_data": "x" * 65}]]},
            },
            "BUTTON_DATA_INVALID",
        ),
    ],
)
async def test_a_malformed_message_is_refused(fails: Call, params: dict[str, object], reason: str) -> None:
    assert await fails("sendMessage", **params) == (400, f"Bad Request: {reason}")


async def test_markup_does_not_count_towards_the_length(ok: Call, fails: Call) -> None:
    text = "<b>" + "x" * 4096 + "</b>"
    assert await fails("sendMessage", chat_id=7, text=text) == (400, "Bad Request: message is too long")
    await ok("sendMessage", chat_id=7, text=text, parse_mode="HTML")


async def test_an_unknown_method_is_not_found(fails: Call) -> None:
    assert await fails("sendTelepathy", chat_id=7) == (404, "Not Found: method not found")


@pytest.mark.parametrize("token", ["42", "no token", ":x", "42:", "a:b"])
async def test_what_is_no_token_is_not_found(telegram: SimulatedTelegram, token: str) -> None:
    assert (await telegram.call(token, "getMe")).status == 404


async def test_only_registered_tokens_are_let_in_where_some_are(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock, world=World(tokens={"1:a"}))
    assert (await telegram.call("1:a", "getMe")).status == 200
    assert (await telegram.call("1:b", "getMe")).status == 401


async def test_in_a_closed_world_unknown_chats_do_not_exist(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock, world=World(open_world=False))
    params = {"chat_id": 7, "text": "Hello"}
    assert (await telegram.call(TOKEN, "sendMessage", params)).status == 400
    bot = telegram.world.bot(TOKEN)
    assert bot is not None
    telegram.world.user_says(bot, 7, "/start", clock.now())
    assert (await telegram.call(TOKEN, "sendMessage", params)).status == 200


async def test_an_upload_gets_a_file_id_that_can_be_sent_again(telegram: SimulatedTelegram, ok: Call) -> None:
    uploads = {"document": Upload("a.txt", "text/plain", b"content")}
    answer = await telegram.call(TOKEN, "sendDocument", {"chat_id": 7, "caption": "c"}, uploads)
    document = answer.body["result"]["document"]
    assert (document["file_name"], document["file_size"], document["mime_type"]) == ("a.txt", 7, "text/plain")

    again = await ok("sendDocument", chat_id=8, document=document["file_id"])
    assert again["document"] == document
    assert (await ok("getFile", file_id=document["file_id"]))["file_path"] == f"files/{document['file_id']}"


async def test_a_photo_comes_in_sizes(ok: Call) -> None:
    message = await ok("sendPhoto", chat_id=7, photo="https://example.org/cat.jpg")
    assert message["photo"][0]["file_id"]


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({}, "there is no photo in the request"),
        ({"photo": "no-such-id"}, "wrong file identifier/HTTP URL specified"),
        ({"photo": "attach://missing"}, "there is no photo in the request"),
        (
            {"photo": "https://example.org/cat.jpg", "caption": "x" * 1025},
            "message caption is too long",
        ),
    ],
)
async def test_a_malformed_photo_is_refused(fails: Call, params: dict[str, object], reason: str) -> None:
    assert await fails("sendPhoto", chat_id=7, **params) == (400, f"Bad Request: {reason}")


async def test_an_album_gives_a_message_for_each_item(telegram: SimulatedTelegram) -> None:
    media = [
        {"type": "photo", "media": "attach://a", "caption": "one"},
        {"type": "photo", "media": "attach://b"},
    ]
    uploads = {name: Upload(name, "image/png", b"png") for name in "ab"}
    answer = await telegram.call(TOKEN, "sendMediaGroup", {"chat_id": 7, "media": media}, uploads)
    messages = answer.body["result"]
    assert [message["message_id"] for message in messages] == [1, 2]
    assert len({message["media_group_id"] for message in messages}) == 1
    assert telegram.report()["accepted"] == 2


@pytest.mark.parametrize("items", [0, 1, 11])
async def test_an_album_has_two_to_ten_items(fails: Call, items: int) -> None:
    media = [{"type": "photo", "media": "https://example.org/a.png"}] * items
    assert (await fails("sendMediaGroup", chat_id=7, media=media))[0] == 400


@pytest.mark.parametrize(
    "second", [{"type": "document"}, {"type": "video"}, {"type": "photo", "caption": 5}, {"type": "photo"}]
)
async def test_a_malformed_album_is_refused(fails: Call, second: dict[str, object]) -> None:
    first = {"type": "photo", "media": "https://example.org/a.png"}
    assert (await fails("sendMediaGroup", chat_id=7, media=[first, second]))[0] == 400


async def test_a_flood_may_hide_in_a_400(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock, limits=Limits(burst=1, hidden_floods=1.0))
    media = [{"type": "photo", "media": "https://example.org/a.png"}] * 2
    params = {"chat_id": 7, "media": media}
    assert (await telegram.call(TOKEN, "sendMediaGroup", params)).status == 200
    answer = await telegram.call(TOKEN, "sendMediaGroup", params)
    assert answer.status == 400
    assert "Too Many Requests: retry after 1" in answer.body["description"]
    assert "parameters" not in answer.body
    assert telegram.report()["refused"] == 1


async def test_a_429_says_how_long_to_wait(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock, limits=Limits(burst=1))
    params = {"chat_id": 7, "text": "Hello"}
    assert (await telegram.call(TOKEN, "sendMessage", params)).status == 200
    answer = await telegram.call(TOKEN, "sendMessage", params)
    assert answer.body == {
        "ok": False,
        "error_code": 429,
        "description": "Too Many Requests: retry after 1",
        "parameters": {"retry_after": 1},
    }


async def test_an_edit_changes_text_and_buttons(ok: Call, fails: Call) -> None:
    sent = await ok("sendMessage", chat_id=7, text="old", reply_markup=KEYBOARD)
    at = {"chat_id": 7, "message_id": sent["message_id"]}
    edited = await ok("editMessageText", **at, text="new", reply_markup=KEYBOARD)
    assert (edited["text"], edited["reply_markup"]) == ("new", KEYBOARD)
    assert sent["text"] == "old"  # what was answered before stays as it was
    status, reason = await fails("editMessageText", **at, text="new", reply_markup=KEYBOARD)
    assert (status, reason[:39]) == (400, "Bad Request: message is not modified: s")
    assert "reply_markup" not in await ok("editMessageReplyMarkup", **at)


async def test_only_its_own_existing_messages_can_be_edited(telegram: SimulatedTelegram, fails: Call) -> None:
    bot = telegram.world.bot(TOKEN)
    assert bot is not None
    theirs = telegram.world.user_says(bot, 7, "hi", telegram.clock.now())
    missing = await fails("editMessageText", chat_id=7, message_id=99, text="new")
    foreign = await fails("editMessageText", chat_id=7, message_id=theirs["message_id"], text="new")
    assert missing == (400, "Bad Request: message to edit not found")
    assert foreign == (400, "Bad Request: message can't be edited")


async def test_a_deleted_message_is_gone(ok: Call, fails: Call) -> None:
    at = {"chat_id": 7, "message_id": (await ok("sendMessage", chat_id=7, text="x"))["message_id"]}
    assert await ok("deleteMessage", **at) is True
    assert await fails("deleteMessage", **at) == (400, "Bad Request: message to delete not found")


async def test_copies_and_forwards_carry_the_content(ok: Call, fails: Call) -> None:
    sent = await ok("sendMessage", chat_id=7, text="Hello")
    source = {"from_chat_id": 7, "message_id": sent["message_id"]}
    assert await ok("copyMessage", chat_id=8, **source) == {"message_id": 1}
    forwarded = await ok("forwardMessage", chat_id=8, **source)
    assert forwarded["text"] == "Hello"
    assert forwarded["forward_origin"]["sender_user"]["id"] == 42
    assert await fails("copyMessage", chat_id=8, from_chat_id=7, message_id=99) == (
        400,
        "Bad Request: message to copy not found",
    )


async def test_typing_needs_a_known_action(ok: Call, fails: Call) -> None:
    assert await ok("sendChatAction", chat_id=7, action="typing") is True
    assert (await fails("sendChatAction", chat_id=7, action="dancing"))[0] == 400


async def test_chats_and_members_can_be_asked_for(telegram: SimulatedTelegram, ok: Call, fails: Call) -> None:
    telegram.world.add_group(-5, name="Harbour")
    assert (await ok("getChat", chat_id="@harbour"))["id"] == -5
    assert (await ok("getChatMember", chat_id=-5, user_id=42))["status"] == "member"
    assert await fails("getChatMember", chat_id=-5, user_id=99) == (400, "Bad Request: user not found")


async def test_who_cannot_be_reached_says_why(telegram: SimulatedTelegram, fails: Call) -> None:
    world, now = telegram.world, telegram.clock.now()
    bot = world.bot(TOKEN)
    assert bot is not None
    world.user_blocks(bot, 7, now)
    world.add_private(bot, 8)
    world.user(8).deactivated = True
    world.add_group(-5).kicked.add(42)
    new = world.migrate(-6, now)

    async def send(chat_id: int) -> tuple[int, str]:
        answer: tuple[int, str] = await fails("sendMessage", chat_id=chat_id, text="Hello")
        return answer

    assert await send(7) == (403, "Forbidden: bot was blocked by the user")
    assert await send(8) == (403, "Forbidden: user is deactivated")
    assert await send(-5) == (403, "Forbidden: bot was kicked from the group chat")
    assert await send(-6) == (400, "Bad Request: group chat was upgraded to a supergroup chat")
    answer = await telegram.call(TOKEN, "sendMessage", {"chat_id": -6, "text": "Hello"})
    assert answer.body["parameters"] == {"migrate_to_chat_id": new}
    assert (await telegram.call(TOKEN, "sendMessage", {"chat_id": new, "text": "Hello"})).status == 200
    world.user_blocks(bot, 7, now, blocked=False)
    assert (await telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "Hello"})).status == 200


async def test_a_button_press_can_be_answered_once(
    telegram: SimulatedTelegram, ok: Call, fails: Call
) -> None:
    bot = telegram.world.bot(TOKEN)
    assert bot is not None
    message = await ok("sendMessage", chat_id=7, text="?", reply_markup=KEYBOARD)
    query = telegram.world.user_presses(bot, 7, message, "buy")
    assert await ok("answerCallbackQuery", callback_query_id=query) is True
    assert (await fails("answerCallbackQuery", callback_query_id=query))[0] == 400
    assert (await fails("answerCallbackQuery", callback_query_id=[1]))[0] == 400


PHOTO = "https://example.org/cat.jpg"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("sendMessage", {"text": "x", "entities": "nonsense"}),
        ("sendMessage", {"text": "x", "reply_parameters": {"message_id": 99}}),
        ("sendPhoto", {"photo": PHOTO, "caption_entities": 5}),
        ("sendPhoto", {"photo": PHOTO, "reply_to_message_id": 99}),
        ("copyMessage", {"from_chat_id": 7, "message_id": 1, "caption": "x" * 1025}),
        ("forwardMessage", {"from_chat_id": 7, "message_id": 99}),
        ("editMessageText", {"message_id": 1, "text": "new", "entities": [5]}),
        ("sendMediaGroup", {"media": [{"type": "photo", "media": PHOTO}] * 2, "reply_to_message_id": 99}),
    ],
)
async def test_what_is_malformed_is_not_counted(
    clock: VirtualClock, method: str, params: dict[str, object]
) -> None:
    telegram = SimulatedTelegram(clock)
    await telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "first"})
    await clock.sleep(5)
    assert (await telegram.call(TOKEN, method, {"chat_id": 7} | params)).status == 400
    assert (await telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "next"})).status == 200


async def test_what_is_not_modified_is_counted(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock, limits=Limits(burst=1))
    await telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "same"})
    await clock.sleep(5)
    edit = {"chat_id": 7, "message_id": 1, "text": "same"}
    assert (await telegram.call(TOKEN, "editMessageText", edit)).status == 400
    assert (await telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "next"})).status == 429


async def test_an_upload_that_is_refused_is_not_kept(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock, limits=Limits(burst=1))
    uploads = {"document": Upload("a.txt", "text/plain", b"content")}
    statuses = [
        (await telegram.call(TOKEN, "sendDocument", {"chat_id": 7}, uploads)).status for _ in range(3)
    ]
    assert statuses == [200, 429, 429]
    assert len(telegram.world.files) == 1


async def test_files_are_bounded_by_their_bytes(
    telegram: SimulatedTelegram, monkeypatch: pytest.MonkeyPatch, ok: Call
) -> None:
    monkeypatch.setattr("tidegate.sim.telegram.world.FILE_BYTES_KEPT", 25)
    for name in "abc":
        uploads = {"document": Upload(name, "text/plain", b"x" * 10)}
        await telegram.call(TOKEN, "sendDocument", {"chat_id": 7}, uploads)
    assert [file.name for file in telegram.world.files.values()] == ["b", "c"]
    await ok("sendPhoto", chat_id=7, photo=PHOTO)


async def test_two_tokens_with_one_number_are_one_bot(telegram: SimulatedTelegram) -> None:
    for token in ("42:one", "42:two"):
        await telegram.call(token, "sendMessage", {"chat_id": 7, "text": "x"})
    assert telegram.report()["bots"] == 1
    bot = telegram.world.bot("42:one")
    assert bot is telegram.world.bot("42:two") is telegram.world.bots[42]


@pytest.mark.parametrize("token", ["٤٢:x", "42:ä", "0:x", "042:x"])
async def test_a_token_that_telegram_would_not_write_is_not_found(
    telegram: SimulatedTelegram, token: str
) -> None:
    assert (await telegram.call(token, "getMe")).status == 404
