"""Messages without files: texts, places, contacts, dice; and "typing …"."""

import random
from typing import Final

from tidegate.sim.telegram.call import Call, bad_request
from tidegate.sim.telegram.methods.base import MAX_TEXT, Methods
from tidegate.sim.telegram.residents import Json

HIGHEST_LATITUDE, HIGHEST_LONGITUDE = 90, 180
DIE = "🎲"
_FACES: Final = {DIE: 6, "🎯": 6, "🎳": 6, "🏀": 5, "⚽": 5, "⚽️": 5, "🎰": 64}
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


def send_message(call: Call) -> Json:
    chat = call.chat()
    text = call.text("text", MAX_TEXT, what="message")
    if not text.strip():
        raise bad_request("message text is empty")
    attached = call.attached(chat)
    call.charge(chat, "send")
    return call.post(chat, {"text": text, **attached})


def send_location(call: Call) -> Json:
    return call.send({"location": _location(call, "wrong location specified")})


def send_venue(call: Call) -> Json:
    location = _location(call, "wrong venue location specified")
    venue = {"location": location, "title": call.word("title"), "address": call.word("address")}
    # A venue has its location beside it too, for those who know no venues.
    return call.send({"venue": venue, "location": location})


def send_contact(call: Call) -> Json:
    contact = {name: call.required(name) for name in ("phone_number", "first_name")}
    contact |= {name: call.word(name) for name in ("last_name", "vcard") if call.word(name)}
    return call.send({"contact": contact})


def send_dice(call: Call) -> Json:
    emoji = call.word("emoji") or DIE
    if emoji not in _FACES:
        raise bad_request("can't send dice with the emoji")
    chat = call.chat()
    # By chat and number of the message: the same run throws the same dice.
    draw = random.Random(f"{chat.id}:{chat.next_id}")  # noqa: S311  (repeatable, not secret)
    return call.send({"dice": {"emoji": emoji, "value": draw.randint(1, _FACES[emoji])}})


def send_chat_action(call: Call) -> bool:
    chat = call.chat()
    if call.word("action") not in _ACTIONS:
        raise bad_request("wrong parameter action in request")
    call.charge(chat, "action")
    return True


def _location(call: Call, otherwise: str) -> Json:
    location = {name: call.number(name) for name in ("latitude", "longitude")}
    if abs(location["latitude"]) > HIGHEST_LATITUDE or abs(location["longitude"]) > HIGHEST_LONGITUDE:
        raise bad_request(otherwise)
    return location


METHODS: Final[Methods] = {
    "sendMessage": send_message,
    "sendLocation": send_location,
    "sendVenue": send_venue,
    "sendContact": send_contact,
    "sendDice": send_dice,
    "sendChatAction": send_chat_action,
}
