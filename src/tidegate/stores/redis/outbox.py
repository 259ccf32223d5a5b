"""The outbox in Redis: any number of processes put, claim and settle under the same limits."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.delivery.sender import LATE_AFTER, SILENCE_AFTER
from tidegate.errors import StoreAwayError, StoreError
from tidegate.events import EventStream
from tidegate.model import (
    BotId,
    ChatId,
    Claim,
    Dead,
    Message,
    NotSent,
    Outcome,
    Priority,
    Record,
    Settlement,
    Ticket,
)
from tidegate.outbox.limit_states import closure_notes
from tidegate.outbox.port import Outbox, StoreHealth, Turn
from tidegate.outbox.transitions import UNREADABLE, UNSETTLED_STATES
from tidegate.pacing.rules import Family, Rules
from tidegate.stores.message_codec import encode, report_unreadable
from tidegate.stores.redis import outbox_codec
from tidegate.stores.redis.connection import Argument, RedisConnection
from tidegate.stores.redis.fallback import OUTAGE_AFTER, OutboxFallback
from tidegate.stores.redis.operator import RedisOperator, tell_health
from tidegate.stores.redis.outbox_codec import OutboxReply, UnreadableClaim
from tidegate.stores.redis.spool import Spool
from tidegate.stores.redis.turns import GRANT_USABLE_FOR, RedisTurns, TurnLostError
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate")

MESSAGES_PER_STEP: Final = 250  # claimed or settled in one step: Redis is for others too
SETTLE_RETRIED_FOR: Final = 10.0  # seconds for which a settlement is repeated while Redis is away
YIELD_FOR: Final = 0.1  # seconds for workers that serve the bots whose messages wait
RETRY_EVERY: Final = 0.2  # seconds, while Redis is away

# Seconds from the grant of a call until Telegram has counted it. A turn is used within GRANT_USABLE_FOR of
# the step that granted it, and its request is written within LATE_AFTER of that, or not at all (a message
# needs LATE_AFTER alone). SILENCE_AFTER later its slots cool in normal operation, too, answered or not.
# All grants that Redis has forgotten were given before its restart was noted. So W plus this after it, no
# forgotten call is in a window of W seconds that a new call can be in. (An upload is on the wire for as
# long as its bytes move: it has no such bound, and is not covered.)
LONGEST_CALL: Final = GRANT_USABLE_FOR + LATE_AFTER + SILENCE_AFTER


class RedisOutbox(RedisOperator, Outbox):
    """Keeps settled messages for `keep` seconds, or for their dedup lifetime if that is longer.

    With a spool, puts are accepted while Redis is away. Direct calls go on without it in any case.
    """

    def __init__(
        self,
        connection: RedisConnection,
        clock: Clock,
        rules: Rules | None = None,
        *,
        lease: float = 30.0,
        keep: float = 600.0,
        events: EventStream | None = None,
        spool: Spool | None = None,
        longest_call: float = LONGEST_CALL,
    ) -> None:
        super().__init__(connection, clock, events)
        self._rules = rules or Rules()
        self._terms = outbox_codec.script_terms(
            connection.me,
            self._rules,
            lease=lease,
            keep=keep,
            longest_wait=connection.longest_wait,
            longest_call=longest_call,
        )
        self.serves: Callable[[], Iterable[BotId]] | None = None  # the bots that it can send for; None: all
        self._claiming = asyncio.Lock()
        self._last_claim = self._last_answered_claim = 0  # the numbers of these calls
        self._turns = RedisTurns(connection, clock, self._rules, lease, self._run)
        self._fallback = OutboxFallback(
            clock, self._rules, spool, probe=self._beat, put=self._put, longest_call=longest_call
        )
        connection.on_data_loss(self._data_lost)
        self._unsure: set[int] = set()  # tokens of settlements whose answers were lost
        self._heartbeat = BackgroundTasks()
        self.health_told: Callable[[], StoreHealth] = self.health  # to other processes, with each heartbeat
        self._has_told_something = False
        self._finishing = BackgroundTasks()  # steps that must reach Redis though their callers are gone

    async def open(self) -> None:
        """Raises StoreAwayError if Redis cannot be reached, unless there is a spool."""
        try:
            await self._reach()
            await self._fallback.open()
        except BaseException:
            await self.connection.close()
            raise
        if self.connection.heartbeat is not None:
            seconds = self.connection.heartbeat
            self._heartbeat.supervise(
                lambda: self._beat_every(seconds), "the heartbeat in Redis", self._clock
            )

    async def _reach(self) -> None:
        try:
            await self.connection.open(self._terms)
        except StoreAwayError:
            if self._fallback.spool is None:
                raise
            self._fallback.failed()

    async def start_sending(self) -> None:
        """Any number of processes may send."""

    async def close(self) -> None:
        await self._turns.close()
        await self._waiters.close()
        await self._heartbeat.stop()
        await self._finishing.join()
        await self._fallback.close()
        with suppress(StoreError):
            if not self._fallback.is_away:
                await self._store_counts()
                key, me = self.connection.key, self.connection.me
                await self.connection.command("ZREM", key("processes"), me)
                await self.connection.command("HDEL", key("claimed"), me)
        await self.connection.close()

    async def _beat_every(self, seconds: float) -> None:
        while True:
            with suppress(StoreError):
                await self._beat()
                await self._find_closed_bots()
                await self.own_limits()  # as other processes may have set them
                await self._tell_health()
                await self._store_counts()
            if self._fallback.spool is not None and not self._fallback.is_away:
                self._fallback.recover()  # another process may have left a file in the spool
            await self._clock.sleep(seconds)

    async def _beat(self) -> None:
        self._fallback.processes = (await self._run("heartbeat")).answer.count
        await self._turns.repeat_ends()

    async def _tell_health(self) -> None:
        health = self.health_told()
        says_something = bool(health.reasons or health.bots)
        if says_something or self._has_told_something:
            await tell_health(self.connection, health)
        self._has_told_something = says_something

    def _data_lost(self, noted: bool) -> None:  # noqa: FBT001  (a callback)
        self._fallback.data_lost(noted=noted)
        self._turns.look_again()  # those in line are lost, too: they are asked for again

    def health(self) -> StoreHealth:
        now = self._clock.monotonic()
        notes = closure_notes((bot, until - now) for bot, until in self._closed_bots.items())
        health = self._fallback.health().with_notes(notes)
        return health.with_problems([*self._heartbeat.problems(), *self._waiters.problems()])

    async def _run(self, step: str, *args: Argument) -> OutboxReply:
        asked_at = self._clock.monotonic()
        reply = await super()._run(step, *args)
        if reply.answer.granted:
            self._turns.granted(reply.answer.granted, asked_at)
        return reply

    async def put(self, messages: Sequence[Message]) -> list[Ticket]:
        if self._fallback.takes_puts:
            return await self._fallback.spool_messages(messages)
        try:
            return await self._put(messages)
        except StoreAwayError:
            if self._fallback.spool is None:
                raise
            return await self._fallback.spool_messages(messages)

    async def _put(self, messages: Sequence[Message]) -> list[Ticket]:
        if not messages:
            return []
        reply = await self._run("put", *outbox_codec.put_arguments(messages, self._rules))
        return [Ticket(ticket, fresh=bool(fresh)) for ticket, fresh in reply.answer.tickets]

    async def claim(self, room: int) -> list[Claim]:
        async with self._claiming:
            while True:
                asked_at = self._clock.monotonic()
                try:
                    reply = await self._claim_or_give_back(room)
                    claims, unreadable = reply.claims(asked_at)
                    if unreadable:
                        self._finish(self._bury(unreadable), "bury messages that cannot be read")
                    if claims:
                        return claims
                    if unreadable:
                        continue
                    if reply.answer.others:  # this worker was woken instead of one that serves their bots
                        await self._clock.sleep(YIELD_FOR)
                    else:
                        await self._sleep(reply.answer.delay)
                except StoreAwayError:
                    await self._clock.sleep(RETRY_EVERY)

    async def _claim_or_give_back(self, room: int) -> OutboxReply:
        """Claim. If the caller is cancelled meanwhile, the claims go back."""
        claiming = self._finishing.start(self._claim(room), "claim", awaited=True)
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # To its end, though the caller may be cancelled once more.
            await asyncio.shield(self._finish(self._give_back(claiming), "claims go back"))
            raise

    async def _claim(self, room: int) -> OutboxReply:
        self._last_claim += 1
        number, heard = self._last_claim, self._last_answered_claim
        reply = await self._run("claim", min(room, MESSAGES_PER_STEP), self._served_bots(), number, heard)
        self._last_answered_claim = number
        return reply

    def _served_bots(self) -> str:
        """The ids of the bots whose messages this process takes; empty for those of all bots."""
        return "" if self.serves is None else " ".join(map(str, self.serves())) or "0"

    async def _give_back(self, claiming: asyncio.Task[OutboxReply]) -> None:
        await asyncio.wait([claiming])
        if claiming.cancelled() or claiming.exception() is not None:
            return
        claims, unreadable = claiming.result().claims(self._clock.monotonic())
        await self._bury(unreadable)
        if claims:  # if this does not arrive, their leases run out
            unsent = [Settlement(claim, NotSent("given back")) for claim in claims]
            await self._run("settle", *outbox_codec.settle_arguments(unsent))

    async def _bury(self, unreadable: list[UnreadableClaim]) -> None:
        """Settle messages that cannot be decoded as dead. Their bytes stay in Redis for the operator."""
        if not unreadable:
            return
        bodies = {one.claim.token: one.body for one in unreadable}
        dead = [Settlement(one.claim, Dead(UNREADABLE, one.body.description)) for one in unreadable]
        for record, settlement in zip(await self._settle(dead, sent=False), dead, strict=True):
            if record is not None:
                message = record.message
                report_unreadable(message.id, message.bot, message.chat_id, bodies[settlement.claim.token])

    async def _sleep(self, delay: float | None) -> None:
        if delay is not None and delay <= 0:
            return  # more was due than one step may do
        try:
            await self.connection.wait(delay)
        except asyncio.CancelledError:
            self._finish(self._wake_another(), "another worker wakes")  # a wake-up may have been lost
            raise

    async def _wake_another(self) -> None:
        await self.connection.command("HSET", self.connection.key("meta"), "claimers", 0)
        await self.connection.command("LPUSH", self.connection.key("wake"), 1)

    def _finish(self, work: Awaitable[object], name: str) -> asyncio.Task[None]:
        """Do this in the background. If it fails, a lease runs out instead."""

        async def finish() -> None:
            try:
                await work
            except StoreError:
                log.debug("%s: this did not reach Redis, a lease runs out instead", name, exc_info=True)

        return self._finishing.start(finish(), name)

    async def cool(self, held: Iterable[Claim | Turn]) -> None:
        held = list(held)
        await self._fallback.cool([one for one in held if isinstance(one, Turn) and one.token < 0])
        known = [pair for one in held if (pair := self._id_and_token(one)) is not None]
        if known:
            with suppress(StoreAwayError):  # they are held until their leases run out
                await self._run("cool", encode(known))

    def _id_and_token(self, held: Claim | Turn) -> tuple[str, int] | None:
        """None for a turn that this process does not hold."""
        return self._turns.id_and_token(held) if isinstance(held, Turn) else (held.message.id, held.token)

    async def extend(self, claims: Iterable[Claim]) -> None:
        pairs = [(claim.message.id, claim.token) for claim in claims]
        if pairs:
            await self._run("extend", encode(pairs))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Record | None]:
        settling = self._finishing.start(self._settle_all(list(settlements)), "settle", awaited=True)
        return await asyncio.shield(settling)

    async def _settle_all(self, settlements: list[Settlement]) -> list[Record | None]:
        records: list[Record | None] = []
        for first in range(0, len(settlements), MESSAGES_PER_STEP):
            records += await self._settle(settlements[first : first + MESSAGES_PER_STEP])
        return records

    async def _settle(self, settlements: list[Settlement], *, sent: bool = True) -> list[Record | None]:
        """Repeated for a while if Redis is away: a message that was sent must not be sent again."""
        began, tokens = self._clock.monotonic(), {one.claim.token for one in settlements}
        while True:
            waited = self._clock.monotonic() - began
            aged = [msgspec.structs.replace(one, age=one.age + waited) for one in settlements]
            try:
                arguments = outbox_codec.settle_arguments(
                    aged if waited else settlements, self._unsure, sent=sent
                )
                reply = await self._run("settle", *arguments)
            except StoreAwayError:
                self._unsure.update(tokens)
                if waited > SETTLE_RETRIED_FOR:
                    raise
                await self._clock.sleep(RETRY_EVERY)
                continue
            self._unsure -= tokens
            return self._settled_records(settlements, reply)

    def _settled_records(self, settlements: list[Settlement], reply: OutboxReply) -> list[Record | None]:
        records: list[Record | None] = [None] * len(settlements)
        for place, created, crashes, otherwise in reply.answer.settled:
            settlement = settlements[place - 1]
            record = outbox_codec.settled_record(settlement, created, crashes, otherwise, reply.answer.now)
            records[place - 1] = record
            if record.state not in UNSETTLED_STATES:
                self._report_end(record)
        return records

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
        while not self._fallback.is_outage and self._clock.monotonic() - failed_at < OUTAGE_AFTER:
            try:
                return await ask(bot, chat_id, family, cost, priority, paid=paid, max_wait=left)
            except TurnLostError:  # Redis can be reached, so only it may grant this turn
                if give_up is not None and self._clock.monotonic() >= give_up:
                    raise TimeoutError from None
            except StoreAwayError:
                failed_at = min(failed_at, self._clock.monotonic())
                await self._clock.sleep(RETRY_EVERY)
            left = None if give_up is None else max(0.0, give_up - self._clock.monotonic())
            if left == 0:
                break
        return await self._fallback.turn(bot, chat_id, family, cost, priority, paid=paid, max_wait=left)

    async def end_turn(self, turn: Turn, outcome: Outcome, age: float = 0.0) -> None:
        if turn.token < 0:
            await self._fallback.end_turn(turn, outcome, age)
        else:
            await self._turns.end(turn, outcome, age)

    def note_call(self, bot: BotId, call: str, outcome: Outcome | None, *, in_lane: bool) -> None:
        self._calls.note(bot, call, outcome, in_lane=in_lane)

    async def _store_counts(self) -> None:
        for (bot, name), count in self._calls.take().items():
            try:
                await self.connection.command("HINCRBY", self.connection.key("counts"), name, count)
            except StoreError:  # it is counted with the next heartbeat
                self._calls.unstored[bot, name] += count
                continue
            with suppress(StoreError):  # not counted with its bot then, rather than twice for all
                field = f"{bot}/{name}"
                await self.connection.command("HINCRBY", self.connection.key("bot_counts"), field, count)

    async def wait_for(self, bot: BotId, chat_id: ChatId, family: Family, cost: int) -> float:
        request = {"bot": str(bot), "chat": str(chat_id), "kind": self._rules.kind(family), "cost": cost}
        wait: float = (await self._run("wait_for", encode(request))).answer.wait
        return wait
