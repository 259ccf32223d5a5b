"""What an operator can ask of the outbox in Redis."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tidegate.model import BotId, ChatId
from tidegate.stores.redis.outbox_codec import (
    OPEN_COUNT_PREFIX,
    PROCESS_GONE_AFTER,
    TURN_PREFIX,
    OutboxReply,
    parse_chat_id,
)

if TYPE_CHECKING:  # commands read this without the driver
    from tidegate.stores.redis.connection import RedisConnection

LEASES_EXAMINED: Final = 200  # leases that are looked at


class OtherProcesses(NamedTuple):
    """The other processes that have the store open, and whether any process delivers."""

    processes: int
    delivers: bool


async def other_processes(link: "RedisConnection") -> OtherProcesses:
    seconds, micros = await link.command("TIME")
    now = int(seconds) + int(micros) / 1e6
    here = await link.command("ZRANGEBYSCORE", link.key("processes"), now - PROCESS_GONE_AFTER, "+inf")
    # Workers without work say until when they wait for some; the others hold leases. Turns are direct calls.
    waits_until = await link.command("HGET", link.key("meta"), "claimers")
    leases = await link.command("ZRANGEBYSCORE", link.key("leases"), now, "+inf", "LIMIT", 0, LEASES_EXAMINED)
    busy = any(not lease.startswith(TURN_PREFIX.encode()) for lease in leases)
    others = {name for name in here if name != link.me.encode()}
    return OtherProcesses(len(others), busy or float(waits_until or 0) > now)


async def open_by_bot(link: "RedisConnection") -> dict[BotId, int]:
    """How many messages of each bot have not come to an end."""
    found = _pairs(await link.command("HGETALL", link.key("counts")))
    counts = {name.decode(): int(count) for name, count in found.items()}
    return {
        BotId(int(name.removeprefix(OPEN_COUNT_PREFIX))): count
        for name, count in counts.items()
        if name.startswith(OPEN_COUNT_PREFIX)
    }


async def paused_bots(link: "RedisConnection") -> list[BotId]:
    found = _pairs(await link.command("HGETALL", link.key("bots")))
    known = {BotId(int(bot)): msgspec.msgpack.decode(kept) for bot, kept in found.items()}
    # A bot of which nothing is kept is an empty list: Lua cannot tell.
    return sorted(bot for bot, kept in known.items() if isinstance(kept, dict) and kept.get("paused"))


async def paused_chats(link: "RedisConnection") -> list[tuple[BotId, ChatId]]:
    """In many short steps: every chat that has messages or was written to lately is looked at."""
    chats, cursor = set[tuple[BotId, ChatId]](), "0"
    while True:
        reply = OutboxReply(await link.run("paused_lanes", cursor)).answer
        for lane in reply.lanes:
            bot, _, chat = lane.split("/", 2)
            chats.add((BotId(int(bot)), parse_chat_id(chat)))
        cursor = reply.cursor
        if cursor == "0":
            return sorted(chats, key=lambda chat: (chat[0], str(chat[1])))


def _pairs(found: Any) -> Mapping[bytes, bytes]:  # noqa: ANN401  (a hash, as the protocol spells it)
    return found if isinstance(found, Mapping) else dict(zip(found[::2], found[1::2], strict=True))
