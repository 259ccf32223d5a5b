"""Erasure of a chat from a store: what was erased, and which parts of a store concern a chat."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidegate.inbound.inbox import MAX_PARKED_PER_SOURCE, Inbox, bot_source
from tidegate.model import BotId, ChatId


class Erasure(NamedTuple):
    """How much of each was erased. `copies`: files that may hold what was erased, which were left alone."""

    messages: int = 0
    updates: int = 0  # waiting or parked
    conversations: int = 0
    sessions: int = 0  # of flows
    subscriptions: int = 0
    copies: tuple[str, ...] = ()


def is_for_chat(data: Mapping[str, Any], chat: ChatId, bot: BotId | None) -> bool:
    """Return whether the data of a subscription names the chat, or its user where it names no chat."""
    named = data.get("chat_id", data.get("user_id"))
    return str(named) == str(chat) and (bot is None or data.get("bot_id", bot) == bot)


async def drop_parked(inbox: Inbox, chat: ChatId, bot: BotId | None) -> int:
    """Drop the parked updates of a chat. Those that wait are handled soon, and are gone after that."""
    source = None if bot is None else bot_source(bot)
    parked = await inbox.parked(source, limit=100 * MAX_PARKED_PER_SOURCE)
    meant = [one.item for one in parked if one.item.lane.partition(" ")[0] == str(chat)]
    return sum([await inbox.drop(one.source, one.key) for one in meant])
