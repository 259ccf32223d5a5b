"""Everything that waits in a SQLite store moves to Redis, in order, and can be interrupted anywhere."""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tidegate.bots.encryption import MISSING, TokenCipher
from tidegate.bots.port import BotRecord, BotStore
from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreAwayError, StoreError, StoreFullError, WrongKeyError
from tidegate.extras import extra
from tidegate.inbound.inbox import DEDUP_SECONDS, InboxItem, InboxSource
from tidegate.model import Delivered, Message, Ticket, TicketId
from tidegate.outbox.port import Outbox
from tidegate.pacing.rules import Family, Rules
from tidegate.settings import Settings
from tidegate.stores.sqlite import export, inbox_sql, recovery
from tidegate.stores.sqlite.bots import SqliteBotStore
from tidegate.stores.sqlite.file import StoreFile, Transaction
from tidegate.stores.sqlite.sender_lock import SenderLock
from tidegate.stores.sqlite.settle_sql import AnsweredCall
from tidegate.stores.sqlite.subscriptions import SqliteSubscriptions
from tidegate.stores.sqlite.turns import quarantine

if TYPE_CHECKING:
    from tidegate.stores.redis.connection import RedisConnection


class TransferCounts(msgspec.Struct):
    """`known`: an earlier run had put them already. `duplicates`: their dedup key was put there by others."""

    moved: int = 0
    known: int = 0
    duplicates: int = 0

    @property
    def all(self) -> int:
        return self.moved + self.known + self.duplicates

    def count(self, messages: Sequence[Message], tickets: Sequence[Ticket]) -> None:
        for message, ticket in zip(messages, tickets, strict=True):
            self.moved += ticket.fresh
            self.known += not ticket.fresh and ticket.id == message.id
            self.duplicates += not ticket.fresh and ticket.id != message.id


class MessageTransfer:
    """Nothing is lost or in both stores to be sent, wherever it is killed.

    What is held back here when it is killed may be there or not: the next run puts it again, which changes
    nothing there while it is known.
    """

    def __init__(self, file: StoreFile, target: Outbox, clock: Clock) -> None:
        self._file, self._target, self._clock = file, target, clock
        self.carried = TransferCounts()

    async def carry(self, stop: asyncio.Event, tell: Callable[[int], None]) -> None:
        """Until nothing waits, or `stop`."""
        while not stop.is_set() and await self._file.read(self._line_up):
            after, done = 0, list[TicketId]()
            while True:
                after, chunk = await self._next(done, None if stop.is_set() else after)
                if not chunk:
                    break
                self.carried.count(chunk, await self._put(chunk))
                done = [message.id for message in chunk]
                tell(self.carried.all)

    def _line_up(self, tx: Transaction) -> int:
        return export.number_waiting(tx, self._clock.now())

    async def _next(self, done: list[TicketId], after: int | None) -> tuple[int, list[Message]]:
        """One step: what is done leaves, and the next are held back, unless there shall be none."""

        def step(tx: Transaction) -> tuple[int, list[Message]]:
            export.remove_moved(tx, done)
            return (0, []) if after is None else export.hold_chunk(tx, after, self._clock.now())

        following: tuple[int, list[Message]] = await self._file.write(step)
        return following

    async def _put(self, chunk: list[Message]) -> list[Ticket]:
        ids = [message.id for message in chunk]
        try:
            return await self._target.put(chunk)
        except StoreFullError:  # it has surely taken none of them
            await self._file.write(lambda tx: export.release_held(tx, ids))
            raise
        except StoreAwayError as error:
            held = f"{len(chunk)} messages may be there or not, and are held back in the file"
            raise StoreAwayError(f"{error} {held}: run the same command again soon") from error


async def transfer_bots(
    file: StoreFile, there: BotStore, path: Path, settings: Settings, *, really: bool = True
) -> dict[str, Any]:
    """Those that are not there yet, if their tokens can be opened here and encrypted there."""
    shelves = [
        SqliteBotStore(file, TokenCipher.of(key, path))
        for key in dict.fromkeys((settings.tidegate_key, None))
    ]
    known = {bot.id for bot in await there.all()}
    moved, left, why = [], [], ""
    for bot in await shelves[0].all():
        if bot.id not in known:
            try:
                if settings.tidegate_key is None:
                    raise BadInputError(MISSING)  # noqa: TRY301  (as it would be)
                token = await _open_token(shelves, bot)
                if really:
                    await there.put(bot.id, token, bot.api_url)
                moved.append(bot.id)
            except (WrongKeyError, BadInputError) as error:
                left.append(bot.id)
                why = str(error)
    return {"bots": moved, "bots_left": left, "why_left": why}


async def _open_token(shelves: list[SqliteBotStore], bot: BotRecord) -> str:
    """By TIDEGATE_KEY, or else by the key file: the variable may be meant for Redis only."""
    for shelf in shelves[:-1]:
        try:
            return await shelf.open(bot)
        except WrongKeyError:
            continue
    return await shelves[-1].open(bot)


FAMILIES: tuple[Family, ...] = ("send", "edit", "action", "free")


@asynccontextmanager
async def open_source(path: Path) -> AsyncIterator[StoreFile]:
    file = StoreFile(path)
    await file.open()
    try:
        yield file
    finally:
        await file.close()


@asynccontextmanager
async def exclusive_sender(path: Path, clock: Clock) -> AsyncIterator[None]:
    """While the body runs, no process is the sender. Raises StoreError that names one that is."""
    lock = SenderLock(path)
    if sender := await lock.holder():
        raise StoreError(f"{sender} sends for {path}: stop it first, then move")
    await lock.take(clock)
    try:
        yield
    finally:
        await lock.release()


async def settle_crashes(file: StoreFile, clock: Clock, rules: Rules) -> None:
    """What was being sent when its sender died waits again, or has come to its end; its slots may cool."""
    kinds: dict[str, str] = {family: rules.kind(family) for family in FAMILIES}
    last, more = 0, True

    def step(tx: Transaction) -> int:
        return recovery.load(tx, last, clock.now(), kinds).last

    while more:
        before, last = last, await file.write(step)
        more = last > before
    if not await file.read(export.ended_cleanly):
        await clock.sleep(quarantine(rules))  # not every direct call is written down


async def carry_subscriptions(file: StoreFile, link: "RedisConnection", clock: Clock) -> int:
    """How many were moved. Ended half-way, it can be done again: those that are there stay as they are."""
    return sum([await _carry_poller(file, link, clock, name) for name in await file.read(_pollers)])


async def _carry_poller(file: StoreFile, link: "RedisConnection", clock: Clock, name: str) -> int:
    from tidegate.stores.redis.subscriptions import RedisSubscriptions  # noqa: PLC0415  (its driver is an extra)

    here, there = SqliteSubscriptions(file, clock, name), RedisSubscriptions(link, clock, name)
    # First: whoever polls there goes on from where it was here, and sees what changed meanwhile.
    if (mark := await here.watermark()) is not None and await there.watermark() is None:
        await there.save_watermark(mark)
    moved = 0
    while kept := await here.after(0):
        moved += await there.bring(kept)
        last = kept[-1].number
        await file.write(lambda tx, last=last: _forget_subscriptions(tx, name, last))  # type: ignore[misc]
    return moved


def _pollers(tx: Transaction) -> list[str]:
    found = tx.execute("SELECT poller FROM subscriptions UNION SELECT name FROM pollers")
    return [name for (name,) in found]


def _forget_subscriptions(tx: Transaction, name: str, last: int) -> None:
    """By number: who was added again since has another."""
    tx.execute("DELETE FROM subscriptions WHERE poller = ? AND number <= ?", (name, last))


class TransferTarget(NamedTuple):
    outbox: Outbox
    link: "RedisConnection"
    shelf: BotStore
    risks: list[str]  # what could be lost there, in words


@asynccontextmanager
async def open_target(
    url: str, settings: Settings, clock: Clock, *, touch: bool = True
) -> AsyncIterator[TransferTarget]:
    """Unless `touch`, nothing is written there."""
    with extra("redis", "redis"):
        from tidegate.stores.redis.bots import RedisBotStore  # noqa: PLC0415
        from tidegate.stores.redis.connection import RedisPyConnection  # noqa: PLC0415
        from tidegate.stores.redis.durability import durability_warnings  # noqa: PLC0415
        from tidegate.stores.redis.outbox import RedisOutbox  # noqa: PLC0415
    link = await asyncio.to_thread(RedisPyConnection, url, clock, secrets.token_hex(6))  # which reads files
    outbox = RedisOutbox(link, clock, settings.rules())
    try:
        risks = await durability_warnings(link)
        if touch:
            await outbox.open()
        yield TransferTarget(
            outbox, link, RedisBotStore(link, TokenCipher.of(settings.tidegate_key, None)), risks
        )
    finally:
        await outbox.close()


async def remember_calls(target: Outbox, calls: Iterable[AnsweredCall], rules: Rules, now: float) -> None:
    """Slots that still cool go along: as if the calls had been made there, and answered so long ago."""
    for call in calls:
        age = max(0.0, now - call.at)
        if call.cost and age < _longest(call, rules):
            family: Family = call.kind  # type: ignore[assignment]  # of one that has such a lane
            try:
                turn = await target.turn(call.bot, call.chat, family, call.cost, paid=call.paid, max_wait=0)
            except TimeoutError:
                continue  # there is no slot to take: others use that limit
            await target.end_turn(turn, Delivered(None), age)


def _longest(call: AnsweredCall, rules: Rules) -> float:
    rates = rules.actions if call.kind == "action" else (rules.bot, rules.chat(call.chat))
    return max(rate.seconds * max(1.0, call.cost / rate.count) for rate in rates)


UPDATES_PER_STEP: Final = 500
_Known = tuple[str, str, float]  # source, key, when it came


async def carry_updates(file: StoreFile, link: "RedisConnection", clock: Clock) -> int:
    """How many were moved. Ended half-way, it can be done again: those that are there are known there.

    Also those that wait for their next try: they have it there.
    """
    from tidegate.stores.redis.inbox import RedisInbox  # noqa: PLC0415  (its driver is an extra)

    there, moved = RedisInbox(link, clock), 0
    while rows := await file.read(_first):
        await there.accept([InboxItem(InboxSource(source), *rest) for _, source, *rest in rows])
        last = rows[-1][0]
        await file.write(lambda tx, last=last: _forget_updates(tx, last))  # type: ignore[misc]
        moved += len(rows)
    await _carry_known(file, link, clock.now())
    return moved


async def _carry_known(file: StoreFile, link: "RedisConnection", now: float) -> None:
    """Telegram sends again what it was not told of: that must not be handled again."""
    from tidegate.stores.redis.inbox_codec import seen_key  # noqa: PLC0415  (likewise)

    after = ("", "")
    while rows := await file.read(lambda tx, after=after: _known(tx, after, now)):  # type: ignore[misc]
        bits: defaultdict[str, list[str | int]] = defaultdict(list)
        for source, key, at in rows:
            memory = seen_key(InboxItem(InboxSource(source), key, "", b""))
            if memory.bit:
                bits[memory.key] += ["SET", "u1", memory.bit, 1]
            else:
                left = int(at + DEDUP_SECONDS - now) + 1
                await link.command("SET", link.key(memory.key), f"{now + left:.6f}", "EX", left)
        for name, changes in bits.items():
            await link.command("BITFIELD", link.key(name), *changes)
            await link.command("EXPIRE", link.key(name), int(DEDUP_SECONDS))
        after = rows[-1][:2]


def _first(tx: Transaction) -> list[Any]:
    return tx.execute(
        "SELECT number, source, key, lane, body FROM arrivals ORDER BY number LIMIT ?", (UPDATES_PER_STEP,)
    ).fetchall()


def _forget_updates(tx: Transaction, last: int) -> None:
    tx.execute("DELETE FROM held WHERE number <= ?", (last,))
    inbox_sql.count(tx, -tx.execute("DELETE FROM arrivals WHERE number <= ?", (last,)).rowcount)


def _known(tx: Transaction, after: tuple[str, str], now: float) -> list[_Known]:
    return tx.execute(
        "SELECT source, key, at FROM seen WHERE (source, key) > (?, ?) AND at > ?"
        " ORDER BY source, key LIMIT ?",
        (*after, now - DEDUP_SECONDS, UPDATES_PER_STEP),
    ).fetchall()
