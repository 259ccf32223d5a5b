"""Everything that waits in a SQLite store moves to Redis, in order, and can be interrupted anywhere."""

import asyncio
import secrets
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tidegate.bots.encryption import MISSING, TokenCipher
from tidegate.bots.port import BotRecord, BotStore
from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreAwayError, StoreError, StoreFullError, WrongKeyError
from tidegate.extras import extra
from tidegate.flows.port import SessionConflictError, parse_session_key
from tidegate.inbound.inbox import DEDUP_SECONDS, InboxItem, InboxSource
from tidegate.model import BotLimits, Delivered, Message, Ticket, TicketId
from tidegate.outbox.port import Outbox
from tidegate.pacing.rules import FAMILIES, Family, Rules, chat_kind, own_rules
from tidegate.pacing.window import Window, chat_windows
from tidegate.settings import Settings
from tidegate.stores.feed_transfer import carry_feeds
from tidegate.stores.history_transfer import (
    carry_aliases,
    carry_conversations,
    carry_ended,
    carry_limits,
    carry_own_limits,
    carry_parked_updates,
)
from tidegate.stores.sqlite import export, inbox_sql, message_rows, recovery
from tidegate.stores.sqlite.bots import SqliteBotStore
from tidegate.stores.sqlite.file import StoreFile, Transaction
from tidegate.stores.sqlite.flow_sessions import UNREADABLE_FLOW, SqliteFlowSessions
from tidegate.stores.sqlite.sender_lock import SenderLock
from tidegate.stores.sqlite.settle_sql import AnsweredCall
from tidegate.stores.sqlite.subscriptions import SqliteSubscriptions
from tidegate.stores.sqlite.turns import quarantine

if TYPE_CHECKING:
    from tidegate.stores.redis.connection import RedisConnection


Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]

SEEN_EVENTS_PER_STEP: Final = 500
# What moves beside messages that wait, as the report names it.
CARRIED: Final = (
    "moved_letters",
    "moved_ended",
    "moved_limits",
    "updates",
    "moved_parked_updates",
    "subscriptions",
    "sessions",
    "moved_conversations",
    "moved_fed_updates",
    "moved_readers",
)
SUBSCRIPTIONS_PER_STEP: Final = 500


async def transfer_store(
    path: Path,
    url: str,
    settings: Settings,
    clock: Clock,
    *,
    dry_run: bool,
    stop: asyncio.Event,
    warn: Callable[[str], None],
    progress: Progress,
) -> dict[str, Any]:
    """Move what waits in the file to the Redis at `url`, until `stop`; return the counts of a report.

    Killed anywhere, the next run goes on: no message is lost, or in both stores to be sent. `warn` gets each
    risk of losing data that the Redis has; `progress`, given the total, how many messages are done.
    """
    async with open_source(path) as file, open_target(url, settings, clock, touch=not dry_run) as there:
        for risk in there.risks:
            warn(risk)
        if dry_run:
            found = await _would_move(file, there, path, settings)
        else:
            async with exclusive_sender(path, clock):
                found = await _move(file, there, path, settings, clock=clock, stop=stop, progress=progress)
        stays = await file.read(lambda tx: export.left_behind(tx, clock.now()))
        waiting = sum(await file.read(export.count_to_move))
    return {"stopped": stop.is_set(), **found, "waiting": waiting, **msgspec.structs.asdict(stays)}


async def _move(
    file: StoreFile,
    there: "TransferTarget",
    path: Path,
    settings: Settings,
    *,
    clock: Clock,
    stop: asyncio.Event,
    progress: Progress,
) -> dict[str, Any]:
    """Bots, pauses and limits go first: workers may run there."""
    rules = settings.rules()
    await settle_crashes(file, clock, rules)
    await carry_aliases(file, there.link)
    limits = await carry_own_limits(file, there.link)  # first: they are what the others are about
    limits += await carry_limits(file, there.link, clock)
    await remember_calls(there.outbox, await file.read(export.recent_calls), rules, clock.now())
    bots = await transfer_bots(file, there.shelf, path, settings)
    pauses = await file.read(message_rows.pauses)
    for bot, chat in pauses:
        await there.outbox.pause(bot, chat)
    messages = MessageTransfer(file, there.outbox, clock)
    with progress(sum(await file.read(export.count_to_move))) as tell:
        await messages.carry(stop, tell)
    counts = dict.fromkeys(CARRIED, 0) | msgspec.structs.asdict(messages.carried)
    if not stop.is_set():
        counts["moved_letters"], counts["moved_ended"] = await carry_ended(file, there.link, clock, rules)
    if not stop.is_set():
        counts["updates"] = await carry_updates(file, there.link, clock)
        counts["moved_parked_updates"] = await carry_parked_updates(file, there.link, clock)
    if not stop.is_set():
        counts["subscriptions"] = await carry_subscriptions(file, there.link, clock)
        counts["sessions"] = await carry_flow_sessions(file, there.link, clock)
    if not stop.is_set():
        counts["moved_conversations"] = await carry_conversations(file, there.link)
        counts["moved_fed_updates"], counts["moved_readers"] = await carry_feeds(file, there.link)
    return {**counts, **bots, "paused": len(pauses), "moved_limits": limits}


async def _would_move(
    file: StoreFile, there: "TransferTarget", path: Path, settings: Settings
) -> dict[str, Any]:
    bots = await transfer_bots(file, there.shelf, path, settings, really=False)
    pauses = await file.read(message_rows.pauses)
    nothing = dict.fromkeys(("moved", "known", "duplicates", *CARRIED), 0)
    return {**nothing, **bots, "paused": len(pauses)}


class TransferCounts(msgspec.Struct):
    """`known` were put by an earlier run. `duplicates` were dropped: their dedup key exists there."""

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
    """Moves messages in chunks: held back in the file, put into Redis, removed from the file.

    A chunk that is held back when the process dies may be in Redis or not. The next run puts it again,
    which changes nothing for messages that Redis knows.
    """

    def __init__(self, file: StoreFile, target: Outbox, clock: Clock) -> None:
        self._file, self._target, self._clock = file, target, clock
        self.carried = TransferCounts()

    async def carry(self, stop: asyncio.Event, tell: Callable[[int], None]) -> None:
        """Move messages until none waits, or until `stop`."""
        while not stop.is_set() and (await self._file.read(self._line_up)) > 0:
            after, done = 0, list[TicketId]()
            while True:
                after, chunk, buried = await self._next(done, None if stop.is_set() else after)
                message_rows.report_buried(buried)
                if not chunk:
                    break
                self.carried.count(chunk, await self._put(chunk))
                done = [message.id for message in chunk]
                tell(self.carried.all)

    def _line_up(self, tx: Transaction) -> int:
        return export.number_waiting(tx, self._clock.now())

    async def _next(
        self, done: list[TicketId], after: int | None
    ) -> tuple[int, list[Message], list[message_rows.Buried]]:
        """In one step, remove the chunk that is done and hold back the next one, unless `after` is None."""

        def step(tx: Transaction) -> tuple[int, list[Message], list[message_rows.Buried]]:
            export.remove_moved(tx, done)
            return (0, [], []) if after is None else export.hold_chunk(tx, after, self._clock.now())

        return await self._file.write(step)

    async def _put(self, chunk: list[Message]) -> list[Ticket]:
        ids = [message.id for message in chunk]
        try:
            return await self._target.put(chunk)
        except StoreFullError:  # none of them was put
            await self._file.write(lambda tx: export.release_held(tx, ids))
            raise
        except StoreAwayError as error:
            held = f"{len(chunk)} messages may have been put or not, and are held back in the file"
            raise StoreAwayError(f"{error} {held}: run the same command again soon") from error


async def transfer_bots(
    file: StoreFile, there: BotStore, path: Path, settings: Settings, *, really: bool = True
) -> dict[str, Any]:
    """Register the bots that Redis does not know, if their tokens can be decrypted here and encrypted there.

    They stay in the file too: dead letters there may need them.
    """
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
    """Decrypt with TIDEGATE_KEY, or else with the key file: the variable may be meant for Redis only."""
    for shelf in shelves[:-1]:
        try:
            return await shelf.open(bot)
        except WrongKeyError:
            continue
    return await shelves[-1].open(bot)


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
    """Hold the sender lock, so that no process sends. Raises StoreError that names one that does."""
    lock = SenderLock(path)
    if sender := await lock.holder():
        raise StoreError(f"{sender} sends for {path}: stop it first, then move")
    await lock.take(clock)
    try:
        yield
    finally:
        await lock.release()


async def settle_crashes(file: StoreFile, clock: Clock, rules: Rules) -> None:
    """Settle the messages that were being sent when the sender died, and wait for their slots to cool."""
    kinds: dict[str, str] = {family: rules.kind(family) for family in FAMILIES}
    last, more = 0, True

    def step(tx: Transaction) -> recovery.LoadedRows:
        return recovery.load(tx, last, clock.now(), kinds)

    while more:
        loaded = await file.write(step)
        message_rows.report_buried(loaded.unreadable)
        before, last = last, loaded.last
        more = last > before
    if not await file.read(export.ended_cleanly):
        await clock.sleep(quarantine(rules))  # not every direct call is written down


async def carry_subscriptions(file: StoreFile, link: "RedisConnection", clock: Clock) -> int:
    """Move subscriptions and watermarks; return how many. A second run leaves those that Redis has."""
    return sum([await _carry_poller(file, link, clock, name) for name in await file.read(_pollers)])


async def _carry_poller(file: StoreFile, link: "RedisConnection", clock: Clock, name: str) -> int:
    from tidegate.stores.redis.subscriptions import RawSubscription, RedisSubscriptions  # noqa: PLC0415  (its driver is an extra)

    here, there = SqliteSubscriptions(file, clock, name), RedisSubscriptions(link, clock, name)
    # First, so that a poller there goes on from here and sees what changed meanwhile.
    if (mark := await here.watermark()) is not None and await there.watermark() is None:
        await there.save_watermark(mark)
    moved = 0
    while rows := await file.read(lambda tx: _first_subscriptions(tx, name)):
        # As they are stored: one that cannot be decoded is carried too.
        moved += await there.bring(
            [RawSubscription(key, body, met, news or b"") for _, key, body, met, news in rows]
        )
        last = rows[-1][0]
        await file.write(partial(_forget_subscriptions, name=name, last=last))
    return moved


def _pollers(tx: Transaction) -> list[str]:
    found = tx.execute("SELECT poller FROM subscriptions UNION SELECT name FROM pollers")
    return [name for (name,) in found]


def _first_subscriptions(tx: Transaction, name: str) -> list[Any]:
    find = "SELECT number, key, body, met, news FROM subscriptions WHERE poller = ? ORDER BY number LIMIT ?"
    return tx.execute(find, (name, SUBSCRIPTIONS_PER_STEP)).fetchall()


def _forget_subscriptions(tx: Transaction, name: str, last: int) -> None:
    """Delete by number: a subscription that was added again has a new one."""
    tx.execute("DELETE FROM subscriptions WHERE poller = ? AND number <= ?", (name, last))


async def carry_flow_sessions(file: StoreFile, link: "RedisConnection", clock: Clock) -> int:
    """Move the sessions of flows and seen events; return how many sessions. Those that Redis has stay."""
    from tidegate.stores.redis.flow_sessions import RedisFlowSessions  # noqa: PLC0415  (its driver is an extra)

    moved = 0
    for flow in await file.read(_flows):
        here, there = SqliteFlowSessions(file, clock, flow), RedisFlowSessions(link, clock, flow)
        while keys := (await here.scan()).keys:
            for key in keys:
                stored = await here.load(key)
                if stored.session is None:
                    continue  # it cannot be read, and is set aside
                with suppress(SessionConflictError):
                    await there.commit(key, stored.session, expected=0)
                    moved += 1
                await here.commit(key, None, expected=stored.version)
        while events := await file.read(partial(_seen_events, flow=flow)):
            for text, event, seen_at in events:
                key = parse_session_key(text)
                known = await there.load(key, event)
                await there.commit(key, known.session, expected=known.version, seen=event, at=seen_at)
            await file.write(partial(_forget_seen_events, rows=events))
    for flow, text, body in await file.read(_unreadable_sessions):  # last: some are found only now
        aside = link.key(f"flows:{flow.removeprefix(UNREADABLE_FLOW)}:unreadable")
        await link.command("HSETNX", aside, text, b"1:" + body)
    return moved


def _flows(tx: Transaction) -> list[str]:
    found = tx.execute("SELECT flow FROM flow_sessions UNION SELECT flow FROM flow_events")
    return [flow for (flow,) in found if not flow.startswith(UNREADABLE_FLOW)]


def _unreadable_sessions(tx: Transaction) -> list[tuple[str, str, bytes]]:
    """Return the sessions that were set aside. They stay here, too."""
    find = "SELECT flow, key, body FROM flow_sessions WHERE flow GLOB ? || '*'"
    return tx.execute(find, (UNREADABLE_FLOW,)).fetchall()


def _seen_events(tx: Transaction, flow: str) -> list[tuple[str, str, float]]:
    find = "SELECT key, event, seen_at FROM flow_events WHERE flow = ? LIMIT ?"
    return tx.execute(find, (flow, SEEN_EVENTS_PER_STEP)).fetchall()


def _forget_seen_events(tx: Transaction, rows: list[tuple[str, str, float]]) -> None:
    tx.executemany("DELETE FROM flow_events WHERE key = ? AND event = ? AND seen_at = ?", rows)


class TransferTarget(NamedTuple):
    outbox: Outbox
    link: "RedisConnection"
    shelf: BotStore
    risks: list[str]  # of losing data there


@asynccontextmanager
async def open_target(
    url: str, settings: Settings, clock: Clock, *, touch: bool = True
) -> AsyncIterator[TransferTarget]:
    """Open the Redis without a spool: what it has not taken must stay in the file. Write only if `touch`."""
    with extra("redis"):
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
    """Take the slots that still cool, as if the calls had been made there and answered so long ago."""
    own = await target.own_limits()
    for call in calls:
        age = max(0.0, now - call.at)
        if call.cost and age < _longest(call, own_rules(rules, own.get(call.bot, BotLimits()))):
            family: Family = call.kind  # type: ignore[assignment]  # of one that has such a lane
            try:
                turn = await target.turn(call.bot, call.chat, family, call.cost, paid=call.paid, max_wait=0)
            except TimeoutError:
                continue  # no slot is free: others use that limit
            await target.end_turn(turn, Delivered(None), age)


def _longest(call: AnsweredCall, rules: Rules) -> float:
    windows = chat_windows(rules)[chat_kind(call.kind, call.chat)]
    return max(window.hold_seconds(call.cost) for window in (*windows, Window.of(rules.bot)))


UPDATES_PER_STEP: Final = 500
_Known = tuple[str, str, float]  # source, key, when it came


async def carry_updates(file: StoreFile, link: "RedisConnection", clock: Clock) -> int:
    """Move the updates that wait, those of a chat in order; return how many.

    A second run changes nothing for those that Redis has. Updates that wait for a retry get it there.
    """
    from tidegate.stores.redis.inbox import RedisInbox  # noqa: PLC0415  (its driver is an extra)

    there, moved = RedisInbox(link, clock), 0
    while rows := await file.read(_first):
        await there.accept([InboxItem(InboxSource(source), *rest) for _, source, *rest in rows])
        last = rows[-1][0]
        await file.write(partial(_forget_updates, last=last))
        moved += len(rows)
    await _carry_known(file, link, clock.now())
    return moved


async def _carry_known(file: StoreFile, link: "RedisConnection", now: float) -> None:
    """Copy the keys of handled updates: Telegram may send them again, and they must not be handled twice."""
    from tidegate.stores.redis.inbox_codec import seen_key  # noqa: PLC0415  (likewise)

    after = ("", "")
    while rows := await file.read(partial(_known, after=after, now=now)):
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
    removed = tx.execute("DELETE FROM arrivals WHERE number <= ? RETURNING source", (last,)).fetchall()
    inbox_sql.count(tx, Counter(source for (source,) in removed), -1)


def _known(tx: Transaction, after: tuple[str, str], now: float) -> list[_Known]:
    return tx.execute(
        "SELECT source, key, at FROM seen WHERE (source, key) > (?, ?) AND at > ?"
        " ORDER BY source, key LIMIT ?",
        (*after, now - DEDUP_SECONDS, UPDATES_PER_STEP),
    ).fetchall()
