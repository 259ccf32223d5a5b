"""A broadcast that runs: what its owner sees of it, and can do to it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from tidegate.broadcast.feeder import Feeder, Put
from tidegate.broadcast.gone import Gone, OnDead
from tidegate.broadcast.letters import Letters
from tidegate.broadcast.line import Line
from tidegate.broadcast.people import Audience, check_audience, size_of
from tidegate.broadcast.progress import Progress, Stage
from tidegate.broadcast.refusals import Refusals
from tidegate.broadcast.tally import Tally
from tidegate.broadcast.terms import REMEMBER, ahead_of, check_name, check_remember
from tidegate.clock import Clock
from tidegate.errors import ClosedError
from tidegate.model import Rate
from tidegate.outbox.base import Outbox

log = logging.getLogger("tidegate.broadcast")

LOOK_EVERY: Final = 1.0  # seconds


class Campaign:
    """Goes on by itself, in its own task, until everybody in the audience was dealt with.

    At most `ahead` of its messages wait in the outbox at any time. `rate` is the limit that it will meet.
    Whoever had it within `remember` seconds under this name does not get it again. `total`: how many rows
    there are, if the audience does not say.
    """

    def __init__(
        self,
        name: str,
        audience: Audience,
        letters: Letters,
        *,
        put: Put,
        outbox: Outbox,
        clock: Clock,
        rate: Rate,
        ahead: int | None = None,
        remember: float = REMEMBER,
        total: int | None = None,
        on_dead: OnDead | None = None,
    ) -> None:
        self.name: Final = check_name(name)
        self._audience = check_audience(audience)
        self._total = size_of(audience) if total is None else total
        ahead = ahead_of(ahead, rate)
        check_remember(remember, self._total, rate)
        self._clock = clock
        self._refusals = Refusals(outbox, clock)
        self._tally = Tally(name, clock)
        self._gone = Gone(on_dead, name)
        self._line = Line(outbox, clock, self._tally, self._gone, ahead=ahead)
        self._feeder = Feeder(
            name,
            audience,
            letters,
            put=put,
            line=self._line,
            tally=self._tally,
            clock=clock,
            ahead=ahead,
            remember=remember,
        )
        self._stage: Stage = "running"
        self._error: BaseException | None = None
        self._feeding: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._done = asyncio.Event()
        self._last: Progress | None = None

    async def start(self) -> None:
        """Returns as soon as a row was found fit. Raises what stops it before that: nothing was sent then."""
        self._feeding = asyncio.create_task(self._feed(), name=f"tidegate: broadcast {self.name}")
        self._feeding.add_done_callback(lambda _: self._feeder.begun.set())
        self._running = asyncio.create_task(self._run(self._feeding), name=f"tidegate: end of {self.name}")
        try:
            await self._feeder.begun.wait()
            if not self._tally.found_one:
                await self.finished()
        except BaseException:
            await self.close()
            raise

    @property
    def has_ended(self) -> bool:
        return self._done.is_set()

    @property
    def progress(self) -> Progress:
        """How it stands now."""
        return self._last or self._progress()

    async def watch(self) -> AsyncIterator[Progress]:
        """How it stands, now and each second; the last one is that of its end, however it ended."""
        while not self._done.is_set():
            yield self.progress
            with suppress(TimeoutError):
                async with self._clock.timeout(LOOK_EVERY):
                    await self._done.wait()
        yield self.progress

    async def finished(self) -> Progress:
        """Wait for its end. Raises what made it fail, or ClosedError if the gate was closed before it."""
        await self._done.wait()
        if self._error is not None:
            raise self._error
        return self.progress

    async def pause(self) -> None:
        """Put no more. What is in line already still goes: `ahead` messages at most, some seconds."""
        await self._feeder.pause()

    async def resume(self) -> None:
        """Go on after a pause."""
        self._feeder.resume()

    async def cancel(self) -> None:
        """End it, and take back what waits in line; what is being sent at this moment still goes.

        Another call of the same name goes on with everybody who did not get it.
        """
        if self.has_ended:
            return
        if self._stage == "running":
            self._stage = "cancelled"
        await self._stop_feeding()
        await self._line.take_back()

    async def close(self) -> None:
        """The gate closes. What was accepted stays in the store; the same call goes on from there."""
        if self.has_ended or self._running is None:
            return
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        if self.has_ended:
            return
        await self._stop_feeding()
        await self._line.close()
        self._error = self._error or ClosedError(
            f"the gate was closed while broadcast {self.name!r} ran: call it again, and it goes on"
        )
        await self._end("stopped")

    # --- inside ---

    async def _feed(self) -> None:
        await self._refusals.look()  # what was heard before it is not counted
        await self._feeder.run()

    async def _run(self, feeding: asyncio.Task[None]) -> None:
        looking = asyncio.create_task(self._refusals.follow(), name=f"tidegate: refusals of {self.name}")
        try:
            await self._until_empty(feeding)
            await self._end("finished")
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _until_empty(self, feeding: asyncio.Task[None]) -> None:
        await asyncio.wait([feeding])
        if not feeding.cancelled() and (error := feeding.exception()) is not None:
            self._stage, self._error = "failed", error
            if self._tally.found_one:  # else whoever starts it is told
                log.error("broadcast %s has failed, what it put still goes", self.name, exc_info=error)
        await self._line.empty()

    async def _stop_feeding(self) -> None:
        await self._feeder.close()
        if self._feeding is not None:
            self._feeding.cancel()
            await asyncio.gather(self._feeding, return_exceptions=True)

    async def _end(self, how: Stage) -> None:
        stage = how if self._stage == "running" else self._stage
        ended_at = self._clock.now()
        try:
            await self._refusals.look()
        finally:  # nothing that happens during that look makes it end in another way
            self._stage = stage
            self._last = self._progress(ended_at=ended_at)
            self._done.set()

    def _progress(self, ended_at: float | None = None) -> Progress:
        rate, stage = self._tally.pace.per_second(), self._stage
        if stage == "running" and self._feeder.is_paused:
            stage = "paused"
        return Progress(
            name=self.name,
            state=stage,
            **self._tally.report(),
            total=self._size(),
            unmarked=self._gone.failed,
            refused=self._refusals.count,
            rate=round(rate, 1),
            eta_seconds=self._eta(rate) if stage == "running" else None,
            ended_at=ended_at,
            trouble=str(self._error) if self._error is not None else self._feeder.trouble,
        )

    def _size(self) -> int | None:
        """Some audiences know it only once they are read."""
        if self._total is None:
            self._total = size_of(self._audience)
        return self._total

    def _eta(self, rate: float) -> float | None:
        total = self._size()
        if total is None or not rate:
            return None
        return round(max(0, total - self._tally["read"] + self._tally["waiting"]) / rate, 1)
