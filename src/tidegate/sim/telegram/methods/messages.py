"""Bot API methods that send messages without files, copy and forward messages, and show "typing …"."""

import random
from itertools import pairwise
from typing import Final

from tidegate.sim.telegram.call import CONTENT_FIELDS, MAX_CAPTION, MAX_TEXT, MethodCall, named_methods
from tidegate.sim.telegram.entities import Json, words
from tidegate.sim.telegram.parameters import bad_request

HIGHEST_LATITUDE, HIGHEST_LONGITUDE = 90, 180
DIE = "🎲"
_FACES: Final = {DIE: 6, "🎯": 6, "🎳": 6, "🏀": 5, "⚽": 5, "⚽️": 5, "🎰": 64}
_ACTIONS = frozenset(
    words(
        "typing upload_photo record_video upload_video record_voice upload_voice upload_document "
        "choose_sticker find_location record_video_note upload_video_note"
    )
)


def send_message(call: MethodCall) -> Json:
    chat = call.chat()
    text = call.text("text", MAX_TEXT, what="message")
    if not text.strip():
        raise bad_request("message text is empty")
    attached = call.attached(chat)
    call.charge(chat, "send")
    return call.post(chat, {"text": text, **attached})


def send_location(call: MethodCall) -> Json:
    return call.send({"location": _location(call, "wrong location specified")})


def send_venue(call: MethodCall) -> Json:
    location = _location(call, "wrong venue location specified")
    venue = {"location": location, "title": call.string("title"), "address": call.string("address")}
    # The location is sent beside the venue too, for clients without venues.
    return call.send({"venue": venue, "location": location})


def send_contact(call: MethodCall) -> Json:
    contact = {name: call.required(name) for name in ("phone_number", "first_name")}
    contact |= {name: call.string(name) for name in ("last_name", "vcard") if call.string(name)}
    return call.send({"contact": contact})


def send_dice(call: MethodCall) -> Json:
    emoji = call.string("emoji") or DIE
    if emoji not in _FACES:
        raise bad_request("can't send dice with the emoji")
    chat = call.chat()
    # Seeded by chat and message id: the same run gives the same dice.
    draw = random.Random(f"{chat.id}:{chat.next_id}")  # noqa: S311  (repeatable, not secret)
    return call.send({"dice": {"emoji": emoji, "value": draw.randint(1, _FACES[emoji])}})


def send_chat_action(call: MethodCall) -> bool:
    chat = call.chat()
    if call.string("action") not in _ACTIONS:
        raise bad_request("wrong parameter action in request")
    call.charge(chat, "action")
    return True


def _location(call: MethodCall, otherwise: str) -> Json:
    location = {name: call.number(name) for name in ("latitude", "longitude")}
    if abs(location["latitude"]) > HIGHEST_LATITUDE or abs(location["longitude"]) > HIGHEST_LONGITUDE:
        raise bad_request(otherwise)
    return location


def copy_message(call: MethodCall) -> Json:
    chat = call.chat()
    content = _content(call.message(call.chat("from_chat_id"), "message to copy"))
    if "caption" in call.params:
        content["caption"] = call.text("caption", MAX_CAPTION, what="message caption")
    content |= call.attached(chat)
    call.charge(chat, "send")
    return {"message_id": call.post(chat, content)["message_id"]}


def forward_message(call: MethodCall) -> Json:
    chat = call.chat()
    content = _forwarded(call, call.message(call.chat("from_chat_id"), "message to forward"))
    call.charge(chat, "send")
    return call.post(chat, content)


def copy_messages(call: MethodCall) -> list[Json]:
    contents = [_content(original) for original in _originals(call, "copy")]
    if call.flag("remove_caption"):
        contents = [
            {name: value for name, value in content.items() if "caption" not in name} for content in contents
        ]
    return _send_all(call, contents)


def forward_messages(call: MethodCall) -> list[Json]:
    return _send_all(call, [_forwarded(call, original) for original in _originals(call, "forward")])


def _send_all(call: MethodCall, contents: list[Json]) -> list[Json]:
    chat = call.chat()
    call.charge(chat, "send", cost=len(contents))
    return [{"message_id": call.post(chat, content)["message_id"]} for content in contents]


def _originals(call: MethodCall, verb: str) -> list[Json]:
    """Return the named messages that exist; others are skipped."""
    source, numbers = call.chat("from_chat_id"), call.identifiers("message_ids")
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        raise bad_request("message identifiers must be in a strictly increasing order")
    found = [source.messages[number] for number in numbers if number in source.messages]
    if not found:
        raise bad_request(f"there are no messages to {verb}")
    return found


def _content(original: Json) -> Json:
    return {part: original[part] for part in CONTENT_FIELDS if part in original}


def _forwarded(call: MethodCall, original: Json) -> Json:
    sender = original.get("from", call.bot.json)
    origin = {"type": "user", "date": original["date"], "sender_user": sender}
    return _content(original) | {"forward_origin": origin}


METHODS: Final = named_methods(
    send_message,
    send_location,
    send_venue,
    send_contact,
    send_dice,
    send_chat_action,
    copy_message,
    copy_messages,
    forward_message,
    forward_messages,
)
