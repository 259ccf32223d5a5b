"""Messages after they were sent: edited, copied in numbers, deleted, pinned, reacted to."""

import pytest

from simulated import TOKEN, Call
from tidegate.sim.telegram import Limits, Person, SimulatedTelegram, Upload
from tidegate.sim.telegram.entities import SimulatedBot
from tidegate.sim.virtual_time import VirtualClock

AT = "https://example.org/file.bin"
THUMB = {"type": "emoji", "emoji": "👍"}


async def test_a_caption_is_changed_and_taken_away(ok: Call, fails: Call) -> None:
    at = {
        "chat_id": 7,
        "message_id": (await ok("sendPhoto", chat_id=7, photo=AT, caption="old"))["message_id"],
    }
    assert (await ok("editMessageCaption", **at, caption="new"))["caption"] == "new"
    assert "caption" not in await ok("editMessageCaption", **at)
    assert (await fails("editMessageCaption", **at))[1].startswith("Bad Request: message is not modified")


async def test_texts_and_captions_are_not_taken_for_each_other(ok: Call, fails: Call) -> None:
    text = await ok("sendMessage", chat_id=7, text="x")
    photo = await ok("sendPhoto", chat_id=7, photo=AT)
    assert await fails("editMessageCaption", chat_id=7, message_id=text["message_id"], caption="c") == (
        400,
        "Bad Request: there is no caption in the message to edit",
    )
    assert await fails("editMessageText", chat_id=7, message_id=photo["message_id"], text="t") == (
        400,
        "Bad Request: there is no text in the message to edit",
    )


async def test_an_edited_text_loses_its_old_entities(ok: Call) -> None:
    bold = {"type": "bold", "offset": 0, "length": 3}
    sent = await ok("sendMessage", chat_id=7, text="old", entities=[bold])
    assert "entities" not in await ok("editMessageText", chat_id=7, message_id=sent["message_id"], text="new")


async def test_a_medium_takes_the_place_of_another(
    telegram: SimulatedTelegram, ok: Call, fails: Call
) -> None:
    at = {
        "chat_id": 7,
        "message_id": (await ok("sendPhoto", chat_id=7, photo=AT, caption="old"))["message_id"],
    }
    media = {"type": "video", "media": "attach://new", "caption": "new"}
    uploads = {"new": Upload("new.mp4", "video/mp4", b"film")}
    answer = await telegram.call(TOKEN, "editMessageMedia", at | {"media": media}, uploads)
    edited = answer.body["result"]
    assert (edited["video"]["file_name"], edited["caption"], "photo" in edited) == ("new.mp4", "new", False)
    assert (await fails("editMessageMedia", **at, media={"type": "sticker", "media": AT}))[0] == 400
    assert (await fails("editMessageMedia", **at))[0] == 400


async def test_many_are_copied_and_forwarded_in_order_without_the_missing(ok: Call) -> None:
    numbers = [(await ok("sendPhoto", chat_id=7, photo=AT, caption=c))["message_id"] for c in "ab"]
    source = {"from_chat_id": 7, "message_ids": [*numbers, 99]}
    copies = await ok("copyMessages", chat_id=8, **source, remove_caption=True)
    forwards = await ok("forwardMessages", chat_id=8, **source)
    assert (copies, forwards) == (
        [{"message_id": 1}, {"message_id": 2}],
        [{"message_id": 3}, {"message_id": 4}],
    )


async def test_many_count_each(clock: VirtualClock) -> None:
    telegram = SimulatedTelegram(clock, limits=Limits())
    for text in "ab":
        await telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": text})
        await clock.sleep(2)
    both = {"from_chat_id": 7, "message_ids": [1, 2]}
    assert (await telegram.call(TOKEN, "forwardMessages", {"chat_id": -5} | both)).status == 200
    assert telegram.report()["peaks"]["group"] == 2


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        (None, "message identifiers are not specified"),
        ([], "message identifiers are not specified"),
        (5, "expected an Array of message identifiers"),
        (list(range(1, 102)), "too many message identifiers specified"),
        (["x"], "message identifier must be a Number"),
        ([2, 1], "message identifiers must be in a strictly increasing order"),
        ([98, 99], "there are no messages to copy"),
    ],
)
async def test_malformed_numbers_of_messages_are_refused(fails: Call, numbers: object, reason: str) -> None:
    assert await fails("copyMessages", chat_id=8, from_chat_id=7, message_ids=numbers) == (
        400,
        f"Bad Request: {reason}",
    )


async def test_many_are_deleted_without_the_missing(
    telegram: SimulatedTelegram, ok: Call, bot: SimulatedBot
) -> None:
    for text in "abc":
        await ok("sendMessage", chat_id=7, text=text)
    assert await ok("deleteMessages", chat_id=7, message_ids=[1, 3, 99]) is True
    chat = telegram.world.chat(bot, 7)
    assert chat is not None
    assert list(chat.messages) == [2]


async def test_the_latest_pin_is_shown_until_it_is_taken_off(ok: Call, fails: Call) -> None:
    async def pinned() -> object:
        return (await ok("getChat", chat_id=7)).get("pinned_message", {}).get("text")

    for number, text in enumerate("abc", 1):
        await ok("sendMessage", chat_id=7, text=text)
        await ok("pinChatMessage", chat_id=7, message_id=number)
    assert await pinned() == "c"
    await ok("unpinChatMessage", chat_id=7)
    assert await pinned() == "b"
    await ok("unpinChatMessage", chat_id=7, message_id=1)
    await ok("deleteMessage", chat_id=7, message_id=2)
    assert await pinned() is None
    await ok("pinChatMessage", chat_id=7, message_id=1)
    await ok("unpinAllChatMessages", chat_id=7)
    assert await pinned() is None
    assert await fails("unpinChatMessage", chat_id=7) == (400, "Bad Request: message to unpin not found")
    assert await fails("pinChatMessage", chat_id=7, message_id=99) == (
        400,
        "Bad Request: message to pin not found",
    )


async def test_a_reaction_is_set_and_taken_back(
    bot: SimulatedBot, ann: Person, ok: Call, fails: Call
) -> None:
    at = {"chat_id": 7, "message_id": ann.says("hello")["message_id"]}
    await ok("setMessageReaction", **at, reaction=[THUMB])
    assert bot.reactions == {(7, 1): [THUMB]}
    await ok("setMessageReaction", **at)
    assert bot.reactions == {(7, 1): []}
    wrong: tuple[object, ...] = (5, [{"type": "shrug"}], [{"type": "emoji"}], [THUMB] * 12)
    for reaction in wrong:
        assert (await fails("setMessageReaction", **at, reaction=reaction))[0] == 400
    assert await fails("setMessageReaction", chat_id=7, message_id=99) == (
        400,
        "Bad Request: message to react not found",
    )
