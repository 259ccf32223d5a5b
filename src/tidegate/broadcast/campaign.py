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
from tidegate.broadcast.forecast import check_count, seconds_to_send
from tidegate.broadcast.message import MessageWriter
from tidegate.broadcast.progress import Progress, RefusalCounter
from tidegate.broadcast.recorder import CampaignRecorder
from tidegate.broadcast.tracker import GoneNotifier, MessageTracker, OnDead, Tally
from tidegate.clock import Clock
from tidegate.errors import BadInputError, ClosedError, StoreError
from tidegate.handler_run import waiting_for_gate
from tidegate.model import BotId, BotLimits, Rate
from tidegate.outbox.campaigns import CampaignState, CampaignWish
from tidegate.outbox.port import Outbox
from tidegate.pacing.rules import Rules, own_rules
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.broadcast")

REMEMBER_SECONDS: Final = 30 * 86_400.0
AHEAD_SECONDS: Final = 5.0  # of sending: by default, so many messages wait in the outbox …
FEWEST_AHEAD, MOST_AHEAD = 100, 1_000  # … within these bounds
PROGRESS_SECONDS: Final = 1.0  # between two reports of the progress
_NAME = re.compile(r"[\w.-]{1,64}")


def check_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInputError(
            f"{name!r} is not the name of a broadcast: write up to 64 letters, digits, dots and dashes"
        )
    return name


def ahead_of(ahead: object, rate: Rate) -> int:
    """Return how many messages may wait in the outbox at once: those asked for, or for some seconds."""
    if ahead is None:
        soon = math.ceil(AHEAD_SECONDS * rate.count / rate.seconds)
        return min(MOST_AHEAD, max(FEWEST_AHEAD, soon))
    if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 1:
        raise BadInputError(f"ahead is {ahead!r}: give how many messages may wait at once, 1 or more")
    return ahead


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def check_remember(remember: float, total: int | None, rate: Rate) -> None:
    """Raise BadInputError if dedup keys could be forgotten before the end, so that a resume sends twice."""
    if not _is_number(remember) or not 0 < remember < math.inf:
        raise BadInputError("remember is how many seconds nobody gets it twice: give more than 0")
    takes = seconds_to_send(total or 0, rate)
    if remember < 2 * takes:
        raise BadInputError(
            f"remember is {remember:,.0f} s, too short: sending takes {takes:,.0f} s or more; give twice that"
        )


class Campaign:
    """Sends to an audience in background tasks, until every message has ended.

    At most `ahead` of its messages wait in the outbox at any time. `rate` is the limit of the bot. Nobody
    gets a message twice under this name within `remember` seconds. `total` is the number of rows, if the
    audience does not know it. Without `writer`, the audience consists of BroadcastMessages.

    If not `tracked`, it puts all messages at once, finishes when all are put, and raises StoreError instead
    of waiting for the store.
    """

    def __init__(
        self,
        name: str,
        audience: Audience,
        writer: MessageWriter | None,
        *,
        put: Put,
        outbox: Outbox,
        clock: Clock,
        rate: Rate,
        ahead: int | None = None,
        remember: float = REMEMBER_SECONDS,
        total: int | None = None,
        on_dead: OnDead | None = None,
        tracked: bool = True,
    ) -> None:
        self.name: Final = check_name(name)
        self._audience = check_audience(audience)
        self._total = size_of(audience) if total is None else total
        room = ahead_of(ahead, rate) if tracked else None
        if total is not None:
            check_count("total", total)
        check_remember(remember, self._total, rate)
        self._clock = clock
        self._refusals = RefusalCounter(outbox, clock)
        self._tally = Tally(name, clock)
        self._gone = GoneNotifier(on_dead, name)
        self._tracker = MessageTracker(outbox, clock, self._tally, self._gone, ahead=room)
        self._feeder = Feeder(
            name,
            audience,
            writer,
            put=put,
            tracker=self._tracker,
            tally=self._tally,
            clock=clock,
            ahead=room,
            remember=remember,
        )
        self._state: CampaignState = "running"
        self._error: BaseException | None = None
        self._is_tracked = tracked
        self._tasks = BackgroundTasks()
        self._feeding: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._done = asyncio.Event()
        self.wish: CampaignWish = "run"  # what was asked of it last, here or through the store
        self.steered = asyncio.Event()  # set when `wish` changes, and at its end
        self._last: Progress | None = None

    async def start(self) -> None:
        """Return when a first row could be sent, at once if it is paused.

        Raises the error that stops it before anything was sent.
        """
        self._feeding = self._tasks.start(self._feed(), f"broadcast {self.name}", awaited=True)
        self._feeding.add_done_callback(lambda _: self._feeder.begun.set())
        self._running = self._tasks.start(self._run(self._feeding), f"end of {self.name}")
        try:
            if not self._feeder.is_paused:
                await self._feeder.begun.wait()
            if self._feeder.begun.is_set() and not self._tally.found_one:
                await self.finished()
        except BaseException:
            await self.close()
            raise

    @property
    def has_ended(self) -> bool:
        return self._done.is_set()

    @property
    def progress(self) -> Progress:
        """The counts at this moment."""
        return self._last or self._progress()

    async def watch(self) -> AsyncIterator[Progress]:
        """Yield the progress now and each second; the last one is that of its end, however it ended."""
        while not self._done.is_set():
            yield self.progress
            with suppress(TimeoutError), waiting_for_gate():
                async with self._clock.timeout(PROGRESS_SECONDS):
                    await self._done.wait()
        yield self.progress

    async def finished(self) -> Progress:
        """Wait for its end. Raises the error that made it fail, or ClosedError if the gate was closed."""
        progress = await self.ended()
        if self._error is not None:
            raise self._error
        return progress

    async def ended(self) -> Progress:
        """Wait for its end, however it ends."""
        with waiting_for_gate():
            await self._done.wait()
        return self.progress

    async def pause(self) -> None:
        """Put no more messages. Those in the outbox are still sent: at most `ahead`, for some seconds."""
        self._steer("pause")
        await self._feeder.pause()

    async def resume(self) -> None:
        """End a pause."""
        self._steer("run")
        self._feeder.resume()

    async def cancel(self) -> None:
        """End it and cancel the messages that wait; those that are being sent still go.

        Another call of the same name sends to everybody who did not get it.
        """
        if self.has_ended:
            return
        self._steer("cancel")
        if self._state == "running":
            self._state = "cancelled"
        await self._stop_feeding()
        await self._tracker.take_back()

    async def close(self) -> None:
        """Stop, since the gate closes. Accepted messages stay in the store; the same call resumes."""
        if self.has_ended or self._running is None:
            return
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        if self.has_ended:
            return
        await self._stop_feeding()
        await self._tracker.close()
        self._error = self._error or ClosedError(
            f"the gate was closed while broadcast {self.name!r} ran: call it again to resume"
        )
        await self._end("stopped")

    def _steer(self, wish: CampaignWish) -> None:
        self.wish = wish
        self.steered.set()

    async def _feed(self) -> None:
        await self._refusals.look()  # 429s heard before are not counted
        await self._feeder.run()

    async def _run(self, feeding: asyncio.Task[None]) -> None:
        looks = BackgroundTasks()
        looks.start(self._refusals.follow(), f"refusals of {self.name}")
        try:
            await self._until_empty(feeding)
            await self._end("finished")
        finally:
            await looks.stop()

    async def _until_empty(self, feeding: asyncio.Task[None]) -> None:
        await asyncio.wait([feeding])
        if not feeding.cancelled() and (error := feeding.exception()) is not None:
            self._state, self._error = "failed", error
            if self._tally.found_one and self._is_tracked:  # else it is raised to the caller
                text = "broadcast %s has failed; messages that it put are still sent"
                log.error(text, self.name, exc_info=error)
        await self._tracker.empty()

    async def _stop_feeding(self) -> None:
        await self._feeder.close()
        if self._feeding is not None:
            self._feeding.cancel()
            await asyncio.gather(self._feeding, return_exceptions=True)

    async def _end(self, how: CampaignState) -> None:
        stage = how if self._state == "running" else self._state
        ended_at = self._clock.now()
        try:
            await self._refusals.look()
        finally:  # whatever happens during that look, it ends in this state
            self._state = stage
            self._last = self._progress(ended_at=ended_at)
            self._done.set()
            self.steered.set()

    def _progress(self, ended_at: float | None = None) -> Progress:
        rate, stage = self._tally.pace.per_second(), self._state
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
        """Return the number of rows. Some audiences know it only after they were read."""
        if self._total is None:
            self._total = size_of(self._audience)
        return self._total

    def _eta(self, rate: float) -> float | None:
        total = self._size()
        if total is None or not rate:
            return None
        return round(max(0, total - self._tally["read"] + self._tally["waiting"]) / rate, 1)


class RunningCampaigns:
    """The running broadcasts of one gate, which are closed with it."""

    def __init__(self) -> None:
        self._running: dict[tuple[BotId, str], Campaign] = {}
        self._recorders = BackgroundTasks()

    def is_running(self, bot: BotId, name: str) -> bool:
        campaign = self._running.get((bot, name))
        return campaign is not None and not campaign.has_ended

    async def start(
        self, bot: BotId, campaign: Campaign, recorder: CampaignRecorder | None = None
    ) -> Campaign:
        """Start it. Raises BadInputError if one of this name already runs for the bot."""
        self._running = {key: known for key, known in self._running.items() if not known.has_ended}
        key = (bot, campaign.name)
        if key in self._running:
            raise BadInputError(
                f"broadcast {campaign.name!r} already runs: wait for its end, or give another name"
            )
        self._running[key] = campaign
        if recorder is None:
            await campaign.start()
            return campaign
        await recorder.begin(campaign)
        following = self._recorders.start(recorder.follow(campaign), f"record of {campaign.name}")
        try:
            await campaign.start()
        except BaseException:
            await asyncio.wait([following])
            if not campaign.progress.accepted:
                await recorder.forget(campaign)
            raise
        return campaign

    async def close(self) -> None:
        await asyncio.gather(*(campaign.close() for campaign in self._running.values()))
        await self._recorders.join()


async def limit_for(bot: BotId, fields: Mapping[str, Any], rules: Rules, outbox: Outbox) -> Rate:
    """Return the limit that a broadcast of the bot will meet: the learned one, its own, or that of the rules.

    A store that cannot be read now may still take messages: then the limit of the rules is used.
    """
    if fields.get("allow_paid_broadcast") is True:
        return rules.paid
    try:
        learned, own = await outbox.learned(), await outbox.own_limits()
    except StoreError:
        return rules.bot
    nominal = own_rules(rules, own.get(bot, BotLimits())).bot
    return learned.get((bot, None), nominal)
