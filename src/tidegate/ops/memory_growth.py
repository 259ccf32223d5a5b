"""The memory of the process: an alarm when it has grown far above the lowest of the last hour."""

import os
from collections import deque
from typing import Final

from tidegate.incidents import Incident, IncidentLog

SAMPLE_INTERVAL: Final = 10.0  # seconds
WARM_UP: Final = 60.0  # seconds after the start in which memory grows in every program
SLOT: Final = 60.0  # seconds whose lowest value is kept
SLOTS: Final = 60
SMALLEST_GROWTH: Final = 100_000_000  # bytes


class MemoryGrowth:
    """Decides. `growth` is a share: 0.5 is half as much again, and 100 MB at least."""

    def __init__(self, incidents: IncidentLog, growth: float) -> None:
        self._incidents = incidents
        self._growth = growth
        self._began: float | None = None
        self._lowest: deque[tuple[float, int]] = deque(maxlen=SLOTS)  # begin of a slot, bytes

    def note(self, now: float, used: int) -> None:
        """Take a sample. After an alarm growth counts from there, so that a leak is told step by step."""
        if self._began is None:
            self._began = now
        if now - self._began < WARM_UP:
            return
        if not self._lowest or now - self._lowest[-1][0] >= SLOT:
            self._lowest.append((now, used))
        else:
            at, lowest = self._lowest[-1]
            self._lowest[-1] = at, min(lowest, used)
        at, lowest = min(self._lowest, key=lambda slot: slot[1])
        if used - lowest >= max(SMALLEST_GROWTH, self._growth * lowest):
            self._incidents.note(_alarm(lowest, used, now - at))
            self._lowest.clear()
            self._lowest.append((now, used))


class MemoryReader:
    """The resident memory of this process, on Linux; elsewhere there is none that can be read cheaply."""

    def __init__(self) -> None:
        self._page = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
        try:
            self._file: int | None = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, AttributeError):
            self._file = None

    def bytes(self) -> int | None:
        """Read a few bytes that the kernel has in memory: no disk is waited for."""
        if self._file is None:
            return None
        return int(os.pread(self._file, 100, 0).split()[1]) * self._page

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _alarm(lowest: int, used: int, seconds: float) -> Incident:
    minutes = max(1, round(seconds / 60))
    text = f"memory has grown from {lowest / 1e6:.0f} MB to {used / 1e6:.0f} MB within {minutes} min"
    return Incident(kind="memory_growth", text=text, group="memory_growth", seconds=seconds)
