"""The bots of `flood.py`: each has a process of its own, and does the same work in its own way.

| kind | replies | the broadcast |
|---|---|---|
| plain | a reply that is refused is lost | 20 at a time; who cannot be sent to is logged and left |
| retries | sent again after `retry_after` | 20 at a time, each again after `retry_after` |
| AIORateLimiter | as plain, behind python-telegram-bot's limiter, with 10 retries | likewise |
| tidegate | as plain: a gate is attached, nothing else is changed | `gate.broadcast`, a store in a file |
"""

import asyncio
import importlib
import logging
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.pacing_processes import die_with_parent, tell

from tidegate import Tidegate
from tidegate.broadcast.campaign import Campaign
from tidegate.settings import Settings

KINDS: Final[Mapping[str, Sequence[str]]] = {
    "aiogram": ("plain", "retries", "tidegate"),
    "ptb": ("plain", "retries", "AIORateLimiter", "tidegate"),
}
log = logging.getLogger("flood")

IN_FLIGHT: Final = 20
NEWS: Final = "News for everybody, issue #1"

Send = Callable[[int, str], Awaitable[object]]
Running = Callable[[str, str, Tidegate | None], AbstractAsyncContextManager[Send]]


class Naive:
    """A broadcast as developers write it, with the means of the library."""

    def __init__(self, readers: int) -> None:
        self._rest = iter(range(1, readers + 1))
        self._readers = readers
        self._sent = self._failed = 0

    async def broadcast(self, send: Send) -> None:
        await asyncio.gather(*(self._send_to_each(send) for _ in range(IN_FLIGHT)))

    async def _send_to_each(self, send: Send) -> None:
        for reader in self._rest:
            try:
                await send(reader, NEWS)
            except Exception:  # noqa: BLE001  (as in most broadcasts: log it, go on)
                log.warning("%s was not reached", reader)
                self._failed += 1
            else:
                self._sent += 1

    async def words(self) -> dict[str, Any]:
        """Nothing is accepted: refused messages are forgotten, untried ones wait in memory."""
        waiting = self._readers - self._sent - self._failed
        return {"accepted": 0, "failed": self._failed, "waiting": waiting, "dead": 0, "parked": 0}


class Gated:
    """The same by Tidegate: some messages wait in the store, the rest in the audience."""

    def __init__(self, readers: int, gate: Tidegate) -> None:
        self._readers, self._gate = readers, gate
        self._campaign: Campaign | None = None

    async def broadcast(self, _: Send) -> None:
        self._campaign = await self._gate.broadcast("flood", range(1, self._readers + 1), NEWS)

    async def words(self) -> dict[str, Any]:
        stats, accepted = await self._gate.stats(), 0
        if self._campaign is not None:
            accepted = self._campaign.progress.accepted
        waiting = stats.waiting + self._readers - accepted
        ended = {"dead": stats.dead, "parked": stats.parked}
        return {"accepted": accepted, "failed": 0, "waiting": waiting, **ended}


@asynccontextmanager
async def _lines() -> AsyncIterator[asyncio.Queue[None]]:
    lines, loop = asyncio.Queue[None](), asyncio.get_running_loop()
    die_with_parent(lambda: loop.call_soon_threadsafe(lines.put_nowait, None))
    yield lines


async def run_here(library: str, kind: str, url: str, readers: int, folder: str) -> None:
    """Broadcast at the first line of input, end at the second, and print the result."""
    running: Running = importlib.import_module(f"benchmarks.flood_{library}").running
    gate = None
    if kind == "tidegate":  # not with the limits of the environment: those are meant for the real Telegram
        gate = Tidegate(Path(folder, "tidegate.db"), settings=Settings.model_construct())
    work = Naive(readers) if gate is None else Gated(readers, gate)
    async with _lines() as lines:
        async with running(url, kind, gate) as send:
            tell(ready=True)
            await lines.get()
            cpu = time.process_time()
            broadcast = asyncio.create_task(work.broadcast(send))
            await lines.get()
            broadcast.cancel()
            await asyncio.gather(broadcast, return_exceptions=True)
            cpu, ending = time.process_time() - cpu, time.monotonic()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        used = {"cpu_s": round(cpu, 1), "peak_mb": round(peak, 1)}
        tell(**await work.words(), **used, shutdown_s=round(time.monotonic() - ending, 2))


def main(library: str, kind: str, url: str, readers: str) -> None:
    if kind != "tidegate":  # they would fill the terminal with what Telegram tells them
        logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="tidegate-flood-") as folder:
        uvloop.run(run_here(library, kind, url, int(readers), folder))


if __name__ == "__main__":
    main(*sys.argv[1:5])
