"""The rules of pacing as data: which limits a call falls under. Settings override the defaults."""

import functools
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from tidegate.model import ChatId, Rate

Family = Literal["send", "edit", "action", "free"]
ChatKind = Literal["private", "group", "action"]  # those have limits of their own
FAMILIES: Final[tuple[Family, ...]] = get_args(Family)


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Telegram's limits as its FAQ and practitioners give them; the exact ones are not published."""

    bot: Rate = Rate(30, 1)
    private: Rate = Rate(1, 1)
    # Replies of one private chat that may leave at once; their average stays `private`. 1: none do.
    burst: int = 5
    group: Rate = Rate(20, 60)  # channels likewise
    paid: Rate = Rate(1000, 1)  # instead of `bot`, with allow_paid_broadcast
    actions: tuple[Rate, ...] = (Rate(20, 5), Rate(40, 30))  # typing, for each chat
    edits: Literal["shared", "separate"] = "shared"  # with sends

    def chat(self, chat_id: ChatId) -> Rate:
        return self.private if is_private(chat_id) else self.group

    @property
    def replies(self) -> Rate | None:
        """The limit of replies to one private chat, where it is wider than `private`."""
        if self.burst <= self.private.count:
            return None
        return Rate(self.burst, self.private.seconds * self.burst / self.private.count)

    @property
    def longest(self) -> float:
        """The seconds of the longest window."""
        rates = (self.bot, self.private, self.group, self.paid, *self.actions, self.replies)
        return max(rate.seconds for rate in rates if rate is not None)

    def kind(self, family: Family) -> str:
        """The lane of a chat that a call belongs to. Calls without limits keep their order among sends."""
        if family == "action":
            return "action"
        return "edit" if family == "edit" and self.edits == "separate" else "send"


# Methods by prefix that put no message into a chat.
_FREE: Final = (
    "answer",
    "approve",
    "ban",
    "close",
    "create",
    "decline",
    "delete",
    "edit",  # of links and topics; edits of messages are matched before
    "export",
    "get",
    "hide",
    "leave",
    "log",
    "pin",
    "promote",
    "read",
    "refund",
    "remove",
    "reopen",
    "restrict",
    "revoke",
    "set",
    "unban",
    "unhide",
    "unpin",
    "verify",
)
_EDITS: Final = ("editMessage", "editEphemeralMessage", "stop")
# Shown for a moment only, such as "typing".
_ACTIONS: Final = frozenset(("sendChatAction", "sendMessageDraft", "sendRichMessageDraft"))
_MANY: Final = {"sendMediaGroup": "media", "copyMessages": "message_ids", "forwardMessages": "message_ids"}


def is_private(chat_id: ChatId) -> bool:
    """Users have positive ids; groups and channels negative ones or an @name."""
    return isinstance(chat_id, int) and chat_id > 0


def chat_kind(kind: str, chat_id: ChatId) -> ChatKind:
    """The limits of a lane, by its kind and chat."""
    if kind == "action":
        return "action"
    return "private" if is_private(chat_id) else "group"


@functools.lru_cache(maxsize=256)
def family_of(method: str) -> Family:
    """The budget that a Bot API method draws on. An unknown method counts as a send."""
    if method in _ACTIONS:
        return "action"
    if method.startswith(_EDITS):
        return "edit"
    return "free" if method.startswith(_FREE) else "send"


def cost_of(method: str, params: Mapping[str, Any]) -> int:
    """The slots that a call takes: one for each item of an album or message of a bulk copy or forward."""
    what = _MANY.get(method)
    if what is None:
        return 1
    many = params.get(what)
    return max(1, len(many)) if isinstance(many, list | tuple) else 1
