"""Telegram's updates: their kind, user and chat, from JSON or from a bot library's objects."""

import difflib
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec

from tidegate.errors import BadInputError
from tidegate.inbound.inbox import InboxItem, UnreadableBodyError, bot_source

Json = dict[str, Any]

PAYMENT_KINDS: Final = frozenset({"pre_checkout_query", "shipping_query", "purchased_paid_media"})
PAYMENT_FIELDS: Final = ("successful_payment", "refunded_payment")  # of a message about one
# Fields of a message that nobody wrote.
SERVICE_FIELDS: Final = (
    "new_chat_members",
    "left_chat_member",
    "migrate_to_chat_id",
    "migrate_from_chat_id",
    "group_chat_created",
    "supergroup_chat_created",
    "channel_chat_created",
)
# Of a forwarded message: since Bot API 7.0, and before.
FORWARD_FIELDS: Final = ("forward_origin", "forward_date")
OWN_KINDS: Final = ("command", "payment", "service")  # besides those of the Bot API: see `UpdateInfo`
UPDATE_KINDS: Final = (
    *OWN_KINDS,
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "business_connection",
    "business_message",
    "edited_business_message",
    "deleted_business_messages",
    "guest_message",
    "message_reaction",
    "message_reaction_count",
    "inline_query",
    "chosen_inline_result",
    "callback_query",
    "shipping_query",
    "pre_checkout_query",
    "purchased_paid_media",
    "poll",
    "poll_answer",
    "my_chat_member",
    "chat_member",
    "chat_join_request",
    "chat_boost",
    "removed_chat_boost",
    "managed_bot",
    "subscription",
    "stopped_message_generation",
)


def decode_update(body: bytes) -> Json:
    """Decode a stored update. Raises UnreadableBodyError."""
    try:
        return msgspec.json.decode(body, type=Json)
    except (ValueError, RecursionError) as error:
        raise UnreadableBodyError(str(error)) from error


class UpdateInfo(NamedTuple):
    """`kind` is Telegram's name, or `command` for a message that is one, `payment` for all about money,
    `service` for a message that nobody wrote. `sent_at`: when it was written, where it says so. `language`:
    the code of the user's language, such as "de" or "pt-br".
    """

    kind: str
    user: int | None
    chat: int | None
    is_private: bool
    sent_at: int | None = None
    language: str | None = None
    is_forwarded: bool = False


def check_kind(field: str, kind: object) -> str:
    """Return the kind under which it is counted: `payment` for all about money.

    Raises BadInputError, which suggests the nearest one: a misspelt kind would silently match nothing.
    """
    if not isinstance(kind, str):
        raise BadInputError(f'{field} names kinds of updates, such as "message", not {kind!r}')
    if kind not in UPDATE_KINDS:
        near = difflib.get_close_matches(kind.lower(), UPDATE_KINDS, 1)
        own = ", ".join(OWN_KINDS)
        advice = f'did you mean "{near[0]}"?' if near else f"use Telegram's name of it, or one of {own}"
        raise BadInputError(f"{field}: there is no kind {kind!r} of updates: {advice}")
    return "payment" if kind in PAYMENT_KINDS else kind


Order = Literal["chat", "user", "none"]  # which updates of a bot are handled one after another


def parse_update(bot: int, body: bytes, order: Order = "user") -> InboxItem:
    """Raises BadInputError if the body is not an update."""
    try:
        update = msgspec.json.decode(body, type=Json)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadInputError("an update is a JSON object: this is none") from None
    return update_item(bot, update, body, order)


def update_item(bot: int, update: Json, body: bytes | None = None, order: Order = "user") -> InboxItem:
    update_id = update.get("update_id")
    if type(update_id) is not int or not 0 <= update_id < 2**53:
        raise BadInputError("an update has an update_id, a number: this one has none")
    return InboxItem(
        bot_source(bot), str(update_id), _lane(update, order), body or msgspec.json.encode(update)
    )


def _lane(update: Json, order: Order) -> str:
    """Updates of one lane are handled one after another. An update of no chat and no user waits for none."""
    content = update_content(update)
    chat, user = _id(_chat(content)), _id(_user(content))
    if order == "none" or (chat is None and user is None):
        return f"update {update['update_id']}"
    if chat is None or user == chat:  # in a private chat they have the same id
        return str(user)
    return str(chat) if order == "chat" or user is None else f"{chat} {user}"


def describe_update(update: Json) -> UpdateInfo:
    """Never raises, whatever Telegram adds: an unknown update has no chat."""
    kind = next((kind for kind, content in update.items() if isinstance(content, dict)), "unknown")
    content = update_content(update)
    chat = _chat(content)
    date = content.get("edit_date") or content.get("date")
    return UpdateInfo(
        kind=_precise_kind(kind, content.get("text"), content.__contains__),
        user=_id(_user(content)),
        chat=_id(chat),
        is_private=isinstance(chat, dict) and chat.get("type") == "private",
        sent_at=date if type(date) is int else None,
        language=_language(_user(content)),
        is_forwarded=any(map(content.get, FORWARD_FIELDS)),
    )


def update_content(update: Json) -> Json:
    """Return its message, query or other object."""
    for content in update.values():  # no generator: it would cost more than the search
        if isinstance(content, dict):
            return content
    return {}


def _chat(content: Json) -> object:
    """The chat is in the object itself, or in the message that it is about."""
    if "chat" in content:
        return content["chat"]
    message = content.get("message")
    return message.get("chat") if isinstance(message, dict) else None


def _user(content: Json) -> object:
    return content.get("from") or content.get("user")


def _id(one: object) -> Any:  # noqa: ANN401  (a number, unless Telegram says otherwise)
    return one.get("id") if isinstance(one, dict) else None


def _language(user: object) -> str | None:
    code = user.get("language_code") if isinstance(user, dict) else None
    return code if isinstance(code, str) else None


#
# The libraries name the fields as Telegram does, except `from`, which is `from_user` in all of them.


def describe_event(kind: str, event: object) -> UpdateInfo:
    """As `describe_update`. `kind`: the field of the update that holds the event."""
    user = _field(event, "from_user") or _field(event, "user")
    chat = _field(event, "chat") or _field(_field(event, "message"), "chat")
    date = _field(event, "edit_date") or _field(event, "date")  # a number in one library, a time in another
    return UpdateInfo(
        kind=_precise_kind(kind, _field(event, "text"), lambda name: _field(event, name)),
        user=_field(user, "id"),
        chat=_field(chat, "id"),
        is_private=_field(chat, "type") == "private",
        sent_at=int(date.timestamp()) if isinstance(date, datetime) else date,
        language=_field(user, "language_code"),
        is_forwarded=any(_field(event, name) for name in FORWARD_FIELDS),
    )


def album_of(event: object) -> str | None:
    album: str | None = _field(event, "media_group_id")
    return album


def _field(thing: object, name: str) -> Any:  # noqa: ANN401  (the library's)
    return getattr(thing, name, None)


def _precise_kind(kind: str, text: object, has: Callable[[str], object]) -> str:
    if kind in PAYMENT_KINDS or any(map(has, PAYMENT_FIELDS)):
        return "payment"
    if kind != "message":
        return kind
    if text and isinstance(text, str):
        return "command" if text.startswith("/") else kind
    return "service" if any(map(has, SERVICE_FIELDS)) else kind
