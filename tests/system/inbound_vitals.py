"""The delay of a process's event loop and its memory while it works."""

import asyncio
import os
from array import array
from typing import Any

from tidegate.clock import Clock

NAP = 0.01  # seconds
PAGE_KB = 4
QUARTERS = 4


class Vitals:
    """`watch` it beside the work, for as long as that is said to take."""

    def __init__(self, clock: Clock, *, naps: bool = True) -> None:
        self._clock = clock
        self._naps = naps  # in virtual time none is ever late
        self._late = array("d")  # milliseconds
        self.rss_mb: list[float] = []  # after each quarter

    async def watch(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as group:
            napping = group.create_task(self._nap() if self._naps else self._clock.sleep(0))
            for _ in range(QUARTERS):
                await self._clock.sleep(seconds / QUARTERS)
                self.rss_mb.append(rss_mb())
            napping.cancel()

    async def _nap(self) -> None:
        """Other work makes it wake late, by as much as a handler would be."""
        clock = self._clock
        while True:
            asleep = clock.monotonic()
            await clock.sleep(NAP)
            self._late.append(1000 * (clock.monotonic() - asleep - NAP))

    def report(self) -> dict[str, Any]:
        late = sorted(self._late)
        return {
            "loop_p50_ms": percentile(late, 0.5),
            "loop_p99_ms": percentile(late, 0.99),
            "loop_max_ms": percentile(late, 1.0),
            "rss_mb": self.rss_mb,
        }


def rss_mb() -> float:
    """Return the memory of this process; 0 where the system does not tell it. The file is not on a disk."""
    try:
        told = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return 0.0
    try:
        return round(int(os.pread(told, 200, 0).split()[1]) * PAGE_KB / 1024, 1)
    finally:
        os.close(told)


def percentile(ordered: list[float], share: float) -> float | None:
    return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 2) if ordered else None
