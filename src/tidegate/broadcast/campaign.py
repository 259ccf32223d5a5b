"""A running broadcast: its progress, and how its owner pauses, resumes or cancels it."""

import asyncio
import logging
import math
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final

from tidegate.broadcast.audience import Audience, check_audience, size_of
from tidegate.broadcast.feeder import Feeder, Put
from tidegate.broadcast.message import MessageWriter
from tidegate.broadcast.progress import CampaignState, Progress, RefusalCounter
from tidegate.broadcast.tracker import GoneNotifier, MessageTracker, OnDead, Tally
from tidegate.clock import Clock
from tidegate.errors import BadInputError, ClosedError, StoreError
from tidegate.model import BotId, Rate
from tidegate.outbox.port import Outbox
from tidegate.pacing.rules import Rules

REMEMBER_SECONDS: Final = 30 * 86_400.0  # seconds
AHEAD_SECONDS: Final = 5.0
FEWEST_AHEAD, MOST_AHEAD = 100, 1_000  # that are chosen where nobody says
_NAME = re.compile(r"[\w.-]{1,64}")


def check_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInputError(
            f"{name!r} is no name of a broadcast: write up to 64 letters, digits, dots and dashes"
        )
    return name


def ahead_of(ahead: object, rate: Rate) -> int:
    """How many may wait in the outbox at once: what was asked for, or else some seconds' worth."""
    if ahead is None:
        soon = math.ceil(AHEAD_SECONDS * rate.count / rate.seconds)
        return min(MOST_AHEAD, max(FEWEST_AHEAD, soon))
    if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 1:
        raise BadInputError(f"ahead is {ahead!r}: give how many messages may wait at once, 1 or more")
    return ahead


def check_remember(remember: float, total: int | None, rate: Rate) -> None:
    """What is forgotten before the end is not known to the call that goes on after a restart."""
    if not 0 < remember < math.inf:
        raise BadInputError("remember is the seconds in which nobody gets it twice: give more than 0")
    takes = (total or 0) * rate.seconds / rate.count
    if remember < 2 * takes:
        raise BadInputError(
            f"remember is {remember:,.0f} s, too short: sending takes {takes:,.0f} s or more; give twice that"
        )


log = logging.getLogger("tidegate.broadcast")

PROGRESS_SECONDS: Final = 1.0  # seconds


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
        letters: MessageWriter,
        *,
        put: Put,
        outbox: Outbox,
        clock: Clock,
        rate: Rate,
        ahead: int | None = None,
        remember: float = REMEMBER_SECONDS,
        total: int | None = None,
        on_dead: OnDead | None = None,
    ) -> None:
        self.name: Final = check_name(name)
        self._audience = check_audience(audience)
        self._total = size_of(audience) if total is None else total
        ahead = ahead_of(ahead, rate)
        check_remember(remember, self._total, rate)
        self._clock = clock
        self._refusals = RefusalCounter(outbox, clock)
        self._tally = Tally(name, clock)
        self._gone = GoneNotifier(on_dead, name)
        self._line = MessageTracker(outbox, clock, self._tally, self._gone, ahead=ahead)
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
        self._stage: CampaignState = "running"
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
                async with self._clock.timeout(PROGRESS_SECONDS):
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

    async def _end(self, how: CampaignState) -> None:
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


class RunningCampaigns:
    """Owns those that run, and ends them with the gate."""

    def __init__(self) -> None:
        self._running: dict[tuple[BotId, str], Campaign] = {}

    async def start(self, bot: BotId, campaign: Campaign) -> Campaign:
        """Raises BadInputError if one of this name runs already for the bot."""
        self._running = {key: known for key, known in self._running.items() if not known.has_ended}
        key = (bot, campaign.name)
        if key in self._running:
            raise BadInputError(
                f"broadcast {campaign.name!r} runs already: wait for its end, or give another name"
            )
        self._running[key] = campaign
        await campaign.start()
        return campaign

    async def close(self) -> None:
        await asyncio.gather(*(campaign.close() for campaign in self._running.values()))


async def limit_for(bot: BotId, fields: Mapping[str, Any], rules: Rules, outbox: Outbox) -> Rate:
    """The limit of the bot as things stand, which is what a broadcast runs into.

    That of the rules while the store cannot say what was learned: it may still take messages.
    """
    if fields.get("allow_paid_broadcast") is True:
        return rules.paid
    try:
        learned = await outbox.learned()
    except StoreError:
        return rules.bot
    return learned.get((bot, None), rules.bot)
