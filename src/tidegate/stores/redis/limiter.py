"""The limiter of an upstream API in Redis, shared by all processes with the same API and token."""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, NamedTuple

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.model import Rate
from tidegate.pacing.window import Window
from tidegate.stores.redis.breaker import RedisBreaker
from tidegate.stores.redis.connection import Argument, RedisConnection
from tidegate.stores.redis.scripts import LEARNED_CONSTANTS, load_scripts
from tidegate.upstream.limiter import BACKGROUND_PATIENCE, Limiter, LimiterLines, LimiterTurn, as_rate
from tidegate.upstream.retry import LONGEST_RETRY_AFTER

log = logging.getLogger("tidegate.upstream")

LIMITER_TIMEOUT: Final = 1.0  # seconds that Redis has for a step
PROBE_TIMEOUT: Final = 0.25  # the same while it is away: nobody is served meanwhile
LIMITER_RETRY_AFTER: Final = 1.0  # seconds until Redis is asked again after it did not answer


KEYS: Final = ("held", "cooling", "state")
SCRIPTS: Final = load_scripts(
    "limiter",
    KEYS,
    shared=("shared/learned",),
    constants=LEARNED_CONSTANTS | {"LONGEST_LOCKOUT": LONGEST_RETRY_AFTER},
)


class TakenSlots(NamedTuple):
    """Slots for those who may go now, and the seconds until asking again is of use."""

    foreground: list[str]
    background: list[str]
    wait: float


class SharedSlots:
    """The rate and the lockout are those that Redis told last.

    A step that Redis does not take is owed: what was settled meanwhile is told when it is back. So is what a
    Redis has forgotten, which is seen by its mark: slots in flight, slots that cool, and the lockout.
    """

    def __init__(self, rule: Rate, link: RedisConnection, clock: Clock, name: str, *, lease: float) -> None:
        self.rate = rule
        self.held: deque[str] = deque()  # by this process, the oldest first
        self.closed_until = 0.0
        # While it is open, Redis may not know what this process holds.
        self.breaker = RedisBreaker(clock, retry_after=LIMITER_RETRY_AFTER, probe_seconds=LIMITER_TIMEOUT)
        self._rule, self._link, self._clock = rule, link, clock
        self._lease = lease + rule.seconds
        self._title = name
        self._keys = [link.key(f"upstream:{name}:{part}") for part in KEYS]
        self._prefix, self._number = f"{link.me}:{secrets.token_hex(4)}:", 0
        self._owed: dict[str, float] = {}  # slots that were settled without Redis, and when each is free
        self._cooling: dict[str, float] = {}  # of this process, and when each is free
        self._mark = ""  # of the state in Redis that knows it

    def introduce(self, title: str, longest: float) -> None:
        self._title, self._lease = title, longest + self._rule.seconds

    def new(self) -> str:
        """The name of a slot that this process takes alone."""
        self._number += 1
        return f"{self._prefix}{self._number}"

    async def take(self, foreground: int, background: int) -> TakenSlots | None:
        """None: Redis cannot be asked now."""
        if self.breaker.blocks():
            return None
        first, self._number = self._number + 1, self._number + foreground + background
        names = [f"{self._prefix}{number}" for number in range(first, self._number + 1)]
        reply = await self._try("take", foreground, background, self._lease, self._prefix, first)
        if reply is None:
            # It may have given them all the same.
            self._owed.update(dict.fromkeys(names, self._clock.monotonic()))
            return None
        middle, end = reply[0], reply[0] + reply[1]
        return TakenSlots(names[:middle], names[middle:end], float(reply[2]))

    async def settle(self, slot: str, *, answered: bool) -> None:
        now = self._clock.monotonic()
        free_at = now + (self.rate.seconds if answered else 0.0)
        if answered:
            self._cool(slot, free_at, now)
        if await self._step("settle", "answered" if answered else "never_left", slot) is None:
            self._owed[slot] = free_at

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
        """Whether this is another state than the one that was told. Until then none of it is believed."""
        mark: str = reply[-1].decode()
        if self._mark in ("", mark):
            self._mark = mark
        return self._mark != mark

    async def _adopt(self) -> None:
        now = self._clock.monotonic()
        owed = list(self._owed)
        settled = {**self._cooling, **self._owed}
        words = [word for slot, free_at in settled.items() for word in (slot, max(0.0, free_at - now))]
        closed = max(0.0, self.closed_until - now)
        reply = await self._run("adopt", self._lease, closed, len(self.held), *self.held, *words)
        for slot in owed:
            self._owed.pop(slot, None)
        if self.breaker.is_open:
            log.warning("the limit of %s is counted in Redis again", self._title)
        elif self.held or closed or any(map(float, words[1::2])):
            log.warning("Redis had forgotten the limit of %s: it was told what is known here", self._title)
        self._mark = reply[-1].decode()
        self.breaker.answered()

    async def _run(self, step: str, *args: Argument) -> list[Any]:
        rule = (self._rule.count, self._rule.seconds)
        reply: list[Any] = await self._link.script(SCRIPTS[step], self._keys, *rule, self._mark, *args)
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
        self._owed = {slot: at for slot, at in self._owed.items() if at > oldest}


SLOT_LEASE: Final = 30.0  # seconds: no request takes longer
LOCKOUT_REPEATED_AFTER: Final = (
    10.0  # seconds after which a Redis that has forgotten a lockout hears of it at the latest
)
TICK: Final = 1e-6


class RedisLimiter(Limiter):
    """All processes with the same `name` share the slots, the lockout and what was learned of the rate.

    Who waits in one process goes in his order, with one question to Redis for all of them. While Redis
    cannot be asked, this process counts alone, at half the rate (one call at least): how many others do so is
    not known. The slots of a process that died come back after `lease` and a window: in no process may a
    request last longer. The link is opened and closed by whoever gave it.
    """

    shared = True

    def __init__(
        self, rate: Rate, link: RedisConnection, clock: Clock, name: str, *, lease: float = SLOT_LEASE
    ) -> None:
        rate = as_rate(rate)
        self._clock = clock
        self._slots = SharedSlots(rate, link, clock, name, lease=lease)
        self._alone = Window.of(rate)  # what this process took, for when it is alone
        self._lines = LimiterLines()
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asker: asyncio.Task[None] | None = None

    def introduce(self, name: str, longest: float) -> None:
        self._slots.introduce(name, longest)

    @property
    def rate(self) -> Rate:
        return self._slots.rate

    @property
    def closed_for(self) -> float:
        return max(0.0, self._slots.closed_until - self._clock.monotonic())

    async def take(self, *, background: bool = False) -> float:
        began = self._clock.monotonic()
        if not background and not self._lines.foreground:
            self._wake.set()  # those who wait are background: there may be a slot that they leave free
        turn = self._lines.join(background=background)
        if self._asker is None:
            self._asker = self._start(self._serve())
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
        self._alone.answered(self._clock.monotonic())
        await self._settle(answered=True)

    async def give_back(self) -> None:
        self._alone.give_back()
        await self._settle(answered=False)

    async def close_for(self, seconds: float, *, refused: bool) -> None:
        await asyncio.shield(self._start(self._slots.close(seconds, refused=refused)))

    def _spare(self) -> None:
        self._start(self.give_back())

    async def _settle(self, *, answered: bool) -> None:
        """To the end, even if the caller is cancelled: a slot that nobody settles is lost for a lease."""
        slot = self._slots.held.popleft()
        await asyncio.shield(self._start(self._told(slot, answered=answered)))

    async def _told(self, slot: str, *, answered: bool) -> None:
        await self._slots.settle(slot, answered=answered)
        if not answered:
            self._wake.set()

    async def _serve(self) -> None:
        """While anybody waits: ask for all, let go who may, sleep as long as the answer says."""
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
            await self._slots.take(0, 0)  # tells a Redis that has forgotten it
            return max(TICK, min(self.closed_for, LOCKOUT_REPEATED_AFTER))
        most = self._slots.rate.count  # more cannot go at once
        foreground, background = min(self._lines.foreground, most), min(self._lines.background, most)
        taken = await self._slots.take(foreground, background)
        if taken is None:
            return self._serve_alone()
        self._let_go(taken.foreground, background=False)
        self._let_go(taken.background, background=True)
        # Somebody came meanwhile, and those before him are gone: the answer was not about him.
        all_went = len(taken.foreground) == foreground
        anew = all_went and (self._lines.foreground or len(taken.background) == background)
        return 0.0 if anew else taken.wait

    def _let_go(self, slots: list[str], *, background: bool) -> None:
        for slot in slots:
            self._slots.held.append(slot)
            self._alone.take()
            if not self._lines.call(background=background):
                self._spare()

    def _serve_alone(self) -> float:
        rate, now = self._slots.rate, self._clock.monotonic()
        self._alone.resize(Rate(max(1, rate.count // 2), rate.seconds))
        while self._lines and self._wait(now) <= 0:
            self._let_go([self._slots.new()], background=not self._lines.foreground)
        return max(TICK, min(self._wait(now), self._slots.breaker.ask_in))

    def _wait(self, now: float) -> float:
        kept_free = 0 if self._lines.foreground or self._alone.count == 1 else 1
        return max(self._slots.closed_until - now, self._alone.wait(now, 1 + kept_free))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="tidegate: limiter")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
