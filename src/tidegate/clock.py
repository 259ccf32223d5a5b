"""The only place that reads or waits for real time; a lint rule (TID251) holds it.

Whatever needs time takes a `Clock`. In tests and simulations that is a
`tidegate.sim.VirtualClock`, on which sleeping costs nothing.
"""

import asyncio
import time
from collections.abc import Callable


class Clock:
    """Real time."""

    def now(self) -> float:
        """Seconds since the Unix epoch: for times that are stored or shown. May jump."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since an arbitrary point: for arithmetic in memory. Never goes back."""
        return time.monotonic()

    def cpu(self) -> float:
        """CPU seconds that all threads of this process have used."""
        return time.process_time()

    def thread_cpu(self) -> float:
        """CPU seconds that the calling thread has used."""
        return time.thread_time()

    async def sleep(self, seconds: float) -> None:
        """Let others run for at least `seconds`; zero or less yields once."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Have the running loop call back once, after at least `seconds`."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """`async with` this: its body is cancelled and raises `TimeoutError` after `seconds`."""
        return asyncio.timeout(seconds)
