"""What an operator may ask of a store in Redis, beyond what every store tells: who uses it, what is held."""

from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tidegate.model import BotId, ChatId
from tidegate.outbox.redis.rows import chat_of

if TYPE_CHECKING:  # commands read this without the driver
    from tidegate.outbox.redis.link import Link

SILENT: Final = 30.0  # seconds after which a process counts as gone
IN_FLIGHT: Final = 200  # leases that are looked at
OPEN: Final = b"open:"  # how the counts of what has not ended begin; a bot's number follows
TURN: Final = b"turn/"
_HELD: Final = (files("tidegate.outbox.redis") / "lua" / "held.lua").read_text()


class Company(NamedTuple):
    """The other processes that have the store open, and whether any process delivers."""

    processes: int
    delivers: bool


async def company(link: "Link") -> Company:
    seconds, micros = await link.command("TIME")
    now = int(seconds) + int(micros) / 1e6
    here = await link.command("ZRANGEBYSCORE", link.key("processes"), now - SILENT, "+inf")
    # Workers without work say until when they wait for some; the others hold leases. Turns are direct calls.
    waits_until = await link.command("HGET", link.key("meta"), "claimers")
    leases = await link.command("ZRANGEBYSCORE", link.key("leases"), now, "+inf", "LIMIT", 0, IN_FLIGHT)
    busy = any(not lease.startswith(TURN) for lease in leases)
    others = {name for name in here if name != link.me.encode()}
    return Company(len(others), busy or float(waits_until or 0) > now)


async def open_by_bot(link: "Link") -> dict[BotId, int]:
    """How many messages of each bot have not come to an end."""
    counts = _pairs(await link.command("HGETALL", link.key("counts")))
    return {
        BotId(int(name.removeprefix(OPEN))): int(count)
        for name, count in counts.items()
        if name.startswith(OPEN)
    }


async def paused_bots(link: "Link") -> list[BotId]:
    found = _pairs(await link.command("HGETALL", link.key("bots")))
    known = {BotId(int(bot)): msgspec.msgpack.decode(kept) for bot, kept in found.items()}
    # A bot of which nothing is kept is an empty list: Lua cannot tell.
    return sorted(bot for bot, kept in known.items() if isinstance(kept, dict) and kept.get("paused"))


async def paused_chats(link: "Link") -> list[tuple[BotId, ChatId]]:
    """In many short steps: every chat that has messages or was written to lately is looked at."""
    places, cursor = set[tuple[BotId, ChatId]](), b"0"
    while True:
        cursor, *lanes = await link.command("EVAL", _HELD, 1, link.key("lanes"), cursor)
        for lane in lanes:
            bot, _, chat = lane.decode().split("/", 2)
            places.add((BotId(int(bot)), chat_of(chat)))
        if cursor == b"0":
            return sorted(places, key=lambda place: (place[0], str(place[1])))


def _pairs(found: Any) -> Mapping[bytes, bytes]:  # noqa: ANN401  (a hash, as the protocol spells it)
    return found if isinstance(found, Mapping) else dict(zip(found[::2], found[1::2], strict=True))
