"""From the store that was named, or not, to an open gate and what an operator asks of it."""

import logging
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tidegate.cli import loop
from tidegate.cli.doctor.checks import UNREADABLE, address
from tidegate.cli.messages import COUNTED
from tidegate.errors import BadInputError, StoreAwayError
from tidegate.gate import Tidegate
from tidegate.model import BotId, ChatId
from tidegate.outbox.port import Outbox
from tidegate.settings import REDIS_SCHEMES, Settings
from tidegate.stores.redis import operator
from tidegate.stores.sqlite.outbox import SqliteOutbox
from tidegate.stores.sqlite.sender_lock import SenderProcess

if TYPE_CHECKING:
    from tidegate.stores.redis.connection import RedisConnection


def place_of(store: str | None) -> str:
    """The store that is meant."""
    return store or Settings.read().tidegate_store


def is_redis(place: str) -> bool:
    scheme, slashes, _ = place.partition("://")
    return bool(slashes) and scheme in REDIS_SCHEMES


def shown_store(place: str) -> str:
    """As it may be printed."""
    scheme, slashes, _ = place.partition("://")
    if slashes and scheme != "sqlite":
        known = address(place)
        return known if known == UNREADABLE else f"{scheme}://{known}"
    # Someone has mistyped the address of a server.
    return UNREADABLE if "@" in place and ":" in place else place


def store_option(store: str | None) -> str:
    """How to name the same store to another command; what would show a password is left to the reader."""
    if not store:
        return ""
    secret = "@" in store or ("://" in store and "?" in store)
    return " with the same --store" if secret else f" --store {shlex.quote(store)}"


def file_of(store: str | None) -> Path:
    """The file of the store that is meant. Raises BadInputError where a store is no file."""
    place = place_of(store).removeprefix("sqlite:///")
    if is_redis(place):
        raise BadInputError(
            "this works on a store in a file; Redis has its own ways (BGSAVE, its append-only file)"
        )
    if "://" in place:
        raise BadInputError("this works on a store in a file: name one with --store")
    path = Path(place)
    if path.is_dir():
        raise BadInputError(
            f"{place} is a folder: give the path of a file in it, such as {path / 'tidegate.db'}"
        )
    return path


def gate_at(store: str | None, *, create: bool = False) -> Tidegate:
    """The gate of a store, not open yet. A store that does not exist is an error, unless it may be made."""
    settings = Settings.read()
    place = store or settings.tidegate_store
    if not create:
        check_there(place)
    return Tidegate(place, settings=settings)


def check_there(place: str) -> None:
    """Raises BadInputError for a file that is not there, or is empty."""
    name = place.removeprefix("sqlite:///")
    if "://" in name:
        return
    file = Path(name)
    if not file.exists():
        raise BadInputError(
            f"there is no store at {shown_store(place)}: name it with --store, or begin with bot add"
        )
    if file.is_file() and file.stat().st_size == 0:  # it may have been one: a look must not make it new
        raise BadInputError(f"{place} is empty: restore a backup, or remove it and begin with bot add")


@asynccontextmanager
async def reached(gate: Tidegate, store: str | None) -> AsyncIterator[Tidegate]:
    """The gate, open. Raises StoreAwayError that names the store if that is away, now or meanwhile."""
    place = place_of(store)
    async with gate:
        if not gate.outbox.health().ready:
            advice = "start Redis there, or correct --store or TIDEGATE_STORE"
            raise StoreAwayError(f"{shown_store(place)} cannot be reached: {advice}")
        try:
            yield gate
        except StoreAwayError as error:
            if not is_redis(place):
                raise
            raise StoreAwayError(f"{shown_store(place)}: {error}") from error


@contextmanager
def quietly() -> Iterator[None]:
    """For commands that look or act once: warnings about the store are for those that stay."""
    log = logging.getLogger("tidegate")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def choose_bot(gate: Tidegate, number: int | None) -> BotId:
    """The bot that is meant, of an open gate: the one named, or the only one."""
    known = sorted(bot.id for bot in gate.bots())
    named = ", ".join(map(str, known))
    if not known:
        raise BadInputError("no bot is registered in this store: begin with tidegate bot add")
    if number is None and len(known) > 1:
        raise BadInputError(f"several bots are registered: say which one with --bot ({named})")
    if number is not None and number not in known:
        raise BadInputError(f"--bot: {number} is not registered in this store, but {named}")
    return BotId(known[0] if number is None else number)


Result = TypeVar("Result")
WAITING_COUNTS = ("high", "normal", "low", "retry")


class StoreFacts(NamedTuple):
    """Who sends now, which bots are registered or have messages, and which bots and chats are paused.

    A store that many may send for has no one `sender`, but `company`.
    """

    sender: SenderProcess | None
    bots: list[BotId]
    paused: list[tuple[BotId, ChatId | None]]
    company: operator.OtherProcesses | None = None


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


async def facts_of(gate: Tidegate) -> StoreFacts:
    """Beyond what every store tells: nothing of senders and pauses, if it is one in memory."""
    registered = {bot.id for bot in gate.bots()}
    outbox, link, paused = gate.outbox, link_of(gate), await paused_of(gate)
    known = registered | {bot for bot, _ in paused}
    if link is not None:
        heard_of = await operator.open_by_bot(link)
        return StoreFacts(None, sorted({*known, *heard_of}), paused, await operator.other_processes(link))
    if not isinstance(outbox, SqliteOutbox):
        return StoreFacts(None, sorted(known), paused)
    return StoreFacts(await outbox.sender(), sorted(known | {bot for bot, _ in outbox.file.counts}), paused)


async def paused_of(gate: Tidegate, *, chats: bool = True) -> list[tuple[BotId, ChatId | None]]:
    """Bots (None) and, unless they are not asked for, chats."""
    outbox, link = gate.outbox, link_of(gate)
    if isinstance(outbox, SqliteOutbox):
        return await outbox.pauses()
    if link is None:
        return []  # only this process could have paused one
    held: list[tuple[BotId, ChatId | None]] = [(bot, None) for bot in await operator.paused_bots(link)]
    return held + list(await operator.paused_chats(link)) if chats else held


async def someone_delivers(gate: Tidegate) -> bool:
    """Whether some process takes messages out of this store, as far as is known."""
    outbox, link = gate.outbox, link_of(gate)
    if link is not None:
        return (await operator.other_processes(link)).delivers
    return isinstance(outbox, SqliteOutbox) and await outbox.sender() is not None


async def counts_of(gate: Tidegate) -> Counter[tuple[BotId, str]]:
    """How many messages of each bot are waiting, dead and parked; of Redis's letters, the oldest 10,000."""
    counts: Counter[tuple[BotId, str]] = Counter()
    outbox, link = gate.outbox, link_of(gate)
    if link is not None:
        counts.update({(bot, "waiting"): count for bot, count in (await operator.open_by_bot(link)).items()})
        counts.update((each.message.bot, each.state.value) for each in await outbox.dead(limit=COUNTED))
    elif isinstance(outbox, SqliteOutbox):
        for (bot, name), count in outbox.file.counts.items():
            counts[bot, "waiting" if name in WAITING_COUNTS else name] += count
    return counts


def link_of(gate: Tidegate) -> "RedisConnection | None":
    """To the Redis that is the store of this gate, if one is."""
    return getattr(gate.outbox, "connection", None)  # only that store has one; its driver is an extra
