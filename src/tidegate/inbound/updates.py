"""Telegram's updates: whose they are, and what kind."""

from typing import Any, Final, NamedTuple

import msgspec

from tidegate.errors import BadInputError
from tidegate.inbound.arrivals import Arrival, bot_source

Json = dict[str, Any]

PAYMENTS: Final = frozenset({"pre_checkout_query", "shipping_query", "purchased_paid_media"})
PAID: Final = ("successful_payment", "refunded_payment")  # a message that tells of one
# In a message that nobody wrote.
SERVICE: Final = (
    "new_chat_members",
    "left_chat_member",
    "migrate_to_chat_id",
    "migrate_from_chat_id",
    "group_chat_created",
    "supergroup_chat_created",
    "channel_chat_created",
)


class About(NamedTuple):
    """`kind`: as Telegram names it, `command` for a message that is one, `payment` for all about money,
    `service` for a message that nobody wrote. `sent_at`: when it was written, where it says so.
    """

    kind: str
    user: int | None
    chat: int | None
    is_private: bool
    sent_at: int | None = None


def arrival_of(bot: int, body: bytes) -> Arrival:
    """An update as it came. Raises BadInputError for what is none."""
    try:
        update = msgspec.json.decode(body, type=Json)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadInputError("an update is a JSON object: this is none") from None
    return arrival_from(bot, update, body)


def arrival_from(bot: int, update: Json, body: bytes | None = None) -> Arrival:
    update_id = update.get("update_id")
    if type(update_id) is not int or not 0 <= update_id < 2**53:
        raise BadInputError("an update has an update_id, a number: this one has none")
    return Arrival(bot_source(bot), str(update_id), _lane(update), body or msgspec.json.encode(update))


def _lane(update: Json) -> str:
    content = content_of(update)
    chat = _id(_chat(content))
    owner = _id(_user(content)) if chat is None else chat
    # Those of nobody have nothing to wait for.
    return f"update {update['update_id']}" if owner is None else str(owner)


def about_update(update: Json) -> About:
    """Never raises, whatever Telegram adds: what is not known has no chat."""
    kind, content = _kind_of(update), content_of(update)
    chat = _chat(content)
    return About(
        kind=_precise(kind, content),
        user=_id(_user(content)),
        chat=_id(chat),
        is_private=isinstance(chat, dict) and chat.get("type") == "private",
        sent_at=_sent_at(content),
    )


def content_of(update: Json) -> Json:
    """What it tells of, such as a message or a query."""
    for content in update.values():  # no generator: it would cost more than the search
        if isinstance(content, dict):
            return content
    return {}


def _kind_of(update: Json) -> str:
    return next((kind for kind, content in update.items() if isinstance(content, dict)), "unknown")


def _sent_at(content: Json) -> int | None:
    date = content.get("edit_date") or content.get("date")
    return date if type(date) is int else None


def _chat(content: Json) -> object:
    """It may stand in the thing itself, or in the message that it is about."""
    if "chat" in content:
        return content["chat"]
    message = content.get("message")
    return message.get("chat") if isinstance(message, dict) else None


def _user(content: Json) -> object:
    return content.get("from") or content.get("user")


def _id(one: object) -> Any:  # noqa: ANN401  (a number, unless Telegram says otherwise)
    return one.get("id") if isinstance(one, dict) else None


def _precise(kind: str, content: Json) -> str:
    if kind in PAYMENTS or any(name in content for name in PAID):
        return "payment"
    if kind != "message":
        return kind
    text = content.get("text")
    if isinstance(text, str):
        return "command" if text.startswith("/") else kind
    return "service" if any(name in content for name in SERVICE) else kind
