"""The outbox in Redis: any number of processes put, claim and settle under the same limits."""

import asyncio
import itertools
import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from tidegate.clock import Clock
from tidegate.errors import StoreAwayError, StoreError
from tidegate.model import (
    BotId,
    ChatId,
    Claim,
    Message,
    NotSent,
    Outcome,
    Priority,
    Rate,
    Record,
    Settlement,
    State,
    Ticket,
    TicketId,
    Why,
)
from tidegate.outbox.port import Outbox, OutboxStats, StoreHealth, Turn
from tidegate.outbox.reasons import explain
from tidegate.outbox.transitions import DEAD_LETTER_STATES, UNSETTLED_STATES
from tidegate.pacing.rules import Family, Rules
from tidegate.stores.message_codec import encode
from tidegate.stores.redis import outbox_codec
from tidegate.stores.redis.connection import Argument, RedisConnection
from tidegate.stores.redis.fallback import OUTAGE_AFTER, OutboxFallback
from tidegate.stores.redis.outbox_codec import OPEN_COUNT_PREFIX, OutboxReply, ReportedMessage
from tidegate.stores.redis.spool import Spool
from tidegate.stores.redis.turns import RedisTurns, TurnLostError
from tidegate.stores.redis.waiters import RedisSettledWaiters

log = logging.getLogger("tidegate")

T = TypeVar("T")

MESSAGES_PER_STEP: Final = 250  # claimed or settled in one step: Redis is for others too
IDS_PER_STEP: Final = 200  # named in one step
DEAD_LETTERS_PER_STEP: Final = 200
SETTLE_RETRIED_FOR: Final = 10.0  # seconds in which a settlement is told again, while Redis is away
YIELD_FOR: Final = 0.1  # seconds: messages wait of bots that only other processes know
RETRY_EVERY: Final = 0.2  # seconds until Redis is tried again, while it is away


class RedisOutbox(Outbox):
    """Keeps what has ended for `keep` seconds, or for its dedup lifetime if that is longer."""

    def __init__(
        self,
        link: RedisConnection,
        clock: Clock,
        rules: Rules | None = None,
        *,
        lease: float = 30.0,
        keep: float = 600.0,
        on_end: Callable[[Record], None] | None = None,
        spool: Spool | None = None,
    ) -> None:
        self.link = link
        self._clock = clock
        self._rules = rules or Rules()
        self._terms = outbox_codec.script_terms(
            link.me, self._rules, lease=lease, keep=keep, longest_wait=link.longest_wait
        )
        self._on_end = on_end
        self.serves: Callable[[], Iterable[BotId]] | None = None  # the bots that it can send for; None: all
        self._claiming = asyncio.Lock()
        self._claims = self._heard = 0  # the number of the latest call, and of the latest that was answered
        self._turns = RedisTurns(link, clock, self._rules, lease, self._run)
        self._watching = RedisSettledWaiters(clock, self._look)
        self._away = OutboxFallback(clock, self._rules, spool, try_again=self._live, put=self._put)
        self._living: asyncio.Task[None] | None = None
        self._unsure: set[int] = set()  # tokens of settlements whose answers were lost
        self._undoing: set[asyncio.Task[Any]] = set()  # held until they are done

    async def open(self) -> None:
        """Where there is a spool, Redis may be away."""
        try:
            await self._reach()
            await self._away.open()
        except BaseException:
            await self.link.close()
            raise
        if self.link.heartbeat is not None:
            self._living = asyncio.create_task(self._live_on(self.link.heartbeat), name="tidegate: heartbeat")

    async def _reach(self) -> None:
        try:
            await self.link.open(self._terms)
        except StoreAwayError:
            if self._away.spool is None:
                raise
            self._away.failed()

    async def start_sending(self) -> None:
        """Any number of processes may."""

    async def close(self) -> None:
        tasks = [*self._turns.close(), *self._watching.close(), *self._undoing]
        if self._living is not None:
            self._living.cancel()
            tasks.append(self._living)
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._away.close()
        with suppress(StoreError):
            if not self._away.is_away:
                await self.link.command("ZREM", self.link.key("processes"), self.link.me)
                await self.link.command("HDEL", self.link.key("claimed"), self.link.me)
        await self.link.close()

    async def _live_on(self, seconds: float) -> None:
        while True:
            with suppress(StoreError):
                await self._live()
            if self._away.spool is not None and not self._away.is_away:
                self._away.come_back()  # another process may have left something behind
            await self._clock.sleep(seconds)

    async def _live(self) -> None:
        self._away.processes = (await self._run("heartbeat")).answer.count
        await self._turns.say_again()

    def health(self) -> StoreHealth:
        return self._away.health()

    async def _run(self, step: str, *args: Argument) -> OutboxReply:
        """One step; what it tells beside its own answer goes to whoever waits for it."""
        asked_at = self._clock.monotonic()
        try:
            raw = await self.link.run(step, *args)
        except StoreAwayError:
            self._away.failed()
            raise
        self._away.answered()
        reply = OutboxReply(raw)
        if reply.answer.granted:
            self._turns.granted(reply.answer.granted, asked_at)
        for told in reply.answer.ended:
            self._tell_end(reply.record(told))
        return reply

    def _tell_end(self, record: Record) -> None:
        self._watching.ended(record)
        if self._on_end is not None:
            self._on_end(record)

    # --- in ---

    async def put(self, messages: Sequence[Message]) -> list[Ticket]:
        if self._away.takes_puts:
            return await self._away.keep(messages)
        try:
            return await self._put(messages)
        except StoreAwayError:
            if self._away.spool is None:
                raise
            return await self._away.keep(messages)

    async def _put(self, messages: Sequence[Message]) -> list[Ticket]:
        if not messages:
            return []
        reply = await self._run("put", *outbox_codec.put_arguments(messages, self._rules))
        return [Ticket(ticket, fresh=bool(fresh)) for ticket, fresh in reply.answer.tickets]

    # --- out ---

    async def claim(self, room: int) -> list[Claim]:
        async with self._claiming:
            while True:
                asked_at = self._clock.monotonic()
                try:
                    reply = await self._not_in_vain(self._claim(room), self._give_back)
                    if reply.answer.claims:
                        return reply.claims(asked_at)
                    if reply.answer.others:  # who was woken instead of them lets them wake up
                        await self._clock.sleep(YIELD_FOR)
                    else:
                        await self._sleep(reply.answer.delay)
                except StoreAwayError:
                    await self._clock.sleep(RETRY_EVERY)

    async def _claim(self, room: int) -> OutboxReply:
        self._claims += 1
        number = self._claims
        reply = await self._run("claim", min(room, MESSAGES_PER_STEP), self._served(), number, self._heard)
        self._heard = number
        return reply

    def _served(self) -> str:
        """The bots whose messages this process takes; nothing if those of all."""
        return "" if self.serves is None else " ".join(map(str, self.serves())) or "0"

    async def _sleep(self, delay: float | None) -> None:
        if delay is not None and delay <= 0:
            return  # more was due than one step may do
        try:
            await self.link.wait(delay)
        except asyncio.CancelledError:
            self._later(self._wake_another())  # what it was woken with may be lost
            raise

    async def _wake_another(self) -> None:
        await self.link.command("HSET", self.link.key("meta"), "claimers", 0)
        await self.link.command("LPUSH", self.link.key("wake"), 1)

    async def _give_back(self, reply: OutboxReply) -> None:
        claims = reply.claims(self._clock.monotonic())
        if claims:  # if it is not heard, their leases run out
            said = outbox_codec.settle_arguments(
                [Settlement(claim, NotSent("given back")) for claim in claims]
            )
            await self._run("settle", *said)

    async def _not_in_vain(self, step: Awaitable[T], undo: Callable[[T], Awaitable[object]]) -> T:
        """The step's answer. If the caller is cancelled meanwhile, what it was given is taken back."""
        task: asyncio.Task[T] = asyncio.ensure_future(step)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            with suppress(StoreError):
                await self._surely(self._undo(task, undo))
            raise

    async def _undo(self, task: asyncio.Task[T], undo: Callable[[T], Awaitable[object]]) -> None:
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is None:
            await undo(task.result())

    async def _surely(self, what: Awaitable[object]) -> None:
        """It goes on though the caller is cancelled once more."""
        self._later(task := asyncio.ensure_future(what))
        await asyncio.shield(task)

    def _later(self, what: Awaitable[object]) -> None:
        task = asyncio.ensure_future(what)
        self._undoing.add(task)
        task.add_done_callback(self._undone)

    def _undone(self, task: asyncio.Task[Any]) -> None:
        self._undoing.discard(task)
        if not task.cancelled() and isinstance(task.exception(), Exception):
            log.debug("what was given back did not arrive: its lease runs out", exc_info=task.exception())

    async def cool(self, held: Iterable[Claim | Turn]) -> None:
        held = list(held)
        await self._away.cool([one for one in held if isinstance(one, Turn) and one.token < 0])
        known = [pair for one in held if (pair := self._pair(one)) is not None]
        if known:
            with suppress(StoreAwayError):  # they are held until their leases run out
                await self._run("cool", encode(known))

    def _pair(self, held: Claim | Turn) -> tuple[str, int] | None:
        """Its id and token; None if it is not known here."""
        return self._turns.pair(held) if isinstance(held, Turn) else (held.message.id, held.token)

    async def extend(self, claims: Iterable[Claim]) -> None:
        pairs = [(claim.message.id, claim.token) for claim in claims]
        if pairs:
            await self._run("extend", encode(pairs))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Record | None]:
        settling = asyncio.ensure_future(self._settle_all(list(settlements)))
        self._undoing.add(settling)
        settling.add_done_callback(self._undoing.discard)
        return await asyncio.shield(settling)

    async def _settle_all(self, settlements: list[Settlement]) -> list[Record | None]:
        records: list[Record | None] = []
        for first in range(0, len(settlements), MESSAGES_PER_STEP):
            records += await self._settle(settlements[first : first + MESSAGES_PER_STEP])
        return records

    async def _settle(self, settlements: list[Settlement]) -> list[Record | None]:
        """Tried for a while: what was sent must not be sent again."""
        began, tokens = self._clock.monotonic(), {one.claim.token for one in settlements}
        while True:
            waited = self._clock.monotonic() - began
            aged = [Settlement(one.claim, one.outcome, one.age + waited) for one in settlements]
            try:
                said = outbox_codec.settle_arguments(aged if waited else settlements, self._unsure)
                reply = await self._run("settle", *said)
            except StoreAwayError:
                self._unsure.update(tokens)
                if waited > SETTLE_RETRIED_FOR:
                    raise
                await self._clock.sleep(RETRY_EVERY)
                continue
            self._unsure -= tokens
            records: list[Record | None] = [None] * len(settlements)
            for place, created, crashes, otherwise in reply.answer.settled:
                settlement = settlements[place - 1]
                record = outbox_codec.settled_record(
                    settlement, created, crashes, otherwise, reply.answer.now
                )
                records[place - 1] = record
                if record.state not in UNSETTLED_STATES:
                    self._tell_end(record)
            return records

    # --- turns ---

    async def turn(
        self,
        bot: BotId,
        chat_id: ChatId,
        family: Family,
        cost: int,
        priority: Priority = Priority.HIGH,
        *,
        paid: bool = False,
        max_wait: float | None = None,
    ) -> Turn:
        give_up = None if max_wait is None else self._clock.monotonic() + max_wait
        left, ask, failed_at = max_wait, self._turns.turn, math.inf
        while not self._away.for_long and self._clock.monotonic() - failed_at < OUTAGE_AFTER:
            try:
                return await ask(bot, chat_id, family, cost, priority, paid=paid, max_wait=left)
            except (
                TurnLostError
            ):  # it asks anew, if there is time: Redis is there, and nobody else may grant it
                if give_up is not None and self._clock.monotonic() >= give_up:
                    raise TimeoutError from None
            except StoreAwayError:
                failed_at = min(failed_at, self._clock.monotonic())
                await self._clock.sleep(RETRY_EVERY)
            left = None if give_up is None else max(0.0, give_up - self._clock.monotonic())
            if left == 0:
                break
        return await self._away.turn(bot, chat_id, family, cost, priority, paid=paid, max_wait=left)

    async def end_turn(self, turn: Turn, outcome: Outcome, age: float = 0.0) -> None:
        if turn.token < 0:
            await self._away.end_turn(turn, outcome, age)
        else:
            await self._turns.end(turn, outcome, age)

    async def wait_for(self, bot: BotId, chat_id: ChatId, family: Family, cost: int) -> float:
        asked = {"bot": str(bot), "chat": str(chat_id), "kind": self._rules.kind(family), "cost": cost}
        wait: float = (await self._run("wait_for", encode(asked))).answer.wait
        return wait

    # --- operators ---

    async def cancel(self, ids: Iterable[TicketId]) -> int:
        named, spool = list(ids), self._away.spool
        spooled: set[TicketId] = set()
        if spool is not None and len(spool):
            spooled = await spool.cancel(named)
        try:
            # What was spooled may have reached Redis all the same, if only the answer was lost.
            found = await self._count("cancel", named)
        except StoreAwayError:
            if not spooled.issuperset(named):
                raise
            found = 0
        return max(found, len(spooled))

    async def replay(self, ids: Iterable[TicketId]) -> int:
        return await self._count("replay", ids)

    async def drop(self, ids: Iterable[TicketId]) -> int:
        return await self._count("drop", ids)

    async def _count(self, step: str, ids: Iterable[TicketId]) -> int:
        named, count = list(dict.fromkeys(ids)), 0
        for first in range(0, len(named), IDS_PER_STEP):
            count += (await self._run(step, *named[first : first + IDS_PER_STEP])).answer.count
        return count

    async def pause(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        await self._run("pause", bot, "" if chat_id is None else str(chat_id), 1)

    async def resume(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        await self._run("pause", bot, "" if chat_id is None else str(chat_id), 0)

    async def find(self, ticket: TicketId) -> Record | None:
        spool = self._away.spool
        if spool is not None and len(spool) and (message := await spool.find(ticket)) is not None:
            return Record(message=message, state=State.QUEUED, created_at=self._clock.now())
        reply = await self._wake("find", ticket)
        found = reply.records(reply.answer.found)
        return found[0] if found else None

    async def _wake(self, step: str, *args: Argument) -> OutboxReply:
        """A step that looks, after everything that is due has acted."""
        reply = await self._run(step, *args)
        while reply.answer.more:
            reply = await self._run(step, *args)
        return reply

    async def settled(self, ticket: TicketId) -> Record:
        record = await self.find(ticket)
        if record is None:
            raise LookupError(f"no message {ticket} is known: it was never put, or ended too long ago")
        return record if record.state not in UNSETTLED_STATES else await self._watching.end_of(ticket)

    async def _look(self, tickets: list[TicketId]) -> tuple[list[Record], float | None]:
        """Those that have come to an end, and in how many seconds something is due."""
        reply = await self._wake("find", *tickets)
        ended = [told for told in reply.answer.found if told.state not in UNSETTLED_STATES]
        return reply.records(ended), reply.answer.delay

    async def why(self, ticket: TicketId) -> Why | None:
        facts = (await self._wake("why", ticket)).answer.why
        return None if facts is None else explain(facts)

    async def drained(self, bot: BotId | None = None) -> None:
        while self._away.takes_puts or await self._left(bot):
            await self._watching.pause()

    async def _left(self, bot: BotId | None) -> int:
        counts = await self._counts()
        if bot is not None:
            return counts.get(f"{OPEN_COUNT_PREFIX}{bot}", 0)
        return sum(count for name, count in counts.items() if name.startswith(OPEN_COUNT_PREFIX))

    async def dead(
        self,
        *,
        bot: BotId | None = None,
        chat_id: ChatId | None = None,
        reason: str | None = None,
        states: frozenset[State] = DEAD_LETTER_STATES,
        limit: int = 100,
    ) -> list[Record]:
        found: list[Record] = []
        async for record in self._letters():
            message = record.message
            if (
                record.state in states
                and bot in {None, message.bot}
                and chat_id in {None, message.chat_id}
                and reason in {None, record.reason}
            ):
                found.append(record)
            if len(found) >= limit:
                break
        return found[:limit]

    async def _letters(self) -> AsyncIterator[Record]:
        for first in itertools.count(0, DEAD_LETTERS_PER_STEP):
            reply = await self._wake("dead_letters", first, DEAD_LETTERS_PER_STEP)
            for told in reply.answer.found:
                yield reply.record(told)
            if len(reply.answer.found) < DEAD_LETTERS_PER_STEP:
                return

    async def records(
        self,
        *,
        bot: BotId | None = None,
        chat_id: ChatId | None = None,
        states: frozenset[State] = frozenset(State),
        reason: str | None = None,
        before: float | None = None,
        limit: int = 100,
    ) -> list[Record]:
        asked = {
            "bot": None if bot is None else str(bot),
            "chat": None if chat_id is None else str(chat_id),
            "states": {state.value: True for state in states},
            "reason": reason,
            "before": before,
        }
        await self._wake("stats")
        found = {told.id: (told.number, reply, told) async for reply, told in self._scan(asked)}
        oldest = sorted(found.values(), key=lambda one: one[0])[:limit]
        return [reply.record(told) for _, reply, told in oldest]

    async def tally(self, bot: BotId, dedup_prefix: str) -> dict[tuple[State, str | None], int]:
        asked = {"bot": str(bot), "dedup": f"{bot}/{dedup_prefix}", "bare": True}
        await self._wake("stats")
        states = {told.id: (told.state, told.reason) async for _, told in self._scan(asked)}
        return Counter(states.values())

    async def forget(self, chat_id: ChatId, bot: BotId | None = None) -> int:
        asked = {"chat": str(chat_id), "bot": None if bot is None else str(bot), "bare": True}
        return await self._count("forget", [told.id async for _, told in self._scan(asked)])

    async def _scan(self, asked: dict[str, Any]) -> AsyncIterator[tuple[OutboxReply, ReportedMessage]]:
        """In no order; one may come twice. It takes many short steps, so that nobody has to wait for it."""
        wanted = encode({name: value for name, value in asked.items() if value is not None})
        cursor = "0"
        while True:
            reply = await self._run("scan", cursor, wanted)
            for told in reply.answer.found:
                yield reply, told
            cursor = reply.answer.cursor
            if cursor == "0":
                return

    async def learned(self) -> dict[tuple[BotId, ChatId | None], Rate]:
        fields: dict[bytes, bytes] = await self.link.command("HGETALL", self.link.key("learned"))
        learned: dict[tuple[BotId, ChatId | None], Rate] = {}
        for place, rate in fields.items():
            bot, _, chat = place.decode().partition("/")
            count, _, seconds = rate.decode().partition("/")
            key = (BotId(int(bot)), outbox_codec.parse_chat_id(chat) if chat else None)
            learned[key] = Rate(int(count), float(seconds))
        return learned

    async def stats(self) -> OutboxStats:
        counts = await self._counts()
        known = {name: count for name, count in counts.items() if name in OutboxStats.__struct_fields__}
        return OutboxStats(**known, spooled=self.health().spooled)

    async def _counts(self) -> dict[str, int]:
        counts = (await self._wake("stats")).answer.counts
        return counts if isinstance(counts, dict) else {}
