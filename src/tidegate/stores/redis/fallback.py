"""The outbox while Redis is away: puts are spooled, direct calls are paced by this process alone."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.errors import StoreAwayError, StoreError
from tidegate.model import BotId, ChatId, Message, Outcome, Priority, Rate, Ticket
from tidegate.outbox.port import StoreHealth, Turn
from tidegate.pacing.rules import Family, Rules
from tidegate.stores.memory.outbox import MemoryOutbox
from tidegate.stores.redis.breaker import RedisBreaker
from tidegate.stores.redis.spool import Spool

log = logging.getLogger("tidegate")

OUTAGE_AFTER: Final = 1.0  # seconds that it is away, before direct calls go on without it
DRAIN_RETRY_AFTER: Final = 10.0  # seconds until a full one is tried again
PROBE_EVERY: Final = 0.5  # seconds between two tries to reach it


class OutboxFallback:
    """`try_again` is one step that shows whether Redis is back; `put` is the store's own."""

    def __init__(
        self,
        clock: Clock,
        rules: Rules,
        spool: Spool | None,
        *,
        try_again: Callable[[], Awaitable[object]],
        put: Callable[[list[Message]], Awaitable[object]],
    ) -> None:
        self._clock, self._rules, self.spool = clock, rules, spool
        self._try_again, self._put = try_again, put
        self._breaker = RedisBreaker(clock, retry_after=PROBE_EVERY, probe_seconds=0.0)
        self._coming_back: asyncio.Task[None] | None = None
        self._alone: MemoryOutbox | None = None
        self.processes = 1  # that share the limits, as far as is known

    async def open(self) -> None:
        if self.spool is not None:
            await self.spool.open()
            if len(self.spool):
                self.come_back()

    async def close(self) -> None:
        if self._coming_back is not None:
            self._coming_back.cancel()
            await asyncio.gather(self._coming_back, return_exceptions=True)
        if self.spool is not None:
            await self.spool.close()
        if self._alone is not None:
            await self._alone.close()

    # --- whether it is away ---

    @property
    def is_away(self) -> bool:
        return self._breaker.is_open

    @property
    def for_long(self) -> bool:
        """Not just a connection that broke, or this process that was frozen for a while."""
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
            reasons.append(f"{spooled} messages wait in the spool of this machine")
        return StoreHealth(ready=not self.is_away, spooled=spooled, reasons=tuple(reasons))

    def failed(self) -> None:
        if self._breaker.failed():
            log.warning("Redis cannot be reached: puts are spooled, pacing is best effort until it is back")
        self.come_back()

    def answered(self) -> None:
        if (lasted := self._breaker.answered()) is not None:
            log.warning("Redis is back after %.1f s", lasted)

    def come_back(self) -> None:
        """See to it that Redis is tried until it answers, and that the spool is drained then."""
        if self._coming_back is None or self._coming_back.done():
            self._coming_back = asyncio.create_task(self._come_back(), name="tidegate: until Redis is back")

    async def _come_back(self) -> None:
        while True:
            try:
                await self._try_again()
                if self.spool is not None:
                    await self.spool.drain(self._put)
            except StoreAwayError:
                await self._clock.sleep(PROBE_EVERY)
            except StoreError as error:
                log.warning("the spool cannot be drained now: %s", error)
                await self._clock.sleep(DRAIN_RETRY_AFTER)
            else:
                return

    # --- messages ---

    @property
    def takes_puts(self) -> bool:
        """Whether what comes now has to stand behind what is spooled."""
        return self.spool is not None and (self.is_away or len(self.spool) > 0)

    async def keep(self, messages: Sequence[Message]) -> list[Ticket]:
        assert self.spool is not None  # noqa: S101  (the caller has looked)
        await self.spool.add(messages)
        self.come_back()
        return [Ticket(message.id) for message in messages]

    # --- turns ---

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
        """Best effort: nobody knows what the others send. Its token is below zero."""
        if self._alone is None:
            self._alone = MemoryOutbox(self._clock, share_of_rules(self._rules, self.processes))
        turn = await self._alone.turn(bot, chat_id, family, cost, priority, paid=paid, max_wait=max_wait)
        return Turn(bot, chat_id, -turn.token)

    async def end_turn(self, turn: Turn, outcome: Outcome, age: float) -> None:
        if self._alone is not None:
            await self._alone.end_turn(Turn(turn.bot, turn.chat_id, -turn.token), outcome, age)

    async def cool(self, turns: Sequence[Turn]) -> None:
        if self._alone is not None and turns:
            await self._alone.cool([Turn(turn.bot, turn.chat_id, -turn.token) for turn in turns])


def share_of_rules(rules: Rules, processes: int) -> Rules:
    """What one of several processes may use of a bot's limits. A chat is mostly served by one of them."""
    parts = max(1, processes)
    return msgspec.structs.replace(
        rules, bot=_share_of_rate(rules.bot, parts), paid=_share_of_rate(rules.paid, parts)
    )


def _share_of_rate(rate: Rate, parts: int) -> Rate:
    if rate.count >= parts:
        return Rate(rate.count // parts, rate.seconds)
    return Rate(1, rate.seconds * parts / rate.count)
