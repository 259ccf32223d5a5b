"""What a library has made of an update: whose it is, and what kind, without a way back to JSON.

The libraries name the fields as Telegram does, except `from`, which is `from_user` in all of them.
"""

from datetime import datetime
from typing import Any

from tidegate.inbound.updates import PAID, PAYMENTS, SERVICE, About


def about_event(kind: str, event: object) -> About:
    """`kind`: the field of the update in which the event stands. As `about_update` says of the JSON."""
    user = _field(event, "from_user") or _field(event, "user")
    chat = _field(event, "chat") or _field(_field(event, "message"), "chat")
    return About(
        kind=_precise(kind, event),
        user=_field(user, "id"),
        chat=_field(chat, "id"),
        is_private=_field(chat, "type") == "private",
        sent_at=_sent_at(event),
    )


def album_of(event: object) -> str | None:
    album: str | None = _field(event, "media_group_id")
    return album


def _sent_at(event: object) -> int | None:
    date = _field(event, "edit_date") or _field(event, "date")  # a number in one library, a time in another
    return int(date.timestamp()) if isinstance(date, datetime) else date


def _precise(kind: str, event: object) -> str:
    if kind in PAYMENTS or any(_field(event, name) for name in PAID):
        return "payment"
    if kind != "message":
        return kind
    text = _field(event, "text")
    if text:
        return "command" if text.startswith("/") else kind
    return "service" if any(_field(event, name) for name in SERVICE) else kind


def _field(thing: object, name: str) -> Any:  # noqa: ANN401  (the library's)
    return getattr(thing, name, None)
