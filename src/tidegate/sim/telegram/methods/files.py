"""Bot API methods that send files: single files, albums, paid media; and file download."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tidegate.sim.telegram.call import MAX_CAPTION, MethodCall, Methods, named_methods
from tidegate.sim.telegram.entities import Json, StoredFile
from tidegate.sim.telegram.parameters import bad_request, to_int

ALBUM = range(2, 11)
PAID_ALBUM = range(1, 11)
MOST_STARS = 25_000
LARGEST_MEASURE = 2**31
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
_SIZE: Final = {"width": 640, "height": 480}
# The measures of each kind of file, with their defaults.
_MEASURES: Final[dict[str, dict[str, int]]] = {
    "video": _SIZE | {"duration": 0},
    "animation": _SIZE | {"duration": 0},
    "audio": {"duration": 0},
    "voice": {"duration": 0},
    "video_note": {"duration": 0, "length": 240},
}
_TEXTS: Final[dict[str, tuple[str, ...]]] = {"audio": ("performer", "title"), "sticker": ("emoji",)}
_STICKER: Final = {"type": "regular", "width": 512, "height": 512, "is_animated": False, "is_video": False}
_NAMED: Final = frozenset(("document", "video", "animation", "audio"))


def send_file(call: MethodCall, kind: str) -> Json:
    chat = call.chat()
    caption = call.text("caption", MAX_CAPTION, what="message caption")
    content = file_part(call.file(call.params.get(kind), kind), kind, call.params)
    if caption and kind not in WITHOUT_CAPTION:
        content["caption"] = caption
    content |= call.attached(chat)
    call.charge(chat, "send")
    return call.post(chat, content)


def send_media_group(call: MethodCall) -> list[Json]:
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
    return [call.post(chat, shared | file_part) for file_part in parts]


def send_paid_media(call: MethodCall) -> Json:
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


def get_file(call: MethodCall) -> Json:
    file = call.world.files.get(call.string("file_id"))
    if file is None:
        raise bad_request("invalid file_id")
    return file_info(file) | {"file_path": f"files/{file.id}"}


def media_part(call: MethodCall, item: Json) -> Json:
    """Return the message fields of an InputMedia: its file, and its caption if it has one."""
    kind, caption = str(item.get("type")), item.get("caption")
    if caption is not None and not isinstance(caption, str):
        raise bad_request("caption must be a string")
    if caption and len(caption) > MAX_CAPTION:
        raise bad_request("message caption is too long")
    held = file_part(call.file(item.get("media"), kind), kind, item)
    return held | {"caption": caption} if caption else held


def _media(call: MethodCall) -> list[Json]:
    media = call.nested("media")
    if not isinstance(media, list) or not all(isinstance(item, dict) for item in media):
        raise bad_request("can't parse media JSON object")
    return media


def file_part(file: StoredFile, kind: str, given: Mapping[str, Any]) -> Json:
    """Return the message field of a file; `given` holds the sender's parameters."""
    if kind == "photo":
        return {"photo": [file_info(file) | _SIZE]}
    described = file_info(file) | {
        name: _measure(given.get(name), usual) for name, usual in _MEASURES.get(kind, {}).items()
    }
    described |= {name: given[name] for name in _TEXTS.get(kind, ()) if isinstance(given.get(name), str)}
    if kind == "sticker":
        return {kind: described | _STICKER}
    if kind != "video_note":
        described["mime_type"] = file.mime
    if kind in _NAMED:
        described["file_name"] = file.name
    # An animation is a document too, for clients without animations.
    return {kind: described} | (file_part(file, "document", given) if kind == "animation" else {})


def file_info(file: StoredFile) -> Json:
    return {"file_id": file.id, "file_unique_id": f"U{file.id}", "file_size": len(file.content)}


def _measure(value: object, usual: int) -> int:
    number = to_int(value) if isinstance(value, str) else value
    return number if isinstance(number, int) and 0 <= number < LARGEST_MEASURE else usual


METHODS: Final[Methods] = {
    **named_methods(send_media_group, send_paid_media, get_file),
    **{method: partial(send_file, kind=kind) for method, kind in _KINDS.items()},
}
