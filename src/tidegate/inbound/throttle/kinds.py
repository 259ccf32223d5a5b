"""The kinds of updates that rules may name: a misspelt one would do nothing, and nobody would notice."""

import difflib
from typing import Final

from tidegate.errors import BadInputError
from tidegate.inbound.updates import PAYMENTS

OURS: Final = ("command", "payment", "service")  # beside those of the Bot API: see `About`
KINDS: Final = (
    *OURS,
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


def known_kind(field: str, kind: object) -> str:
    """As it is counted: `payment` for all about money. Raises BadInputError that names the nearest one."""
    if not isinstance(kind, str):
        raise BadInputError(f'{field} names kinds of updates, such as "message", not {kind!r}')
    if kind not in KINDS:
        raise BadInputError(f"{field}: there is no kind {kind!r} of updates: {_advice(kind)}")
    return "payment" if kind in PAYMENTS else kind


def _advice(kind: str) -> str:
    near = difflib.get_close_matches(kind.lower(), KINDS, 1)
    if near:
        return f'did you mean "{near[0]}"?'
    return f"write one as Telegram names it, or one of {', '.join(OURS)}"
