"""Messages sent again: copies and forwards, one or many. Many count each."""

from itertools import pairwise
from typing import Final

from tidegate.sim.telegram.call import Call, bad_request
from tidegate.sim.telegram.methods.base import CONTENT, MAX_CAPTION, Methods
from tidegate.sim.telegram.residents import Json


def copy_message(call: Call) -> Json:
    chat = call.chat()
    content = _content(call.message(call.chat("from_chat_id"), "message to copy"))
    if "caption" in call.params:
        content["caption"] = call.text("caption", MAX_CAPTION, what="message caption")
    content |= call.attached(chat)
    call.charge(chat, "send")
    return {"message_id": call.post(chat, content)["message_id"]}


def forward_message(call: Call) -> Json:
    chat = call.chat()
    content = _forwarded(call, call.message(call.chat("from_chat_id"), "message to forward"))
    call.charge(chat, "send")
    return call.post(chat, content)


def copy_messages(call: Call) -> list[Json]:
    contents = [_content(original) for original in _originals(call, "copy")]
    if call.flag("remove_caption"):
        contents = [
            {name: value for name, value in content.items() if "caption" not in name} for content in contents
        ]
    return _send_all(call, contents)


def forward_messages(call: Call) -> list[Json]:
    return _send_all(call, [_forwarded(call, original) for original in _originals(call, "forward")])


def _send_all(call: Call, contents: list[Json]) -> list[Json]:
    chat = call.chat()
    call.charge(chat, "send", cost=len(contents))
    return [{"message_id": call.post(chat, content)["message_id"]} for content in contents]


def _originals(call: Call, verb: str) -> list[Json]:
    """What is there of the messages that are named; those that are not are passed over."""
    source, numbers = call.chat("from_chat_id"), call.identifiers("message_ids")
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        raise bad_request("message identifiers must be in a strictly increasing order")
    found = [source.messages[number] for number in numbers if number in source.messages]
    if not found:
        raise bad_request(f"there are no messages to {verb}")
    return found


def _content(original: Json) -> Json:
    return {part: original[part] for part in CONTENT if part in original}


def _forwarded(call: Call, original: Json) -> Json:
    sender = original.get("from", call.bot.json)
    origin = {"type": "user", "date": original["date"], "sender_user": sender}
    return _content(original) | {"forward_origin": origin}


METHODS: Final[Methods] = {
    "copyMessage": copy_message,
    "copyMessages": copy_messages,
    "forwardMessage": forward_message,
    "forwardMessages": forward_messages,
}
