"""A timer of the kernel that one thread moves on and another waits for.

Moving it on wakes nobody. That matters: a thread that wakes up needs the interpreter lock, and beside a busy
event loop, which gives the lock up for a moment at each look at its sockets, it is woken at each of these
moments and gets it at almost none: measured, that costs the process 2 to 4 % of CPU.
"""

import os
import select
import sys
import time
from contextlib import suppress
from typing import Final, Protocol

SHORTEST: Final = 1e-6  # seconds: 0 would switch the timer off
POLL_INTERVAL: Final = 0.5  # seconds, where there is no such timer


class DeadlineTimer(Protocol):
    """Armed by one thread, waited for by another, which closes it in the end."""

    def arm(self, seconds: float) -> None:
        """Let it expire in `seconds`, and not when it would have."""
        ...

    def wait(self) -> None:
        """Return when it has expired. May return earlier."""
        ...

    def close(self) -> None: ...


def make_deadline_timer() -> DeadlineTimer:
    """Return a timer of this system; where there is none, one that returns every half a second."""
    if sys.platform == "linux":
        with suppress(ImportError, AttributeError, OSError):  # a Python without ctypes, a strange libc
            return TimerFd()
    if hasattr(select, "kqueue"):
        return KqueueTimer()
    return PollTimer()


class TimerFd:
    """Linux. Python has the functions since 3.13; until then they are called in libc."""

    def __init__(self) -> None:
        import ctypes  # noqa: PLC0415  (only here, and not in every build of Python)

        class Interval(ctypes.Structure):
            _fields_ = (
                ("every_s", ctypes.c_long),
                ("every_ns", ctypes.c_long),
                ("after_s", ctypes.c_long),
                ("after_ns", ctypes.c_long),
            )

        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._interval = Interval()
        self._reference = ctypes.byref(self._interval)
        self._set_time = libc.timerfd_settime

    def arm(self, seconds: float) -> None:
        whole, part = divmod(max(seconds, SHORTEST), 1.0)
        self._interval.after_s, self._interval.after_ns = int(whole), int(part * 1e9)
        self._set_time(self._fd, 0, self._reference, None)

    def wait(self) -> None:
        os.read(self._fd, 8)

    def close(self) -> None:
        os.close(self._fd)


class KqueueTimer:
    """macOS and BSD."""

    def __init__(self) -> None:
        self._queue = select.kqueue()  # type: ignore[attr-defined,unused-ignore]  # not on every system

    def arm(self, seconds: float) -> None:
        flags = select.KQ_EV_ADD | select.KQ_EV_ONESHOT  # type: ignore[attr-defined,unused-ignore]
        milliseconds = max(1, round(seconds * 1000))
        timer = select.kevent(1, select.KQ_FILTER_TIMER, flags, data=milliseconds)  # type: ignore[attr-defined,unused-ignore]
        self._queue.control([timer], 0)

    def wait(self) -> None:
        self._queue.control(None, 1)

    def close(self) -> None:
        self._queue.close()


class PollTimer:
    """Elsewhere: short blocks are seen if they happen to last when it looks."""

    def arm(self, seconds: float) -> None:
        """It cannot be moved."""

    def wait(self) -> None:
        time.sleep(POLL_INTERVAL)  # noqa: TID251  (in a thread of its own, in real time)

    def close(self) -> None:
        """Nothing is open."""
