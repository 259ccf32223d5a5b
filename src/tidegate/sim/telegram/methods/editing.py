"""Bot API methods that change sent messages: edits, deletions, reactions."""

from typing import Final

from tidegate.sim.telegram.call import CONTENT_FIELDS, MAX_CAPTION, MAX_TEXT, MethodCall, named_methods
from tidegate.sim.telegram.entities import Json, keep
from tidegate.sim.telegram.methods.files import media_part
from tidegate.sim.telegram.parameters import bad_request

MOST_REACTIONS = 11
REACTIONS_KEPT = 1_000  # messages of each bot
_WITH_CAPTION = ("photo", "document", "video", "animation", "audio", "voice", "paid_media")
_MEDIA = ("photo", "document", "video", "animation", "audio")
_REACTIONS: Final = {"emoji": "emoji", "custom_emoji": "custom_emoji_id"}


def edit_message_text(call: MethodCall) -> Json:
    text = call.text("text", MAX_TEXT, what="message")
    if not text.strip():
        raise bad_request("message text is empty")
    old = _own(call)
    if "text" not in old:
        raise bad_request("there is no text in the message to edit")
    return change(call, old, {"text": text} | call.entities("entities"), dropping=("entities",))


def edit_message_caption(call: MethodCall) -> Json:
    caption = call.text("caption", MAX_CAPTION, what="message caption")
    old = _own(call)
    if not any(kind in old for kind in _WITH_CAPTION):
        raise bad_request("there is no caption in the message to edit")
    new = {"caption": caption} | call.entities("caption_entities") if caption else {}
    return change(call, old, new, dropping=("caption", "caption_entities"))


def edit_message_media(call: MethodCall) -> Json:
    media = call.nested("media")
    if not isinstance(media, dict) or media.get("type") not in _MEDIA:
        raise bad_request("can't parse InputMedia: type must be one of a medium that can be sent")
    return change(call, _own(call), media_part(call, media), dropping=CONTENT_FIELDS)


def edit_message_reply_markup(call: MethodCall) -> Json:
    return change(call, _own(call), {})


def delete_message(call: MethodCall) -> bool:
    chat = call.chat()
    del chat.messages[call.message(chat, "message to delete")["message_id"]]
    return True


def delete_messages(call: MethodCall) -> bool:
    """Delete messages; missing ones are skipped."""
    chat = call.chat()
    for number in call.identifiers("message_ids"):
        chat.messages.pop(number, None)
    return True


def set_message_reaction(call: MethodCall) -> bool:
    chat = call.chat()
    message = call.message(chat, "message to react")
    given = call.nested("reaction") or []
    if not isinstance(given, list) or not all(isinstance(reaction, dict) for reaction in given):
        raise bad_request("expected an Array of ReactionType")
    if len(given) > MOST_REACTIONS:
        raise bad_request("REACTIONS_TOO_MANY")
    reactions = [_reaction(reaction) for reaction in given]
    call.check_reachable(chat)
    keep(call.bot.reactions, (chat.id, message["message_id"]), reactions, REACTIONS_KEPT)
    return True


def change(call: MethodCall, old: Json, content: Json, dropping: tuple[str, ...] = ()) -> Json:
    """Replace a message by one with new content, without its buttons and the fields to drop."""
    chat = call.chat()
    gone = {"reply_markup", "edit_date", *dropping}
    new = {key: value for key, value in old.items() if key not in gone} | content | call.keyboard()
    call.charge(chat, "edit")
    if new == {key: value for key, value in old.items() if key != "edit_date"}:
        raise bad_request(
            "message is not modified: specified new message content and reply markup are exactly the same "
            "as a current content and reply markup of the message"
        )
    # A new record: copies that were given out before stay as they were.
    new["edit_date"] = call.date
    chat.messages[new["message_id"]] = new
    chat.notify(new)
    return new


def _own(call: MethodCall) -> Json:
    return call.own_message(call.chat(), "message to edit", "message can't be edited")


def _reaction(reaction: Json) -> Json:
    kind = reaction.get("type")
    field = _REACTIONS.get(kind) if isinstance(kind, str) else None
    if field is None:
        raise bad_request("can't parse ReactionType: invalid reaction type specified")
    if not isinstance(reaction.get(field), str) or not reaction[field]:
        raise bad_request("REACTION_INVALID")
    return {"type": kind, field: reaction[field]}


METHODS: Final = named_methods(
    edit_message_text,
    edit_message_caption,
    edit_message_media,
    edit_message_reply_markup,
    delete_message,
    delete_messages,
    set_message_reaction,
)
