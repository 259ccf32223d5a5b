"""How an operator's command uses a store: opens it, asks, closes it."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tidegate.app import Tidegate
from tidegate.cli import loop
from tidegate.cli.gates import gate_at, quietly, reached
from tidegate.cli.selection import COUNTED
from tidegate.model import BotId, ChatId
from tidegate.outbox.base import Outbox
from tidegate.outbox.redis import looking
from tidegate.outbox.sqlite.lock import Holder
from tidegate.outbox.sqlite.store import SqliteOutbox

if TYPE_CHECKING:  # its driver is an extra
    from tidegate.outbox.redis.link import Link

Result = TypeVar("Result")
WAITING = ("high", "normal", "low", "retry")


class Facts(NamedTuple):
    """Who sends now, which bots are registered or have messages, and which bots and chats are paused.

    A store that many may send for has no one `sender`, but `company`.
    """

    sender: Holder | None
    bots: list[BotId]
    paused: list[tuple[BotId, ChatId | None]]
    company: looking.Company | None = None


def using(store: str | None, work: Callable[[Outbox], Awaitable[Result]]) -> Result:
    """What `work` makes of the open store. Never call it inside an event loop."""
    return using_gate(store, lambda gate: work(gate.outbox))


def using_gate(store: str | None, work: Callable[[Tidegate], Awaitable[Result]]) -> Result:
    """Likewise, with the bots that the store knows."""
    gate = gate_at(store)

    async def opened() -> Result:
        async with reached(gate, store):
            return await work(gate)

    with quietly():
        return loop.run(opened())


async def facts_of(gate: Tidegate) -> Facts:
    """Beyond what every store tells: nothing of senders and pauses, if it is one in memory."""
    registered = {bot.id for bot in gate.bots()}
    outbox, link, paused = gate.outbox, link_of(gate), await paused_of(gate)
    known = registered | {bot for bot, _ in paused}
    if link is not None:
        heard_of = await looking.open_by_bot(link)
        return Facts(None, sorted({*known, *heard_of}), paused, await looking.company(link))
    if not isinstance(outbox, SqliteOutbox):
        return Facts(None, sorted(known), paused)
    return Facts(await outbox.sender(), sorted(known | {bot for bot, _ in outbox.file.counts}), paused)


async def paused_of(gate: Tidegate, *, chats: bool = True) -> list[tuple[BotId, ChatId | None]]:
    """Bots (None) and, unless they are not asked for, chats."""
    outbox, link = gate.outbox, link_of(gate)
    if isinstance(outbox, SqliteOutbox):
        return await outbox.pauses()
    if link is None:
        return []  # only this process could have paused one
    held: list[tuple[BotId, ChatId | None]] = [(bot, None) for bot in await looking.paused_bots(link)]
    return held + list(await looking.paused_chats(link)) if chats else held


async def someone_delivers(gate: Tidegate) -> bool:
    """Whether some process takes messages out of this store, as far as is known."""
    outbox, link = gate.outbox, link_of(gate)
    if link is not None:
        return (await looking.company(link)).delivers
    return isinstance(outbox, SqliteOutbox) and await outbox.sender() is not None


async def counts_of(gate: Tidegate) -> Counter[tuple[BotId, str]]:
    """How many messages of each bot are waiting, dead and parked; of Redis's letters, the oldest 10,000."""
    counts: Counter[tuple[BotId, str]] = Counter()
    outbox, link = gate.outbox, link_of(gate)
    if link is not None:
        counts.update({(bot, "waiting"): count for bot, count in (await looking.open_by_bot(link)).items()})
        counts.update((each.message.bot, each.state.value) for each in await outbox.dead(limit=COUNTED))
    elif isinstance(outbox, SqliteOutbox):
        for (bot, name), count in outbox.file.counts.items():
            counts[bot, "waiting" if name in WAITING else name] += count
    return counts


def link_of(gate: Tidegate) -> "Link | None":
    """To the Redis that is the store of this gate, if one is."""
    return getattr(gate.outbox, "link", None)  # only that store has one; its driver is an extra
