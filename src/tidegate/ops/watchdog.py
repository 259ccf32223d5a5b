"""The watchdog of a gate: the event loop, the memory and the errors of its process."""

import asyncio

from tidegate.clock import Clock
from tidegate.incidents import IncidentLog
from tidegate.ops.error_spike import ErrorSpikes
from tidegate.ops.loop_delay import DelayHistogram, LoopDelay
from tidegate.ops.loop_watch import LoopWatch
from tidegate.ops.memory_growth import SAMPLE_INTERVAL, MemoryGrowth, MemoryReader
from tidegate.settings import Settings


class Watchdog:
    """Started in the running loop, and stopped, as often as its gate is. Each watch has its setting; 0: off.

    Loop and memory are watched in real time only.
    """

    def __init__(self, incidents: IncidentLog, settings: Settings, clock: Clock) -> None:
        self._clock = clock
        is_real = type(clock) is Clock
        warn_after, growth = settings.tidegate_loop_warn, settings.tidegate_memory_growth
        spike = settings.tidegate_error_spike
        self._loop = LoopWatch(incidents, clock, warn_after) if is_real and warn_after else None
        self._memory = MemoryGrowth(incidents, growth / 100) if is_real and growth else None
        self._errors = ErrorSpikes(incidents, clock, spike) if spike else None
        self._reader: MemoryReader | None = None
        self._next_sample: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._loop is not None:
            self._loop.start()
        if self._errors is not None:
            self._errors.start()
        if self._memory is not None:
            self._reader = MemoryReader()
            self._sample_memory()

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.stop()
        if self._errors is not None:
            self._errors.stop()
        if self._next_sample is not None:
            self._next_sample.cancel()
        if self._reader is not None:
            self._reader.close()

    def loop_delay(self) -> LoopDelay:
        """Return how late the loop was; without samples while it is not watched."""
        return DelayHistogram().reading() if self._loop is None else self._loop.reading()

    def _sample_memory(self) -> None:
        used = None if self._reader is None else self._reader.bytes()
        if used is not None and self._memory is not None:
            self._memory.note(self._clock.monotonic(), used)
            self._next_sample = self._clock.call_later(SAMPLE_INTERVAL, self._sample_memory)
