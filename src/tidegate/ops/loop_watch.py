"""Watches the event loop from a thread: how late it is, and the stack of what blocks it, while it blocks."""

import asyncio
import gc
import logging
import sys
import threading
from collections import deque
from collections.abc import Mapping
from types import FrameType
from typing import Any, Final

import msgspec

from tidegate.call_stack import StackReading, is_loop_frame, is_own_file, read_stack, thread_frames
from tidegate.clock import Clock
from tidegate.incidents import REPEAT_AFTER, IncidentLog
from tidegate.ops.deadline_timer import DeadlineTimer, make_deadline_timer
from tidegate.ops.loop_block import GcPause, LoopBlock, describe_block, spoken
from tidegate.ops.loop_delay import DelayHistogram, LoopDelay

log = logging.getLogger("tidegate")

BEAT_INTERVAL: Final = 0.075  # seconds: a shorter one costs more, 50 ms 0.4 % of a core
SAMPLE_INTERVAL: Final = 0.05  # seconds between two looks at a loop that is blocked
HANG_SAMPLE_INTERVAL: Final = 1.0  # seconds, once it was reported
HANG_AFTER: Final = 2.0  # seconds after which a block is reported, though it is not over
MAX_SAMPLES: Final = 60  # of one block
FIRST_LOOK: Final = 0.8  # of the delay that is reported
SHORTEST_GC_PAUSE: Final = 0.01  # seconds
WAITING_FUNCTIONS: Final = frozenset(("select", "_poll"))  # in which a loop waits for something to happen


class _Beat(msgspec.Struct, frozen=True):
    at: float  # monotonic
    due: float  # when the next one is due
    cpu: float  # that the process has used
    loop_cpu: float  # that the thread of the loop has used


class _Late(msgspec.Struct, frozen=True):
    """A beat that came too late, and the one before it."""

    before: _Beat
    beat: _Beat


class LoopWatch:
    """Between `start` and `stop`, in the running loop. The loop beats; the thread sleeps while it does.

    A beat moves the deadline of the thread on, which costs a call of the system and wakes nobody. A block
    began at some time between two beats: it is taken to be the middle.
    """

    def __init__(self, incidents: IncidentLog, clock: Clock, warn_after: float) -> None:
        self._incidents = incidents
        self._clock = clock
        self._every = min(BEAT_INTERVAL, 0.75 * warn_after)
        self._late_after = warn_after - self._every / 2
        self._histogram = DelayHistogram()
        self._pauses = GcPauses(clock)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._base: FrameType | None = None  # of the loop itself: what it runs is above
        self._beat_now = _Beat(0.0, 0.0, 0.0, 0.0)
        self._late: deque[_Late] = deque(maxlen=100)
        self._timer: DeadlineTimer | None = None
        self._next_beat: asyncio.Handle | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        self._stopped = threading.Event()
        self._pauses.start()
        self._loop = asyncio.get_running_loop()
        self._next_beat = self._loop.call_soon(self._begin)

    def stop(self) -> None:
        """The thread ends by itself, soon."""
        self._pauses.stop()
        self._stopped.set()
        if self._next_beat is not None:
            self._next_beat.cancel()
        if self._timer is not None:
            self._timer.arm(0.0)
        self._timer = self._base = None

    def reading(self) -> LoopDelay:
        return self._histogram.reading()

    # Runs in the loop:

    def _begin(self) -> None:
        self._loop_thread = threading.get_ident()
        self._base = sys._getframe(1)  # noqa: SLF001  (the documented way to the caller's frame)
        while is_loop_frame(self._base) and self._base.f_back is not None:
            self._base = self._base.f_back
        self._timer = timer = make_deadline_timer()
        now = self._clock.monotonic()
        self._beat_now = _Beat(now, now, self._clock.cpu(), self._clock.thread_cpu())
        threading.Thread(
            target=self._watch, args=(timer, self._stopped), name="tidegate: watchdog", daemon=True
        ).start()
        self._beat()

    def _beat(self) -> None:
        if self._timer is None:
            return
        now, before = self._clock.monotonic(), self._beat_now
        late = now - before.due
        self._histogram.record(late, self._every)
        cpu, loop_cpu = self._clock.cpu(), self._clock.thread_cpu()
        self._beat_now = beat = _Beat(now, now + self._every, cpu, loop_cpu)
        if late >= self._late_after:
            self._late.append(_Late(before, beat))
            self._timer.arm(0.0)  # the thread reports it
        else:
            self._timer.arm(self._every + FIRST_LOOK * self._late_after)
        self._next_beat = self._clock.call_later(self._every, self._beat)

    # Runs in the thread:

    def _watch(self, timer: DeadlineTimer, stopped: threading.Event) -> None:
        try:
            while True:
                timer.wait()
                self._look(stopped)
                if stopped.is_set():
                    return
        except Exception:
            log.exception("the watchdog has failed, and watches the loop no longer")
        finally:
            timer.close()

    def _look(self, stopped: threading.Event) -> None:
        """Sample the loop until it beats, and report what was late."""
        beat, woke_at = self._beat_now, self._clock.monotonic()
        first_look = beat.due + FIRST_LOOK * self._late_after
        samples: deque[StackReading] = deque(maxlen=MAX_SAMPLES)
        overslept, other, told_at = max(0.0, woke_at - first_look), None, 0.0
        now = woke_at
        while self._beat_now is beat and now >= first_look and not stopped.is_set():
            if (
                self._loop is None or not self._loop.is_running()
            ):  # it has ended, and the gate was not stopped
                return
            sample, other = self._sample(other)
            samples.append(sample)
            if now - beat.due > HANG_AFTER and now - told_at > REPEAT_AFTER:
                told_at = now
                block = self._block(beat, now, samples, overslept, other)
                self._incidents.note(describe_block(msgspec.structs.replace(block, is_over=False)))
            pause = HANG_SAMPLE_INTERVAL if told_at else SAMPLE_INTERVAL
            stopped.wait(pause)
            before, now = now, self._clock.monotonic()
            overslept += max(0.0, now - before - pause)
        while self._late:
            late = self._late.popleft()
            if late.before is not beat:  # it was over before this thread got to run
                self._report(late, [], late.beat.at - late.before.due - FIRST_LOOK * self._late_after)
            elif told_at:
                log.warning("the loop runs again, after %s", spoken(self._seconds(beat, late.beat.at)))
            else:
                self._report(late, list(samples), overslept, other)

    def _report(
        self, late: _Late, samples: list[StackReading], overslept: float, other: StackReading | None = None
    ) -> None:
        block = self._block(late.before, late.beat.at, samples, overslept, other)
        block.cpu = late.beat.cpu - late.before.cpu
        block.loop_cpu = late.beat.loop_cpu - late.before.loop_cpu
        self._incidents.note(describe_block(block))

    def _block(
        self,
        before: _Beat,
        ended: float,
        samples: deque[StackReading] | list[StackReading],
        overslept: float,
        other: StackReading | None,
    ) -> LoopBlock:
        return LoopBlock(
            seconds=self._seconds(before, ended),
            samples=list(samples),
            overslept=overslept,
            cpu=self._clock.cpu() - before.cpu,
            collections=self._pauses.between(before.at, ended),
            other=other,
        )

    def _seconds(self, before: _Beat, ended: float) -> float:
        return ended - (before.at + before.due) / 2

    def _sample(self, other: StackReading | None) -> tuple[StackReading, StackReading | None]:
        """Read the stack of the loop's thread; if it only waits to go on, that of another thread."""
        frames = _current_frames()
        innermost = frames.get(self._loop_thread)
        stack = thread_frames(innermost, self._base)
        if stack and stack[-1].f_code.co_name in WAITING_FUNCTIONS and len(stack) <= 2:  # noqa: PLR2004
            stack = []
        if other is None:
            other = _busy_thread(frames, but={self._loop_thread, threading.get_ident()})
        return read_stack(stack), other


class GcPauses:
    """The last garbage collections that took long. A collection stops every thread of the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = 0.0
        self._pauses: deque[GcPause] = deque(maxlen=50)

    def start(self) -> None:
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)

    def between(self, began: float, ended: float) -> list[GcPause]:
        return [one for one in self._pauses.copy() if one.began < ended and one.ended > began]

    def _note(self, phase: str, info: Mapping[str, Any]) -> None:
        generation: int = info["generation"]
        if generation == 0:  # these are many, and short
            return
        now = self._clock.monotonic()
        if phase == "start":
            self._began = now
        elif now - self._began >= SHORTEST_GC_PAUSE:
            self._pauses.append(GcPause(self._began, now, generation))


def _current_frames() -> Mapping[int, FrameType]:
    """Return the innermost frame of each thread.

    Python before 3.11.5 may deadlock if a garbage collection begins meanwhile (gh-106883).
    """
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()  # noqa: SLF001  (there is no other way)
    finally:
        if is_enabled:
            gc.enable()


def _busy_thread(frames: Mapping[int, FrameType], but: set[int]) -> StackReading | None:
    """Return the first other thread that runs a function of the application."""
    for thread, innermost in frames.items():
        stack = [] if thread in but else thread_frames(innermost)
        if any(is_own_file(frame.f_code.co_filename) for frame in stack):
            return read_stack(stack)
    return None
