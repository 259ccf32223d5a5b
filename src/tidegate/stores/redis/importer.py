"""The target side of a move: what another store has is written into Redis as it was there."""

from collections.abc import Mapping, Sequence

import msgspec

from tidegate.model import BotId, BotLimits, State
from tidegate.stores.message_codec import encode
from tidegate.stores.redis.connection import RedisConnection
from tidegate.stores.redis.outbox_codec import OutboxReply, encode_limits


class BroughtMessage(msgspec.Struct, omit_defaults=True):
    """A message that has ended, or is a dead letter. Times are seconds since the epoch."""

    id: str
    bot: str
    chat: str
    kind: str
    level: int
    cost: int
    state: State
    created: float
    settled: float
    forget: float = 0.0  # until when it is kept, unless it is a dead letter
    attempts: int | None = None
    crashes: int | None = None
    paid: bool | None = None
    urgent_as: str | None = None
    reason: str | None = None
    description: str | None = None
    dedup: str | None = None
    dedup_until: float = 0.0


class BroughtLearned(msgspec.Struct, omit_defaults=True):
    """A learned limit; times are seconds from now."""

    step: int
    bad: int
    interval: float
    cut_ago: float
    up_in: float
    probing: bool | None = None


class BroughtLimit(msgspec.Struct, omit_defaults=True):
    """A closure and a learned limit of a chat, or of a bot if there is no chat."""

    bot: str
    kind: str
    closed_for: float
    chat: str | None = None
    learned: BroughtLearned | None = None


async def bring_messages(
    link: RedisConnection, messages: Sequence[tuple[BroughtMessage, bytes, bytes | None]]
) -> int:
    """Write messages, each with its packed body and result; return how many are new.

    The bodies are not decoded: one that cannot be is carried too.
    """
    texts = [text for _, body, result in messages for text in (body, result or b"")]
    reply = OutboxReply(await link.run("bring", encode([one for one, _, _ in messages]), *texts))
    return int(reply.answer.count)


async def bring_limits(link: RedisConnection, limits: Sequence[BroughtLimit]) -> int:
    reply = OutboxReply(await link.run("bring_limits", encode(list(limits))))
    return int(reply.answer.count)


async def bring_own_limits(link: RedisConnection, limits: Mapping[BotId, BotLimits]) -> int:
    """Write limits of single bots; those that a bot has there stay. Return how many bots are new."""
    brought = 0
    for bot, own in limits.items():
        stored = await link.command("HGET", link.key("bots"), str(bot))
        known = {} if stored is None else msgspec.msgpack.decode(stored)
        if not known or "own" not in known:
            await link.run("set_limits", bot, encode_limits(own), 1)
            brought += 1
    return brought


async def bring_aliases(link: RedisConnection, aliases: Sequence[tuple[int, str | int, str | int]]) -> int:
    """Write other names of chats, as bot, old and new id. Those that are known stay."""
    name = link.key("aliases")
    return sum([await link.command("HSETNX", name, f"{bot}/{old}", str(new)) for bot, old, new in aliases])
