"""Which kinds of updates a bot wants, as Telegram names them."""

import re
from typing import Final

from tidegate.cli import terminal
from tidegate.errors import BadInputError

_NAME = re.compile(r"[a-z_]{3,40}")
KINDS: Final = frozenset({
    "message", "edited_message", "channel_post", "edited_channel_post",
    "business_connection", "business_message", "edited_business_message", "deleted_business_messages",
    "message_reaction", "message_reaction_count",
    "inline_query", "chosen_inline_result", "callback_query",
    "shipping_query", "pre_checkout_query", "purchased_paid_media",
    "poll", "poll_answer", "my_chat_member", "chat_member", "chat_join_request",
    "chat_boost", "removed_chat_boost",
})  # fmt: skip


def kinds_of(text: str) -> list[str]:
    """From a list with commas. One that is not known is only told: it may be newer than this."""
    kinds = [kind for part in text.split(",") if (kind := part.strip())]
    for kind in kinds:
        if not _NAME.fullmatch(kind):
            raise BadInputError(f"--allowed-updates: {kind!r} is no kind of update: message,callback_query")
    unknown = ", ".join(kind for kind in kinds if kind not in KINDS)
    if unknown:
        terminal.note(f"tidegate: warning: not known as a kind of update, and perhaps never sent: {unknown}")
    return kinds
