"""Everything that can be sent beside texts, and what goes along with it."""

import pytest

from simulated import TOKEN, Call
from tidegate.sim.telegram import Limits, SimulatedTelegram, Upload
from tidegate.sim.virtual_time import VirtualClock

AT = "https://example.org/file.bin"
HERE = {"latitude": 51.9, "longitude": 1.3}


@pytest.mark.parametrize(
    ("method", "kind", "said", "shown"),
    [
        ("sendVideo", "video", {"duration": 3}, {"duration": 3, "width": 640, "height": 480}),
        ("sendAnimation", "animation", {"width": "20"}, {"duration": 0, "width": 20, "height": 480}),
        ("sendAudio", "audio", {"title": "Tide", "performer": "Sea"}, {"title": "Tide", "performer": "Sea"}),
        ("sendVoice", "voice", {"duration": -1}, {"duration": 0}),
        ("sendVideoNote", "video_note", {"length": 100}, {"length": 100, "duration": 0}),
        ("sendSticker", "sticker", {"emoji": "🌊"}, {"emoji": "🌊", "type": "regular", "is_video": False}),
    ],
)
async def test_each_kind_of_file_is_described_and_can_be_sent_again(
    telegram: SimulatedTelegram,
    ok: Call,
    method: str,
    kind: str,
    said: dict[str, object],
    shown: dict[str, object],
) -> None:
    uploads = {kind: Upload("a.bin", "x/y", b"content")}
    answer = await telegram.call(TOKEN, method, {"chat_id": 7, "caption": "c"} | said, uploads)
    file = answer.body["result"][kind]
    assert file["file_size"] == 7
    assert shown.items() <= file.items()
    assert (await ok(method, chat_id=8, **{kind: file["file_id"]}))[kind]["file_id"] == file["file_id"]


async def test_only_what_can_have_a_caption_has_one(ok: Call) -> None:
    assert (await ok("sendVideo", chat_id=7, video=AT, caption="c"))["caption"] == "c"
    assert "caption" not in await ok("sendSticker", chat_id=7, sticker=AT, caption="c")


async def test_a_file_that_is_missing_is_named_in_words(fails: Call) -> None:
    assert await fails("sendVideoNote", chat_id=7) == (
        400,
        "Bad Request: there is no video note in the request",
    )


@pytest.mark.parametrize("kinds", [("photo", "video"), ("video", "video"), ("audio", "audio")])
async def test_an_album_may_hold_photos_with_videos_or_music(ok: Call, kinds: tuple[str, ...]) -> None:
    media = [{"type": kind, "media": AT} for kind in kinds]
    messages = await ok("sendMediaGroup", chat_id=7, media=media)
    assert all(kind in message for kind, message in zip(kinds, messages, strict=True))


@pytest.mark.parametrize("kinds", [("photo", "audio"), ("voice", "voice"), ("document", "video")])
async def test_other_mixtures_are_no_album(fails: Call, kinds: tuple[str, ...]) -> None:
    media = [{"type": kind, "media": AT} for kind in kinds]
    assert await fails("sendMediaGroup", chat_id=7, media=media) == (
        400,
        "Bad Request: can't use the media of the specified type in the album",
    )


async def test_paid_media_have_a_price(ok: Call, fails: Call) -> None:
    media = [{"type": "photo", "media": AT}]
    sent = await ok("sendPaidMedia", chat_id=7, star_count=5, media=media, caption="c")
    assert (sent["paid_media"]["star_count"], sent["caption"]) == (5, "c")
    assert sent["paid_media"]["paid_media"][0]["type"] == "photo"
    assert (await fails("sendPaidMedia", chat_id=7, star_count=0, media=media))[0] == 400
    assert (await fails("sendPaidMedia", chat_id=7, star_count=5, media=[]))[0] == 400
    audio = [{"type": "audio", "media": AT}]
    assert (await fails("sendPaidMedia", chat_id=7, star_count=5, media=audio))[0] == 400


async def test_places_contacts_and_dice_are_sent(ok: Call) -> None:
    assert (await ok("sendLocation", chat_id=7, latitude="51.9", longitude=1.3))["location"] == HERE
    venue = await ok("sendVenue", chat_id=7, **HERE, title="Quay", address="1 Quay Street")
    assert venue["venue"] == {"location": HERE, "title": "Quay", "address": "1 Quay Street"}
    contact = await ok("sendContact", chat_id=7, phone_number="+441", first_name="Ann", last_name="Lee")
    assert contact["contact"] == {"phone_number": "+441", "first_name": "Ann", "last_name": "Lee"}
    assert (await ok("sendDice", chat_id=7))["dice"]["value"] in range(1, 7)
    assert (await ok("sendDice", chat_id=7, emoji="🏀"))["dice"]["value"] in range(1, 6)


@pytest.mark.parametrize(
    ("method", "params", "reason"),
    [
        ("sendLocation", {"longitude": 1}, "latitude is empty"),
        ("sendLocation", {"latitude": 1, "longitude": "east"}, "longitude is empty"),
        ("sendLocation", {"latitude": 91, "longitude": 1}, "wrong location specified"),
        ("sendVenue", {"latitude": 1, "longitude": 181}, "wrong venue location specified"),
        ("sendContact", {"first_name": "Ann"}, 'parameter "phone_number" is required'),
        ("sendContact", {"phone_number": "+441"}, 'parameter "first_name" is required'),
        ("sendDice", {"emoji": "🍀"}, "can't send dice with the emoji"),
        ("sendMessage", {"text": "x", "link_preview_options": 5}, "object expected as link preview options"),
        ("sendMessage", {"text": "x", "message_thread_id": "x"}, "message_thread_id must be an integer"),
    ],
)
async def test_what_is_malformed_is_refused_in_telegrams_words(
    fails: Call, method: str, params: dict[str, object], reason: str
) -> None:
    assert await fails(method, chat_id=7, **params) == (400, f"Bad Request: {reason}")


async def test_the_looks_of_a_message_come_back_with_it(ok: Call) -> None:
    sent = await ok(
        "sendMessage",
        chat_id=7,
        text="x",
        message_effect_id="5104841245755180586",
        link_preview_options={"is_disabled": True},
        message_thread_id=3,
        protect_content=True,
        disable_notification=True,
    )
    assert sent["effect_id"] == "5104841245755180586"
    assert sent["link_preview_options"] == {"is_disabled": True}
    assert (sent["message_thread_id"], sent["has_protected_content"]) == (3, True)


async def test_null_is_as_good_as_nothing(ok: Call) -> None:
    assert "message_thread_id" not in await ok("sendMessage", chat_id=7, text="x", message_thread_id=None)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("sendVideo", {"video": AT}),
        ("sendLocation", HERE),
        ("sendDice", {}),
        ("sendPoll", {"question": "?", "options": ["a", "b"]}),
        ("copyMessages", {"from_chat_id": 7, "message_ids": [1]}),
        ("editMessageReplyMarkup", {"message_id": 1, "reply_markup": {"inline_keyboard": [[{"text": "x"}]]}}),
        (
            "sendInvoice",
            {
                "title": "t",
                "description": "d",
                "payload": "p",
                "currency": "XTR",
                "prices": [{"label": "l", "amount": 1}],
            },
        ),
    ],
)
async def test_whatever_is_sent_or_edited_counts(
    clock: VirtualClock, method: str, params: dict[str, object]
) -> None:
    telegram = SimulatedTelegram(clock, limits=Limits(burst=1))
    await telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "first"})
    await clock.sleep(5)
    statuses = [(await telegram.call(TOKEN, method, {"chat_id": 7} | params)).status for _ in range(2)]
    assert statuses[0] == 200
    assert (await telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "next"})).status == 429


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("pinChatMessage", {"message_id": 1}),
        ("setMessageReaction", {"message_id": 1, "reaction": [{"type": "emoji", "emoji": "👍"}]}),
        ("deleteMessages", {"message_ids": [1]}),
        ("getChat", {}),
        ("setChatMenuButton", {}),
    ],
)
async def test_what_sends_nothing_is_free(
    clock: VirtualClock, method: str, params: dict[str, object]
) -> None:
    telegram = SimulatedTelegram(clock)
    await telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "first"})
    assert (await telegram.call(TOKEN, method, {"chat_id": 7} | params)).status == 200
    assert telegram.report()["peaks"] == {"bot": 1, "private": 1}
