"""Erasure of a chat from Redis. Each part is erased in short steps, so that nobody waits for long."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from tidegate.clock import Clock
from tidegate.model import BotId, ChatId
from tidegate.polling.subscriptions import Subscriptions
from tidegate.stores.erasure import Erasure, drop_parked, is_for_chat
from tidegate.stores.redis.conversations import CONVERSATION_PREFIX, UNREADABLE_ENDING
from tidegate.stores.redis.flow_sessions import RedisFlowSessions
from tidegate.stores.redis.inbox import RedisInbox
from tidegate.stores.redis.outbox import RedisOutbox
from tidegate.stores.redis.subscriptions import RedisSubscriptions

if TYPE_CHECKING:
    from tidegate.stores.redis.connection import RedisConnection

KEYS_PER_STEP: Final = 1_000
SUBSCRIPTIONS_PER_PAGE: Final = 1_000
DRAIN_SECONDS: Final = 10.0  # for messages in this machine's spool to reach Redis, where they are erased
DRAIN_POLL: Final = 0.1


async def erase_chat(
    outbox: RedisOutbox, inbox: RedisInbox, clock: Clock, chat: ChatId, bot: BotId | None
) -> Erasure:
    link = outbox.connection
    until = clock.monotonic() + DRAIN_SECONDS
    while (await outbox.stats()).spooled and clock.monotonic() < until:
        await clock.sleep(DRAIN_POLL)
    return Erasure(
        messages=await outbox.forget(chat, bot),
        updates=await inbox.erase(str(chat), bot) + await drop_parked(inbox, chat, bot),
        conversations=await _erase_conversations(link, chat, bot),
        sessions=await _erase_sessions(link, clock, chat, bot),
        subscriptions=await _erase_subscriptions(link, clock, chat, bot),
    )


async def _erase_conversations(link: "RedisConnection", chat: ChatId, bot: BotId | None) -> int:
    """Count each once, though its state and its data have a key each."""
    found: set[str] = set()
    async for key in _scan(link, f"{CONVERSATION_PREFIX}:{'*' if bot is None else bot}:*"):
        name, _, part = key.removesuffix(UNREADABLE_ENDING).rpartition(":")
        _, _, *ids = name.split(":")  # [business connection, which is no number,] chat, …
        own = next((one for one in ids if one.lstrip("-").isdigit()), "")
        if own == str(chat) and part in {"state", "data"}:
            await link.command("UNLINK", key)
            found.add(name)
    return len(found)


async def _erase_sessions(link: "RedisConnection", clock: Clock, chat: ChatId, bot: BotId | None) -> int:
    erased = 0
    for flow in await _names(link, "flows", "sessions"):
        sessions, cursor = RedisFlowSessions(link, clock, flow), ""
        while True:
            page = await sessions.scan(cursor)
            for key in page.keys:
                if str(key.chat) == str(chat) and bot in {None, key.bot}:
                    erased += await sessions.erase(key)
            if not (cursor := page.cursor):
                break
    return erased


async def _erase_subscriptions(link: "RedisConnection", clock: Clock, chat: ChatId, bot: BotId | None) -> int:
    erased = 0
    for name in await _names(link, "polling", "bodies"):
        subscriptions: Subscriptions = RedisSubscriptions(link, clock, name)
        last = 0
        while page := await subscriptions.after(last, SUBSCRIPTIONS_PER_PAGE):
            meant = [one for one in page if is_for_chat(one.subscription.data, chat, bot)]
            erased += await subscriptions.remove(meant)
            last = page[-1].number
    return erased


async def _names(link: "RedisConnection", kind: str, part: str) -> list[str]:
    """The names of all pollers, or of all flows."""
    before, after = link.key(f"{kind}:"), f":{part}"
    found = [key async for key in _scan(link, f"{_literal(before)}*{after}")]
    return sorted({key.removeprefix(before).removesuffix(after) for key in found})


async def _scan(link: "RedisConnection", pattern: str) -> AsyncIterator[str]:
    cursor = "0"
    while True:
        reply = await link.command("SCAN", cursor, "MATCH", pattern, "COUNT", KEYS_PER_STEP)
        for key in reply[1]:
            yield key.decode()
        cursor = reply[0].decode() if isinstance(reply[0], bytes) else str(reply[0])
        if cursor == "0":
            return


def _literal(text: str) -> str:
    """Without a meaning to SCAN."""
    return "".join(f"\\{one}" if one in "*?[]\\" else one for one in text)
