"""What a process needs for 100,000 conversations under way.

    python benchmarks/flows_memory.py [--users N]

Each waits for its payment: a session, a subscription and a timer, all in one SQLite file; nobody is told
anything meanwhile, and nothing is sent. They are put there by one process; then another one opens the file,
restores everybody, asks about all of them once in batches, and says how large it has become (RSS).
"""

import argparse
import asyncio
import gc
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.delivery.transport import ApiAnswer
from tidegate.flows import Flow, FlowBuilder
from tidegate.flows.executor import FlowRunner, SessionKey

USERS: Final = 100_000
MOST: Final = 500  # MB
BOT: Final = 42
AT_ONCE: Final = 500
INTERVAL: Final = 5.0  # seconds


class NoWire:
    """Nothing is to be sent."""

    async def call(self, *_: object, **__: object) -> ApiAnswer:
        raise AssertionError("nobody says anything here")

    async def close(self) -> None:
        pass


def payment() -> Flow:
    flow = FlowBuilder("payment", lifetime=86_400, given=("order_id",))
    flow.command("/start", to="waiting").command("/cancel", to="cancelled")
    waiting = flow.state("waiting", say="Please pay order {order_id}.")
    waiting.poll("payment", key="order_id", met="paid").timeout(43_200, say="Still there?")
    flow.final("paid", say="Thank you!")
    flow.final("cancelled", say="Cancelled.")
    return flow.build()


class Bot:
    def __init__(self, path: str) -> None:
        self.asked = 0
        self.gate = Tidegate(path, wire=NoWire())
        self.gate.add_bot(f"{BOT}:token")
        config = {"batch_check_fn": self._check, "interval": INTERVAL}
        self.executor = FlowRunner(payment(), self.gate, batch_polling=config, restore=False)
        self.poller = self.executor.polls.pollers["payment"]

    async def _check(self, keys: Sequence[str]) -> Mapping[str, Any]:
        self.asked += len(keys)
        return {}

    async def __aenter__(self) -> Self:
        await self.gate.start()
        await self.executor.start(self.gate.core.store.flow_sessions("payment"))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.executor.stop()
        await self.gate.stop()


async def fill(path: str, users: int) -> None:
    numbers = iter(range(1, users + 1))

    async def put(bot: Bot) -> None:
        for user in numbers:
            data = {"order_id": f"TG-{user:08d}", "user_id": user, "username": f"user{user}"}
            await bot.executor.put_into(SessionKey(BOT, user, user), "waiting", data)

    async with Bot(path) as bot, asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(put(bot))


async def look(path: str, users: int) -> None:
    clock, before = Clock(), rss()
    async with Bot(path) as bot:
        begun = clock.monotonic()
        restored = await bot.poller.restore(group=10_000, every=0.0)
        while bot.asked < users or bot.executor.stats().timers < users:
            await clock.sleep(0.1)
        seconds = clock.monotonic() - begun
        gc.collect()
        size = rss()
        each = (size - before) / users
        print(f"{restored.restored:,} conversations restored and asked about in {seconds:.1f} s")
        print(f"{bot.executor.stats().timers:,} timers")
        print(f"{size / 1e6:.0f} MB resident ({before / 1e6:.0f} MB before), {each:.0f} bytes for each")
        print("passed" if size / 1e6 < MOST else f"FAILED: over {MOST} MB")


def rss() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--fill", help=argparse.SUPPRESS)
    parser.add_argument("--look", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.look or given.fill:
        asyncio.run((look if given.look else fill)(given.look or given.fill, given.users))
        return
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        for part in ("--fill", "--look"):
            command = [
                sys.executable,
                __file__,
                part,
                str(Path(folder, "bot.db")),
                "--users",
                str(given.users),
            ]
            subprocess.run(command, check=True)  # noqa: S603  (ourselves)
            if part == "--fill":
                print(f"{given.users:,} conversations begun in {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
