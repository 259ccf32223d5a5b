"""Reports an event loop that a handler blocks, from a thread of its own."""

import asyncio
import logging
import sys
import threading
from typing import Final

from tidegate.clock import Clock
from tidegate.failure import running_place

log = logging.getLogger("tidegate.inbound")

HEARTBEAT_INTERVAL: Final = 0.5  # seconds
STALL_SECONDS: Final = 2.0


class StallWatch:
    """Watches the loop that starts it: no deadline reaches a handler that blocks it. Real time only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._beat_at = 0.0
        self._next_beat: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        self._stopped.clear()
        self._beat()
        loop_thread = threading.get_ident()
        threading.Thread(
            target=self._watch, args=(loop_thread,), name="tidegate: stalls", daemon=True
        ).start()

    def stop(self) -> None:
        self._stopped.set()
        if self._next_beat is not None:
            self._next_beat.cancel()

    def _beat(self) -> None:
        self._beat_at = self._clock.monotonic()
        self._next_beat = self._clock.call_later(HEARTBEAT_INTERVAL, self._beat)

    def _watch(self, loop_thread: int) -> None:
        reported = 0.0  # the heartbeat after which a stall was reported
        while not self._stopped.wait(HEARTBEAT_INTERVAL):
            beat_at, late = self._beat_at, self._clock.monotonic() - self._beat_at
            if late > STALL_SECONDS and reported != beat_at:
                reported = beat_at
                frame = sys._current_frames().get(loop_thread)  # noqa: SLF001  (there is no other way)
                log.warning(
                    "everything has stood still for %.1f s %s: call what blocks with asyncio.to_thread",
                    late,
                    running_place(frame),
                )
