"""Telegram's side of `flood.py`, in a process of its own: limits that count, and people who write.

They write when they like, not when the last answer came: a bot that is slow has no less to do for it. Each
text ends with a number that the reply repeats, so that a reply is told from another, doubled or lost.
"""

import asyncio
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.pacing_processes import EACH_WAY, die_with_parent, tell

from tidegate.sim.telegram import Faults, Limits, SimulatedTelegram
from tidegate.sim.telegram.entities import Json, SimulatedBot
from tidegate.sim.telegram.http import TelegramServer

TOKEN: Final = "42:flood"
FIRST_WRITER: Final = 1_000_001
GRACE: Final = 10.0  # seconds for the last replies; what has not come then is counted as never
QUIET: Final = 20.0  # seconds without news to anybody: the broadcast is over, if it is waited for
LONGEST: Final = 900.0


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    people: int
    every: float  # seconds between two things that somebody says, on average
    broadcast: int  # readers, none of them among the people who write
    seconds: float
    whole: bool  # go on until the broadcast has ended
    seed: int


class Writer:
    """A user who writes now and then, and counts the replies."""

    def __init__(self, telegram: SimulatedTelegram, bot: SimulatedBot, user: int, scene: Scene) -> None:
        self._telegram, self._bot, self._id = telegram, bot, user
        self._every = scene.every
        self._draw = random.Random(f"{scene.seed}:{user}")
        self.said = 0
        self.open: dict[int, float] = {}  # what has no answer yet, and when it was said
        self.waits: list[float] = []
        telegram.world.add_private(bot, user).watchers.append(self._hear)

    async def live(self) -> None:
        await asyncio.sleep(self._draw.uniform(0, self._every))
        while True:
            self.said += 1
            self.open[self.said] = time.monotonic()
            self._telegram.world.user_says(self._bot, self._id, f"Hello #{self.said}", time.time())
            await asyncio.sleep(self._draw.uniform(0.5 * self._every, 1.5 * self._every))

    def _hear(self, message: Json) -> None:
        said_at = self.open.pop(int(message["text"].rpartition("#")[2]), None)
        if said_at is not None:
            self.waits.append(time.monotonic() - said_at)


class Audience:
    """All users: those who write, and those who only read the news."""

    def __init__(self, telegram: SimulatedTelegram, scene: Scene) -> None:
        bot = telegram.world.bot(TOKEN)
        assert bot is not None
        self._telegram, self._scene = telegram, scene
        self._reached: set[int] = set()
        self._latest = time.monotonic()
        for reader in range(1, scene.broadcast + 1):
            telegram.world.add_private(bot, reader).watchers.append(self._read)
        self.writers = [Writer(telegram, bot, FIRST_WRITER + number, scene) for number in range(scene.people)]

    def _read(self, message: Json) -> None:
        self._reached.add(message["chat"]["id"])
        self._latest = time.monotonic()

    async def live(self) -> float:
        """Run until the time or the broadcast is over, then for the last replies. Returns seconds."""
        started = time.monotonic()
        lives = [asyncio.create_task(writer.live()) for writer in self.writers]
        await asyncio.sleep(self._scene.seconds)
        while self._scene.whole and not self._ended(started):  # noqa: ASYNC110  (time ends it too)
            await asyncio.sleep(0.1)
        for life in lives:
            life.cancel()
        over = time.monotonic()
        while self._owed() and time.monotonic() < over + GRACE:  # noqa: ASYNC110  (likewise)
            await asyncio.sleep(0.05)
        return over - started

    def _owed(self) -> int:
        return sum(len(writer.open) for writer in self.writers)

    def _ended(self, started: float) -> bool:
        now = time.monotonic()
        all_reached = len(self._reached) == self._scene.broadcast
        return all_reached or now > self._latest + QUIET or now > started + LONGEST

    def report(self) -> dict[str, Any]:
        """Return the report, with the usual keys. `delivered`: users whom the broadcast has reached."""
        seen = self._telegram.report()
        waits = sorted(1000 * wait for writer in self.writers for wait in writer.waits)
        return {
            **{key: seen[key] for key in ("requests", "refused", "avg_rps", "peak_rps")},
            "limit_rps": Limits().bot.count,
            "replies": len(waits),
            "unanswered": self._owed(),
            "p50_ms": percentile(waits, 0.5),
            "p99_ms": percentile(waits, 0.99),
            "worst_ms": percentile(waits, 1.0),
            "delivered": len(self._reached),
            **{key: seen[key] for key in ("out_of_order", "doubled")},
        }


def percentile(ordered: list[float], share: float) -> float | None:
    return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 1) if ordered else None


async def serve(scene: Scene) -> None:
    """Print the address, let users write at the first line of input, and report at the second."""
    lines, loop = asyncio.Queue[None](), asyncio.get_running_loop()
    die_with_parent(lambda: loop.call_soon_threadsafe(lines.put_nowait, None))
    faults = Faults(latency_in=EACH_WAY, latency_out=EACH_WAY)
    async with TelegramServer(limits=Limits(), faults=faults, seed=scene.seed) as server:
        audience = Audience(server.telegram, scene)
        tell(url=server.url)
        await lines.get()
        tell(seconds=round(await audience.live(), 1))
        await lines.get()
        tell(**audience.report())


if __name__ == "__main__":
    uvloop.run(serve(msgspec.json.decode(sys.argv[1], type=Scene)))
