"""Telegram's updates: whose they are, and what kind."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.errors import BadInputError
from tidegate.inbound.arrivals import Arrival, bot_source

Json = dict[str, Any]

PAYMENTS: Final = frozenset({"pre_checkout_query", "shipping_query", "purchased_paid_media"})
_PAID: Final = ("successful_payment", "refunded_payment")  # a message that tells of one


class About(NamedTuple):
    """`kind`: as Telegram names it, `command` for a message that is one, `payment` for all about money."""

    kind: str
    user: int | None
    chat: int | None
    is_private: bool


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
    about = about_update(update)
    # Those of nobody have nothing to wait for.
    lane = next((str(one) for one in (about.chat, about.user) if one is not None), f"update {update_id}")
    return Arrival(bot_source(bot), str(update_id), lane, body or msgspec.json.encode(update))


def about_update(update: Json) -> About:
    """Never raises, whatever Telegram adds: what is not known has no chat."""
    kind, content = _content(update)
    user, chat = content.get("from") or content.get("user"), _chat(content)
    number = chat.get("id") if isinstance(chat, dict) else None
    return About(
        kind=_precise(kind, content),
        user=user.get("id") if isinstance(user, dict) else None,
        chat=number,
        is_private=isinstance(chat, dict) and chat.get("type") == "private",
    )


def _content(update: Json) -> tuple[str, Json]:
    for kind, content in update.items():
        if isinstance(content, dict):
            return kind, content
    return "unknown", {}


def _chat(content: Json) -> object:
    return next((place["chat"] for place in _places(content) if "chat" in place), None)


def _places(content: Json) -> Iterator[Json]:
    """Where a chat may stand: in the thing itself, or in the message that it is about."""
    yield content
    message = content.get("message")
    if isinstance(message, dict):
        yield message


def _precise(kind: str, content: Json) -> str:
    if kind in PAYMENTS or any(name in content for name in _PAID):
        return "payment"
    text = content.get("text")
    return "command" if kind == "message" and isinstance(text, str) and text.startswith("/") else kind
