"""What a library has made of an update: whose it is, and what kind, without a way back to JSON.

The libraries name the fields as Telegram does, except `from`, which is `from_user` in all of them.
"""

from typing import Any, Final

from tidegate.inbound.updates import PAYMENTS, About

_PAID: Final = ("successful_payment", "refunded_payment")
# In a message that nobody wrote.
_SERVICE: Final = (
    "new_chat_members",
    "left_chat_member",
    "migrate_to_chat_id",
    "migrate_from_chat_id",
    "group_chat_created",
    "supergroup_chat_created",
    "channel_chat_created",
)


def about_event(kind: str, event: object) -> About:
    """`kind`: the field of the update in which the event stands. As `about_update` says of the JSON."""
    user = _field(event, "from_user") or _field(event, "user")
    chat = _field(event, "chat") or _field(_field(event, "message"), "chat")
    return About(
        kind=_precise(kind, event),
        user=_field(user, "id"),
        chat=_field(chat, "id"),
        is_private=_field(chat, "type") == "private",
    )


def album_of(event: object) -> str | None:
    album: str | None = _field(event, "media_group_id")
    return album


def _precise(kind: str, event: object) -> str:
    if kind in PAYMENTS or any(_field(event, name) for name in _PAID):
        return "payment"
    if kind != "message":
        return kind
    text = _field(event, "text")
    if text:
        return "command" if text.startswith("/") else kind
    return "service" if any(_field(event, name) for name in _SERVICE) else kind


def _field(thing: object, name: str) -> Any:  # noqa: ANN401  (the library's)
    return getattr(thing, name, None)
