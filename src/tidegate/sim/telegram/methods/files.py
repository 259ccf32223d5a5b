"""Messages with files: one, an album, something to be paid for; and the files themselves."""

from functools import partial
from typing import Final

from tidegate.sim.telegram.attachments import about, part
from tidegate.sim.telegram.call import Call, bad_request
from tidegate.sim.telegram.methods.base import MAX_CAPTION, Methods
from tidegate.sim.telegram.residents import Json

ALBUM = range(2, 11)
PAID_ALBUM = range(1, 11)
MOST_STARS = 25_000
WITHOUT_CAPTION = frozenset(("sticker", "video_note"))
_ALBUMS: Final = ({"photo"}, {"video"}, {"photo", "video"}, {"audio"}, {"document"})
_KINDS: Final = {
    "sendPhoto": "photo",
    "sendDocument": "document",
    "sendVideo": "video",
    "sendAnimation": "animation",
    "sendAudio": "audio",
    "sendVoice": "voice",
    "sendVideoNote": "video_note",
    "sendSticker": "sticker",
}


def send_file(call: Call, kind: str) -> Json:
    chat = call.chat()
    caption = call.text("caption", MAX_CAPTION, what="message caption")
    content = part(call.file(call.params.get(kind), kind), kind, call.params)
    if caption and kind not in WITHOUT_CAPTION:
        content["caption"] = caption
    content |= call.attached(chat)
    call.charge(chat, "send")
    return call.post(chat, content)


def send_media_group(call: Call) -> list[Json]:
    chat = call.chat()
    media = _media(call)
    if len(media) not in ALBUM:
        raise bad_request(f"media group must have from {ALBUM[0]} to {ALBUM[-1]} items")
    kinds = {str(item.get("type")) for item in media}
    if kinds not in _ALBUMS:
        raise bad_request("can't use the media of the specified type in the album")
    parts = [media_part(call, item) for item in media]
    shared = {"media_group_id": str(chat.next_id)} | call.attached(chat)
    call.charge(chat, "send", cost=len(media))
    return [call.post(chat, shared | part) for part in parts]


def send_paid_media(call: Call) -> Json:
    stars, media = call.integer("star_count", 0), _media(call)
    if stars not in range(1, MOST_STARS + 1):
        raise bad_request("invalid media price specified")
    if len(media) not in PAID_ALBUM:
        raise bad_request("invalid number of paid media specified")
    if not all(item.get("type") in ("photo", "video") for item in media):
        raise bad_request("can't parse InputPaidMedia: type must be photo or video")
    shown = [{"type": item["type"]} | media_part(call, item) for item in media]
    caption = call.text("caption", MAX_CAPTION, what="message caption")
    content: Json = {"paid_media": {"star_count": stars, "paid_media": shown}}
    return call.send(content | {"caption": caption} if caption else content)


def get_file(call: Call) -> Json:
    file = call.world.files.get(call.word("file_id"))
    if file is None:
        raise bad_request("invalid file_id")
    return about(file) | {"file_path": f"files/{file.id}"}


def media_part(call: Call, item: Json) -> Json:
    """What a message holds for an InputMedia: its file, and its caption if it has one."""
    kind, caption = str(item.get("type")), item.get("caption")
    if caption is not None and not isinstance(caption, str):
        raise bad_request("caption must be a string")
    if caption and len(caption) > MAX_CAPTION:
        raise bad_request("message caption is too long")
    held = part(call.file(item.get("media"), kind), kind, item)
    return held | {"caption": caption} if caption else held


def _media(call: Call) -> list[Json]:
    media = call.nested("media")
    if not isinstance(media, list) or not all(isinstance(item, dict) for item in media):
        raise bad_request("can't parse media JSON object")
    return media


METHODS: Final[Methods] = {
    **{method: partial(send_file, kind=kind) for method, kind in _KINDS.items()},
    "sendMediaGroup": send_media_group,
    "sendPaidMedia": send_paid_media,
    "getFile": get_file,
}
