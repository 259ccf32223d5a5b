"""A limit counted in Redis: for an API and token that several processes use."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.model import Rate
from tidegate.outbox.redis.link import Link
from tidegate.pacing.window import Window
from tidegate.upstream.limiter.base import Limiter, as_rate
from tidegate.upstream.limiter.lines import STARVING, Lines, Turn
from tidegate.upstream.limiter.shared import SharedSlots

LEASE: Final = 30.0  # seconds: no request takes longer
TOLD_AGAIN: Final = 10.0  # seconds after which a Redis that has forgotten a lockout hears of it at the latest
TICK: Final = 1e-6


class RedisLimiter(Limiter):
    """All processes with the same `name` share the slots, the lockout and what was learned of the rate.

    Who waits in one process goes in his order, with one question to Redis for all of them. While Redis
    cannot be asked, this process counts alone, at half the rate (one call at least): how many others do so is
    not known. The slots of a process that died come back after `lease` and a window: in no process may a
    request last longer. The link is opened and closed by whoever gave it.
    """

    shared = True

    def __init__(self, rate: Rate, link: Link, clock: Clock, name: str, *, lease: float = LEASE) -> None:
        rate = as_rate(rate)
        self._clock = clock
        self._slots = SharedSlots(rate, link, clock, name, lease=lease)
        self._alone = Window.of(rate)  # what this process took, for when it is alone
        self._lines = Lines()
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
        starving = self._clock.call_later(STARVING, lambda: self._promote(turn)) if background else None
        try:
            await self._lines.wait(turn, left=self._wake.set, spare=self._spare)
        finally:
            if starving is not None:
                starving.cancel()
        return self._clock.monotonic() - began

    def _promote(self, turn: Turn) -> None:
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
            return max(TICK, min(self.closed_for, TOLD_AGAIN))
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
        back = (self._slots.away_until or now) - now
        return max(TICK, min(self._wait(now), back))

    def _wait(self, now: float) -> float:
        kept_free = 0 if self._lines.foreground or self._alone.count == 1 else 1
        return max(self._slots.closed_until - now, self._alone.wait(now, 1 + kept_free))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="tidegate: limiter")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
