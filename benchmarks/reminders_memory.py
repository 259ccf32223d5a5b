"""How much memory a process of `reminders.py` takes beyond what it had before."""

import resource
from pathlib import Path


class PeakGrowth:
    """Growth of resident memory from when this was made, in MB. Linux keeps the peak, so none is missed."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is that from now on
        self._before = _rss()

    def now(self) -> float:
        return (_rss() - self._before) / 1e6

    def peak(self) -> float:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
        return (peak - self._before) / 1e6


def _rss() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()
