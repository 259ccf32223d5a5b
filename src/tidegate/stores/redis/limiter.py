"""The limiter of an upstream API in Redis, shared by all processes with the same API and token."""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, NamedTuple

from tidegate.breaker import Breaker
from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.model import Rate
from tidegate.pacing.window import Window
from tidegate.stores.redis.connection import Argument, RedisConnection
from tidegate.stores.redis.scripts import LEARNED_CONSTANTS, load_scripts
from tidegate.tasks import BackgroundTasks
from tidegate.upstream.limiter import BACKGROUND_PATIENCE, Limiter, LimiterLines, LimiterTurn, as_rate
from tidegate.upstream.retry import LONGEST_RETRY_AFTER

log = logging.getLogger("tidegate.upstream")

LIMITER_TIMEOUT: Final = 1.0  # seconds that Redis has for a step
PROBE_TIMEOUT: Final = 0.25  # seconds, while Redis is away: nobody is served meanwhile
LIMITER_RETRY_AFTER: Final = 1.0  # seconds until Redis is asked again after it did not answer
SLOT_LEASE: Final = 30.0  # seconds: no request takes longer
LOCKOUT_REPEATED_AFTER: Final = 10.0  # seconds: a Redis that has forgotten a lockout learns of it by then
TICK: Final = 1e-6  # seconds


KEYS: Final = ("held", "cooling", "state")
SCRIPTS: Final = load_scripts(
    "limiter",
    KEYS,
    shared=("shared/learned",),
    constants=LEARNED_CONSTANTS | {"LONGEST_LOCKOUT": LONGEST_RETRY_AFTER},
)


class TakenSlots(NamedTuple):
    """Slots for callers that may go now, and the seconds until it is worth asking again."""

    foreground: list[str]
    background: list[str]
    wait: float


class SharedSlots:
    """The slots of one limit in Redis. Rate and lockout are as in the last answer.

    Slots settled while Redis is away are reported when it is back. So is everything that a Redis has
    forgotten, which its mark shows: slots in flight, slots that cool, and the lockout.
    """

    def __init__(
        self, rule: Rate, connection: RedisConnection, clock: Clock, name: str, *, lease: float
    ) -> None:
        self.rate = rule
        self.held: deque[str] = deque()  # by this process, the oldest first
        self.closed_until = 0.0
        # While it is open, Redis may not know what this process holds.
        self.breaker = Breaker(clock, retry_after=LIMITER_RETRY_AFTER, probe_seconds=LIMITER_TIMEOUT)
        self._rule, self._connection, self._clock = rule, connection, clock
        self._lease = lease + rule.seconds
        self._title = name
        self._keys = [connection.key(f"upstream:{name}:{part}") for part in KEYS]
        self._prefix, self._number = f"{connection.me}:{secrets.token_hex(4)}:", 0
        self._unreported: dict[str, float] = {}  # slots settled without Redis, and when each is free
        self._cooling: dict[str, float] = {}  # slots of this process, and when each is free
        self._mark = ""  # of the state in Redis that knows the slots of this process

    def configure(self, title: str, longest: float) -> None:
        self._title, self._lease = title, longest + self._rule.seconds

    def new(self) -> str:
        """Return the name of a slot that this process takes without Redis."""
        self._number += 1
        return f"{self._prefix}{self._number}"

    async def take(self, foreground: int, background: int) -> TakenSlots | None:
        """Return None if Redis cannot be asked now."""
        if self.breaker.blocks():
            return None
        first, self._number = self._number + 1, self._number + foreground + background
        names = [f"{self._prefix}{number}" for number in range(first, self._number + 1)]
        reply = await self._try("take", foreground, background, self._lease, self._prefix, first)
        if reply is None:
            # Redis may have given them although no answer came.
            self._unreported.update(dict.fromkeys(names, self._clock.monotonic()))
            return None
        middle, end = reply[0], reply[0] + reply[1]
        return TakenSlots(names[:middle], names[middle:end], float(reply[2]))

    async def settle(self, slot: str, *, answered: bool) -> None:
        now = self._clock.monotonic()
        free_at = now + (self.rate.seconds if answered else 0.0)
        if answered:
            self._cool(slot, free_at, now)
        if await self._step("settle", "answered" if answered else "never_left", slot) is None:
            self._unreported[slot] = free_at

    async def close(self, seconds: float, *, refused: bool) -> None:
        self.closed_until = max(self.closed_until, self._clock.monotonic() + seconds)
        await self._step("close", seconds, int(refused))

    def _cool(self, slot: str, free_at: float, now: float) -> None:
        while self._cooling and self._cooling[first := next(iter(self._cooling))] <= now:
            del self._cooling[first]
        self._cooling[slot] = free_at

    async def _step(self, step: str, *args: Argument) -> list[Any] | None:
        return None if self.breaker.blocks() else await self._try(step, *args)

    async def _try(self, step: str, *args: Argument) -> list[Any] | None:
        try:
            async with self._clock.timeout(PROBE_TIMEOUT if self.breaker.is_open else LIMITER_TIMEOUT):
                if self.breaker.is_open:
                    await self._adopt()
                reply = await self._run(step, *args)
                if self._forgot(reply):
                    await self._adopt()
                    reply = await self._run(step, *args)
        except (StoreError, TimeoutError) as error:
            self._failed(error)
            return None
        return reply

    def _forgot(self, reply: list[Any]) -> bool:
        """Return whether the state in Redis is new and does not know the slots of this process yet."""
        mark: str = reply[-1].decode()
        if self._mark in ("", mark):
            self._mark = mark
        return self._mark != mark

    async def _adopt(self) -> None:
        now = self._clock.monotonic()
        unreported = list(self._unreported)
        settled = {**self._cooling, **self._unreported}
        args = [arg for slot, free_at in settled.items() for arg in (slot, max(0.0, free_at - now))]
        closed = max(0.0, self.closed_until - now)
        reply = await self._run("adopt", self._lease, closed, len(self.held), *self.held, *args)
        for slot in unreported:
            self._unreported.pop(slot, None)
        if self.breaker.is_open:
            log.warning("the limit of %s is counted in Redis again", self._title)
        elif self.held or closed or any(map(float, args[1::2])):
            log.warning("Redis had forgotten the limit of %s: it was told what is known here", self._title)
        self._mark = reply[-1].decode()
        self.breaker.answered()

    async def _run(self, step: str, *args: Argument) -> list[Any]:
        rule = (self._rule.count, self._rule.seconds)
        reply: list[Any] = await self._connection.script(SCRIPTS[step], self._keys, *rule, self._mark, *args)
        count, seconds, closed = map(float, reply[-4:-1])
        self.rate = Rate(int(count), seconds)
        self.closed_until = max(self.closed_until, self._clock.monotonic() + closed)
        return reply

    def _failed(self, error: Exception) -> None:
        if self.breaker.failed():
            reason = str(error) or f"no answer within {LIMITER_TIMEOUT:g} s"
            text = (
                "the limit of %s is counted in this process alone, at half of it, until Redis answers: %s (if"
                " more than two processes share it, they may exceed it together)"
            )
            log.warning(text, self._title, reason)
        # No lease holds older slots any more.
        oldest = self._clock.monotonic() - self._lease
        self._unreported = {slot: at for slot, at in self._unreported.items() if at > oldest}


class RedisLimiter(Limiter):
    """All processes with the same `name` share the slots, the lockout and the learned rate.

    Callers of one process are served in order, with one question to Redis for all of them. While Redis
    cannot be asked, this process counts alone, at half the rate (one call at least), as the number of other
    processes is not known. The slots of a process that died come back after `lease` and a window: in no
    process may a request last longer. The caller opens and closes the connection.
    """

    shared = True

    def __init__(
        self, rate: Rate, connection: RedisConnection, clock: Clock, name: str, *, lease: float = SLOT_LEASE
    ) -> None:
        rate = as_rate(rate)
        self._clock = clock
        self._slots = SharedSlots(rate, connection, clock, name, lease=lease)
        self._local = Window.of(rate)  # what this process took, for the time without Redis
        self._lines = LimiterLines()
        self._wake = asyncio.Event()
        self._tasks = BackgroundTasks()
        self._asker: asyncio.Task[None] | None = None

    def configure(self, name: str, longest: float) -> None:
        self._slots.configure(name, longest)

    @property
    def rate(self) -> Rate:
        return self._slots.rate

    @property
    def closed_for(self) -> float:
        return max(0.0, self._slots.closed_until - self._clock.monotonic())

    async def take(self, *, background: bool = False) -> float:
        began = self._clock.monotonic()
        if not background and not self._lines.foreground:
            self._wake.set()  # all who wait are background: they may leave a slot free
        turn = self._lines.join(background=background)
        if self._asker is None:
            self._asker = self._tasks.start(self._serve(), "limiter serves")
        starving = (
            self._clock.call_later(BACKGROUND_PATIENCE, lambda: self._promote(turn)) if background else None
        )
        try:
            await self._lines.wait(turn, left=self._wake.set, spare=self._spare)
        finally:
            if starving is not None:
                starving.cancel()
        return self._clock.monotonic() - began

    def _promote(self, turn: LimiterTurn) -> None:
        if self._lines.promote(turn):
            self._wake.set()

    async def answered(self) -> None:
        self._local.answered(self._clock.monotonic())
        await self._settle(answered=True)

    async def give_back(self) -> None:
        self._local.give_back()
        await self._settle(answered=False)

    async def close_for(self, seconds: float, *, refused: bool) -> None:
        await self._finish(self._slots.close(seconds, refused=refused))

    def _spare(self) -> None:
        self._tasks.start(self.give_back(), "limiter gives back")

    async def _settle(self, *, answered: bool) -> None:
        slot = self._slots.held.popleft()

        async def settle() -> None:
            await self._slots.settle(slot, answered=answered)
            if not answered:
                self._wake.set()

        await self._finish(settle())

    async def _finish(self, step: Coroutine[Any, Any, None]) -> None:
        """To the end, even if the caller is cancelled: a slot that nobody settles is lost for a lease."""
        await asyncio.shield(self._tasks.start(step, "limiter", awaited=True))

    async def _serve(self) -> None:
        """While anybody waits: ask for all, serve those who may go, sleep as long as the answer says."""
        try:
            while self._lines:
                self._wake.clear()
                wait = await self._ask()
                if self._lines and wait > 0:
                    with suppress(TimeoutError):
                        async with self._clock.timeout(wait):
                            await self._wake.wait()
        finally:
            self._asker = None

    async def _ask(self) -> float:
        if self.closed_for > TICK:
            await self._slots.take(0, 0)  # for a Redis that has forgotten the lockout
            return max(TICK, min(self.closed_for, LOCKOUT_REPEATED_AFTER))
        most = self._slots.rate.count  # more cannot go at once
        foreground, background = min(self._lines.foreground, most), min(self._lines.background, most)
        taken = await self._slots.take(foreground, background)
        if taken is None:
            return self._serve_locally()
        self._let_go(taken.foreground, background=False)
        self._let_go(taken.background, background=True)
        # All that were asked for are gone, and somebody came meanwhile, whom the answer does not count.
        all_went = len(taken.foreground) == foreground
        anew = all_went and (self._lines.foreground or len(taken.background) == background)
        return 0.0 if anew else taken.wait

    def _let_go(self, slots: list[str], *, background: bool) -> None:
        for slot in slots:
            self._slots.held.append(slot)
            self._local.take()
            if not self._lines.call(background=background):
                self._spare()

    def _serve_locally(self) -> float:
        rate, now = self._slots.rate, self._clock.monotonic()
        self._local.resize(Rate(max(1, rate.count // 2), rate.seconds))
        while self._lines and self._wait(now) <= 0:
            self._let_go([self._slots.new()], background=not self._lines.foreground)
        return max(TICK, min(self._wait(now), self._slots.breaker.ask_in))

    def _wait(self, now: float) -> float:
        kept_free = 0 if self._lines.foreground or self._local.count == 1 else 1
        return max(self._slots.closed_until - now, self._local.wait(now, 1 + kept_free))
