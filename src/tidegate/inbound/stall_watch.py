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
STALL_SECONDS: Final = 2.0  # seconds


class StallWatch:
    """Of the loop in which it is started, from a thread of its own. Real time only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._beaten_at = 0.0
        self._beat: asyncio.TimerHandle | None = None
        self._over = threading.Event()

    def start(self) -> None:
        self._over.clear()
        self._go_on()
        looking = threading.Thread(
            target=self._look, args=(threading.get_ident(),), name="tidegate: stalls", daemon=True
        )
        looking.start()

    def stop(self) -> None:
        self._over.set()
        if self._beat is not None:
            self._beat.cancel()

    def _go_on(self) -> None:
        self._beaten_at = self._clock.monotonic()
        self._beat = self._clock.call_later(HEARTBEAT_INTERVAL, self._go_on)

    def _look(self, thread: int) -> None:
        told_at = 0.0  # of which beat it was told that no other came
        while not self._over.wait(HEARTBEAT_INTERVAL):
            beaten_at, late = self._beaten_at, self._clock.monotonic() - self._beaten_at
            if late > STALL_SECONDS and told_at != beaten_at:
                told_at = beaten_at
                frame = sys._current_frames().get(thread)  # noqa: SLF001  (there is no other way)
                log.warning(
                    "everything has stood still for %.1f s %s: call what blocks with asyncio.to_thread",
                    late,
                    running_place(frame),
                )
