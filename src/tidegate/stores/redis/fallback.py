"""The outbox while Redis is away: puts are spooled, direct calls are paced by this process alone."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from tidegate.breaker import Breaker
from tidegate.clock import Clock
from tidegate.errors import StoreAwayError, StoreError
from tidegate.model import BotId, BotLimits, ChatId, Message, Outcome, Priority, Rate, Ticket
from tidegate.outbox.port import StoreHealth, Turn
from tidegate.pacing.rules import Family, Rules, own_rules
from tidegate.stores.memory.outbox import MemoryOutbox
from tidegate.stores.redis.spool import Spool
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate")

OUTAGE_AFTER: Final = 1.0  # seconds without Redis before direct calls go on without it
PROBE_EVERY: Final = 0.5  # seconds
DRAIN_RETRY_AFTER: Final = 10.0  # seconds until a Redis that refused messages is tried again


class _DataLoss(NamedTuple):
    noted_at: float  # monotonic
    unsettled: int  # messages, as far as this process knew
    age: float  # seconds that this was known for

    def __str__(self) -> str:
        return (
            f"Redis has lost the data of the store: {self.unsettled} messages were known not to be settled"
            f" at the last step of this process, {self.age:.1f} s before"
        )


class OutboxFallback:
    """`probe` is one step that shows whether Redis is back; `put` is the outbox's own."""

    def __init__(
        self,
        clock: Clock,
        rules: Rules,
        spool: Spool | None,
        *,
        probe: Callable[[], Awaitable[object]],
        put: Callable[[list[Message]], Awaitable[object]],
        longest_call: float,
    ) -> None:
        self._clock, self._rules, self.spool = clock, rules, spool
        self._probe, self._put = probe, put
        self._breaker = Breaker(clock, retry_after=PROBE_EVERY, probe_seconds=0.0)
        self._recovery = BackgroundTasks()  # one task at most
        self._local: MemoryOutbox | None = None  # paces direct calls without Redis
        self.processes = 1  # that share the limits, as far as is known
        self._own: dict[BotId, BotLimits] = {}  # limits of single bots, as Redis had them
        self._longest_call = longest_call
        self._unsettled, self._counted_at = 0, clock.monotonic()  # messages, as the last step found them
        self._loss: _DataLoss | None = None  # the latest

    async def open(self) -> None:
        if self.spool is not None:
            await self.spool.open()
            if len(self.spool):
                self.recover()

    async def close(self) -> None:
        await self._recovery.stop()
        if self.spool is not None:
            await self.spool.close()
        if self._local is not None:
            await self._local.close()

    @property
    def is_away(self) -> bool:
        return self._breaker.is_open

    @property
    def is_outage(self) -> bool:
        """Away for longer than a broken connection, or a process that was frozen for a while, explains."""
        return self._breaker.open_for > OUTAGE_AFTER

    def health(self) -> StoreHealth:
        spooled = 0 if self.spool is None else len(self.spool)
        reasons = []
        if self.is_away:
            away = self._breaker.open_for
            reasons.append(
                f"Redis cannot be reached for {away:.0f} s: this process paces its direct calls alone"
            )
        if spooled:
            wait = "1 message waits" if spooled == 1 else f"{spooled} messages wait"
            reasons.append(f"{wait} in the spool of this machine")
        if self.spool is not None and self.spool.set_aside:
            reasons.append(
                f"{self.spool.set_aside} messages in the spool of this machine cannot be decoded:"
                f" they are kept in {self.spool.folder}"
            )
        if held := self._held_for():
            reasons.append(f"{self._loss}: some limits are not used for another {held:.0f} s")
        ready = not self.is_away and not held
        health = StoreHealth(ready=ready, spooled=spooled, reasons=tuple(reasons))
        return health.with_problems(self._recovery.problems())

    def _held_for(self) -> float:
        """Seconds until every limit may be used again after the loss of all data."""
        if self._loss is None:
            return 0.0
        all_rules = [self._rules, *(own_rules(self._rules, own) for own in self._own.values())]
        held = self._longest_call + max(rules.longest for rules in all_rules)
        return max(0.0, self._loss.noted_at + held - self._clock.monotonic())

    def know_limits(self, own: Mapping[BotId, BotLimits]) -> None:
        """Redis has these limits for single bots."""
        before, self._own = self._own, dict(own)
        if self._local is not None:
            for bot in {*before, *own}:
                self._share_limits(self._local, bot)

    def _share_limits(self, local: MemoryOutbox, bot: BotId) -> None:
        """Let this process have its share of a bot's own limits."""
        own = self._own.get(bot, BotLimits())
        if own.bot is not None:
            own = msgspec.structs.replace(own, bot=_share_of_rate(own.bot, max(1, self.processes)))
        local.schedule.set_limits(bot, own, self._clock.monotonic())

    def counted(self, unsettled: int) -> None:
        """A step has found so many messages that are not settled."""
        self._unsettled, self._counted_at = unsettled, self._clock.monotonic()

    def data_lost(self, *, noted: bool) -> None:
        """All data in Redis is gone. `noted`: another process has noted it before."""
        now = self._clock.monotonic()
        self._loss = _DataLoss(now, self._unsettled, now - self._counted_at)
        if noted:
            log.warning("%s. Another process has noted this before", self._loss)
        else:
            log.error(
                "%s (FLUSHDB, or a restart without persistence). They are lost, apart from those that are on"
                " their way to Telegram. Each limit is unused for %.0f s and its own window, then others go",
                self._loss,
                self._longest_call,
            )

    def failed(self) -> None:
        if self._breaker.failed():
            log.warning("Redis cannot be reached: puts are spooled, pacing is best effort until it is back")
        self.recover()

    def answered(self) -> None:
        if (lasted := self._breaker.answered()) is not None:
            log.warning("Redis is back after %.1f s", lasted)

    def recover(self) -> None:
        """Try Redis in the background until it answers, then drain the spool."""
        if not self._recovery:
            self._recovery.supervise(self._recover, "what waits for Redis to be back", self._clock)

    async def _recover(self) -> None:
        while True:
            try:
                await self._probe()
                if self.spool is not None:
                    await self.spool.drain(self._put)
            except StoreAwayError:
                await self._clock.sleep(PROBE_EVERY)
            except StoreError as error:
                log.warning("the spool cannot be drained now: %s", error)
                await self._clock.sleep(DRAIN_RETRY_AFTER)
            else:
                return

    @property
    def takes_puts(self) -> bool:
        """Return whether new messages are spooled: Redis is away, or older messages are in the spool."""
        return self.spool is not None and (self.is_away or len(self.spool) > 0)

    async def spool_messages(self, messages: Sequence[Message]) -> list[Ticket]:
        assert self.spool is not None  # noqa: S101  (the caller has looked)
        await self.spool.add(messages)
        self.recover()
        return [Ticket(message.id) for message in messages]

    async def turn(
        self,
        bot: BotId,
        chat_id: ChatId,
        family: Family,
        cost: int,
        priority: Priority,
        *,
        paid: bool,
        max_wait: float | None,
    ) -> Turn:
        """Best effort, as the calls of other processes are not known. The token of the turn is negative."""
        if self._local is None:
            self._local = MemoryOutbox(self._clock, share_of_rules(self._rules, self.processes))
            for known in self._own:
                self._share_limits(self._local, known)
        turn = await self._local.turn(bot, chat_id, family, cost, priority, paid=paid, max_wait=max_wait)
        return Turn(bot, chat_id, -turn.token)

    async def end_turn(self, turn: Turn, outcome: Outcome, age: float) -> None:
        if self._local is not None:
            await self._local.end_turn(Turn(turn.bot, turn.chat_id, -turn.token), outcome, age)

    async def cool(self, turns: Sequence[Turn]) -> None:
        if self._local is not None and turns:
            await self._local.cool([Turn(turn.bot, turn.chat_id, -turn.token) for turn in turns])


def share_of_rules(rules: Rules, processes: int) -> Rules:
    """Return this process's share of a bot's limits. A chat is mostly served by one process."""
    parts = max(1, processes)
    bot, paid = _share_of_rate(rules.bot, parts), _share_of_rate(rules.paid, parts)
    return msgspec.structs.replace(rules, bot=bot, paid=paid)


def _share_of_rate(rate: Rate, parts: int) -> Rate:
    if rate.count >= parts:
        return Rate(rate.count // parts, rate.seconds)
    return Rate(1, rate.seconds * parts / rate.count)
