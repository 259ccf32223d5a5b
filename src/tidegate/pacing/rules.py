"""The rules of pacing as data: which limits a call falls under. Settings override the defaults."""

import functools
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from tidegate.errors import BadInputError
from tidegate.model import BotLimits, ChatId, Rate

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


MOST_CALLS: Final = 10_000  # in one window of a bot's own limit
SHORTEST_WINDOW: Final = 0.1  # seconds
# A window that gets longer begins full: an operator must not silence a bot for hours by a slip.
LONGEST_WINDOWS: Final = {"bot": 600.0, "private": 60.0, "group": 600.0}  # seconds


def own_rules(rules: Rules, own: BotLimits) -> Rules:
    """Return the rules of a bot that has limits of its own."""
    return msgspec.structs.replace(rules, **own.set_ones) if own else rules


def check_limits(own: BotLimits) -> BotLimits:
    """Return the limits. Raises BadInputError for one that no operator can mean."""
    for name, rate in own.set_ones.items():
        longest = LONGEST_WINDOWS[name]
        if not 1 <= rate.count <= MOST_CALLS:
            raise BadInputError(f"{rate} is no limit to set: give 1 to {MOST_CALLS:,} calls, such as 25/1")
        if not SHORTEST_WINDOW <= rate.seconds <= longest:
            what = "a private chat" if name == "private" else f"a {name}"
            text = f"{rate} is no limit to set: the seconds of {what} are {SHORTEST_WINDOW:g} to {longest:g}"
            raise BadInputError(f"{text}, such as 25/1")
    return own


def above_published(own: BotLimits) -> list[str]:
    """Return the names of limits that are faster than what Telegram publishes."""
    published = Rules()
    return [
        name
        for name, rate in own.set_ones.items()
        if rate.count * getattr(published, name).seconds > getattr(published, name).count * rate.seconds
    ]


def window_growth(before: Rules, after: Rules) -> dict[str, float]:
    """Return by how many seconds the windows of a bot, its private chats and groups get longer; 0 if not.

    Calls are remembered for as long as their window is: older ones may count in a longer one.
    """
    replies = 0.0
    if after.replies is not None:
        replies = after.replies.seconds - (before.replies or before.private).seconds
    private = max(replies, after.private.seconds - before.private.seconds)
    return {
        "bot": max(0.0, after.bot.seconds - before.bot.seconds),
        "private": max(0.0, private),
        "group": max(0.0, after.group.seconds - before.group.seconds),
    }


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
MOST_IN_ONE_CALL: Final = 100  # messages that Telegram takes in one call: it rejects what has more


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
    return min(max(1, len(many)), MOST_IN_ONE_CALL) if isinstance(many, list | tuple) else 1
