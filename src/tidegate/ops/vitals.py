"""How this process does, for the dashboards of all: calls to Telegram a second, and the loop's delay."""

import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

from tidegate.clock import Clock
from tidegate.events import Attempted, CallAttempted, EventStream
from tidegate.model import BotId, NotSent, Outcome, Refused
from tidegate.ops.loop_delay import LoopDelay
from tidegate.outbox.port import BotCalls, ProcessVitals
from tidegate.pacing.rules import family_of

AVERAGED_OVER: Final = 5  # seconds
DELAYS_OVER: Final = 60.0  # seconds
DELAY_READ_EVERY: Final = 10.0  # seconds
MOST_BOTS: Final = 1_000
LIMITED: Final = frozenset({"send", "edit"})  # the families that the limit of a bot counts


class SecondCounts:
    """Calls of each bot in the last seconds. Those of bots that are silent are forgotten."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, dict[BotId, list[int]]]] = deque(maxlen=AVERAGED_OVER + 1)

    def add(self, now: float, bot: BotId, *, is_refused: bool) -> None:
        second = int(now)
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append((second, {}))
        counts = self._seconds[-1][1]
        if bot not in counts and len(counts) >= MOST_BOTS:
            return
        known = counts.setdefault(bot, [0, 0])
        known[0] += 1
        known[1] += is_refused

    def averages(self, now: float) -> tuple[BotCalls, ...]:
        """Return the calls a second of each bot in the last whole seconds."""
        last, sums = int(now), dict[BotId, list[int]]()
        for second, counts in self._seconds:
            if last - AVERAGED_OVER <= second < last:
                for bot, (made, refused) in counts.items():
                    known = sums.setdefault(bot, [0, 0])
                    known[0] += made
                    known[1] += refused
        return tuple(
            BotCalls(bot, made / AVERAGED_OVER, refused / AVERAGED_OVER)
            for bot, (made, refused) in sorted(sums.items())
        )


class Vitals:
    """Counts the calls of a process as they are made. `reading` costs some microseconds."""

    def __init__(self, events: EventStream, clock: Clock, loop_delay: Callable[[], LoopDelay]) -> None:
        self._clock = clock
        self._loop_delay = loop_delay
        self._delays: deque[tuple[float, LoopDelay]] = deque()
        self._counts = SecondCounts()
        self._process = f"{socket.gethostname()}/{os.getpid()}"
        events.subscribe(Attempted, self._attempted)
        events.subscribe(CallAttempted, self._called)

    def reading(self) -> ProcessVitals:
        now = self._clock.monotonic()
        return ProcessVitals(
            process=self._process, calls=self._counts.averages(now), loop_p99=self._delay_now(now)
        )

    def _attempted(self, event: Attempted) -> None:
        message = event.claim.message
        self._count(message.bot, message.method, event.outcome)

    def _called(self, event: CallAttempted) -> None:
        if event.outcome is not None:
            self._count(event.bot, event.method, event.outcome)

    def _count(self, bot: BotId, method: str, outcome: Outcome) -> None:
        if not isinstance(outcome, NotSent) and family_of(method) in LIMITED:
            self._counts.add(self._clock.monotonic(), bot, is_refused=isinstance(outcome, Refused))

    def _delay_now(self, now: float) -> float | None:
        """Return the 99th percentile of the last minute or so; None if the loop is not watched."""
        reading = self._loop_delay()
        if not self._delays or now - self._delays[-1][0] >= DELAY_READ_EVERY:
            self._delays.append((now, reading))
        while len(self._delays) > 1 and now - self._delays[0][0] > DELAYS_OVER:
            self._delays.popleft()
        earlier = self._delays[0][1]
        samples = reading.samples - earlier.samples
        if samples <= 0:
            return reading.p99 if reading.samples else None
        for (bound, count), (_, before) in zip(reading.buckets, earlier.buckets, strict=True):
            if count - before >= 0.99 * samples:
                return min(bound, reading.worst)
        return reading.worst
