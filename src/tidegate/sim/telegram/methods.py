"""The Bot API's methods: each validates, counts itself, changes the world, and returns Telegram's result.

Only getUpdates and the webhook methods are elsewhere (`telegram.py`), as they wait or reach out.
"""

from collections.abc import Callable
from typing import Any, Final

from tidegate.sim.telegram.call import ApiError, Call, bad_request
from tidegate.sim.telegram.world import Chat, File, Json

MAX_TEXT = 4096
MAX_CAPTION = 1024
ALBUM = range(2, 11)
_ACTIONS = frozenset(
    (
        "typing",
        "upload_photo",
        "record_video",
        "upload_video",
        "record_voice",
        "upload_voice",
        "upload_document",
        "choose_sticker",
        "find_location",
        "record_video_note",
        "upload_video_note",
    )
)
_COPIED: Final[tuple[str, ...]] = ("text", "photo", "document", "caption", "entities", "caption_entities")


def get_me(call: Call) -> Json:
    abilities = {"can_join_groups": True, "can_read_all_group_messages": False}
    return call.bot.json | abilities | {"supports_inline_queries": False}


def send_message(call: Call) -> Json:
    chat = call.chat()
    text = call.text("text", MAX_TEXT, what="message")
    if not text.strip():
        raise bad_request("message text is empty")
    attached = call.attached(chat)
    call.charge(chat, "send")
    return call.post(chat, {"text": text, **attached})


def send_photo(call: Call) -> Json:
    return _send_file(call, "photo")


def send_document(call: Call) -> Json:
    return _send_file(call, "document")


def send_media_group(call: Call) -> list[Json]:
    chat = call.chat()
    media = call.nested("media")
    if not isinstance(media, list) or not all(isinstance(item, dict) for item in media):
        raise bad_request("can't parse media JSON object")
    if len(media) not in ALBUM:
        raise bad_request(f"media group must have from {ALBUM[0]} to {ALBUM[-1]} items")
    kinds = {str(item.get("type")) for item in media}
    if kinds not in ({"photo"}, {"document"}):
        raise bad_request("the simulator takes albums of photos only, or of documents only")
    parts = []
    for item in media:
        kind = item["type"]
        parts.append(_as_part(call.file(item.get("media"), kind), kind) | _caption_of(item))
    shared = {"media_group_id": str(chat.next_id)} | call.attached(chat)
    call.charge(chat, "send", cost=len(media))
    return [call.post(chat, shared | part) for part in parts]


def edit_message_text(call: Call) -> Json:
    text = call.text("text", MAX_TEXT, what="message")
    if not text.strip():
        raise bad_request("message text is empty")
    return _edit(call, {"text": text} | call.entities("entities"))


def edit_message_reply_markup(call: Call) -> Json:
    return _edit(call, {})


def delete_message(call: Call) -> bool:
    chat = call.chat()
    message_id = call.integer("message_id")
    if chat.messages.pop(message_id, None) is None:
        raise bad_request("message to delete not found")
    return True


def send_chat_action(call: Call) -> bool:
    chat = call.chat()
    if call.word("action") not in _ACTIONS:
        raise bad_request("wrong parameter action in request")
    call.charge(chat, "action")
    return True


def answer_callback_query(call: Call) -> bool:
    query_id = call.word("callback_query_id")
    if query_id not in call.bot.queries:
        raise bad_request("query is too old and response timeout expired or query ID is invalid")
    del call.bot.queries[query_id]
    return True


def copy_message(call: Call) -> Json:
    chat = call.chat()
    original = _original(call, "copy")
    content = {part: original[part] for part in _COPIED if part in original}
    if "caption" in call.params:
        content["caption"] = call.text("caption", MAX_CAPTION, what="message caption")
    content |= call.attached(chat)
    call.charge(chat, "send")
    return {"message_id": call.post(chat, content)["message_id"]}


def forward_message(call: Call) -> Json:
    chat = call.chat()
    original = _original(call, "forward")
    content = {part: original[part] for part in _COPIED if part in original}
    sender = original.get("from", call.bot.json)
    content["forward_origin"] = {"type": "user", "date": original["date"], "sender_user": sender}
    call.charge(chat, "send")
    return call.post(chat, content)


def get_chat(call: Call) -> Json:
    # What Telegram sends of every chat beyond its short form.
    return call.chat().json | {"accent_color_id": 0, "max_reaction_count": 11, "accepted_gift_types": _GIFTS}


def get_chat_member(call: Call) -> Json:
    chat = call.chat()
    user_id = call.integer("user_id")
    if user_id == call.bot.id:
        status = "kicked" if user_id in chat.kicked else "member"
        return {"status": status, "user": call.bot.json, "until_date": 0}
    if user_id not in call.world.users:
        raise bad_request("user not found")
    return {"status": "member", "user": call.world.user(user_id).json()}


def get_file(call: Call) -> Json:
    file = call.world.files.get(call.word("file_id"))
    if file is None:
        raise bad_request("invalid file_id")
    return _about(file) | {"file_path": f"files/{file.id}"}


_GIFTS: Final = dict.fromkeys(
    ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription", "gifts_from_channels"), False
)


def _send_file(call: Call, kind: str) -> Json:
    chat = call.chat()
    caption = call.text("caption", MAX_CAPTION, what="message caption")
    content = _as_part(call.file(call.params.get(kind), kind), kind)
    if caption:
        content["caption"] = caption
    content |= call.attached(chat)
    call.charge(chat, "send")
    return call.post(chat, content)


def _edit(call: Call, content: Json) -> Json:
    chat = call.chat()
    old = chat.messages.get(call.integer("message_id"))
    if old is None:
        raise bad_request("message to edit not found")
    if old.get("from", {}).get("id") != call.bot.id:
        raise bad_request("message can't be edited")
    kept = {key: value for key, value in old.items() if key not in {"reply_markup", "edit_date"}}
    new = kept | content | call.keyboard()
    call.charge(chat, "edit")
    if new == {key: value for key, value in old.items() if key != "edit_date"}:
        raise bad_request(
            "message is not modified: specified new message content and reply markup are exactly the same "
            "as a current content and reply markup of the message"
        )
    # A new record: whoever was given the old one keeps it as it was.
    new["edit_date"] = call.date
    chat.messages[new["message_id"]] = new
    chat.tell(new)
    return new


def _original(call: Call, verb: str) -> Json:
    source: Chat = call.chat("from_chat_id")
    message = source.messages.get(call.integer("message_id"))
    if message is None:
        raise bad_request(f"message to {verb} not found")
    return message


def _caption_of(item: Json) -> Json:
    caption = item.get("caption")
    if caption is None:
        return {}
    if not isinstance(caption, str):
        raise bad_request("caption must be a string")
    if len(caption) > MAX_CAPTION:
        raise bad_request("message caption is too long")
    return {"caption": caption}


def _as_part(file: File, kind: str) -> Json:
    if kind == "photo":
        return {"photo": [_about(file) | {"width": 640, "height": 480}]}
    return {"document": _about(file) | {"file_name": file.name, "mime_type": file.mime}}


def _about(file: File) -> Json:
    return {"file_id": file.id, "file_unique_id": f"U{file.id}", "file_size": len(file.content)}


METHODS: Final[dict[str, Callable[[Call], Any]]] = {
    "getMe": get_me,
    "sendMessage": send_message,
    "sendPhoto": send_photo,
    "sendDocument": send_document,
    "sendMediaGroup": send_media_group,
    "editMessageText": edit_message_text,
    "editMessageReplyMarkup": edit_message_reply_markup,
    "deleteMessage": delete_message,
    "sendChatAction": send_chat_action,
    "answerCallbackQuery": answer_callback_query,
    "copyMessage": copy_message,
    "forwardMessage": forward_message,
    "getChat": get_chat,
    "getChatMember": get_chat_member,
    "getFile": get_file,
}
NOT_FOUND = ApiError(404, "Not Found")
UNAUTHORIZED = ApiError(401, "Unauthorized")
