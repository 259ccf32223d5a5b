"""Measures how long a bot takes to end after Ctrl-C or SIGTERM, plain and attached to a gate.

    python benchmarks/stopping.py [--rounds 5]

Each bot is a process that polls the simulator over HTTP, with a new SQLite file. Idle: it has answered one
message, polls for a second, and gets the signal. Busy: a handler sleeps for an hour; it gets Ctrl-C, and
again after half a second, from which the seconds count (plain aiogram waits for no handler, and has ended
by then: its seconds count from the first). "returned": until the library's run_polling has returned;
"ended": until the process has, which is later by the time in which the interpreter frees what was imported.
The kinds take turns, round after round. The table shows medians, and the difference from the plain bot.
"""

import argparse
import asyncio
import itertools
import math
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from system.bots import stoppable
from tidegate.sim.telegram import Person
from tidegate.sim.telegram.http import TelegramServer

IDLE: Final = 1.0  # seconds in which a bot polls before it is stopped
BETWEEN: Final = 0.5  # seconds from the first Ctrl-C to the second
STARTS_WITHIN: Final = 60.0  # seconds
SWITCHES: Final = ("plain", "attached", "durable")


class Kind(NamedTuple):
    """A bot, what it does, and how it is stopped."""

    library: str
    stop: str
    switch: str


class Stop(NamedTuple):
    """Seconds since the last signal that it needed. Infinite: the library did not return."""

    returned: float
    ended: float


KINDS: Final = [
    Kind(*kind)
    for kind in itertools.product(("aiogram", "ptb"), ("SIGINT", "SIGTERM", "second SIGINT"), SWITCHES)
]


async def seconds_to_end(kind: Kind) -> Stop:
    busy = kind.stop.startswith("second")
    async with TelegramServer() as server:
        bot = server.telegram.world.bot(stoppable.TOKEN)
        assert bot is not None
        with tempfile.TemporaryDirectory(prefix="tidegate-stopping-") as folder:
            handler, store = "sleep" if busy else "reply", str(Path(folder, "tidegate.db"))
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, stoppable.SCRIPT, kind.library, kind.switch, handler, server.url, store),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
            try:
                await begin(process, Person(server.telegram, bot, 7))
                return await stop(process, signal.Signals[kind.stop.split()[-1]], again=busy)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()


async def begin(process: asyncio.subprocess.Process, person: Person) -> None:
    assert process.stdout is not None
    person.says("hi")
    await asyncio.wait_for(process.stdout.readline(), STARTS_WITHIN)
    await asyncio.sleep(IDLE)


async def stop(process: asyncio.subprocess.Process, number: signal.Signals, *, again: bool) -> Stop:
    assert process.stdout is not None
    signalled = time.monotonic()
    process.send_signal(number)
    returns = asyncio.ensure_future(process.stdout.readline())
    if again:
        await asyncio.wait([returns], timeout=BETWEEN)
        if not returns.done():
            signalled = time.monotonic()
            process.send_signal(number)
    line = await returns
    await process.wait()
    ended = time.monotonic()
    # At the second Ctrl-C plain python-telegram-bot raises SystemExit through everything.
    returned = float(line.split()[1]) if line else math.inf
    return Stop(returned - signalled, ended - signalled)


async def measure(rounds: int) -> None:
    found: dict[Kind, list[Stop]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind, stops in found.items():
            stops.append(await seconds_to_end(kind))
    print("| bot | signal | | returned | beyond plain | ended | longest | beyond plain |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, stops in found.items():
        plain, here = median(found[kind._replace(switch="plain")]), median(stops)
        longest = max(one.ended for one in stops)
        print(
            f"| {kind.library} | {kind.stop} | {kind.switch} |"
            f" {shown(here.returned)} | {shown(here.returned - plain.returned, '+')} |"
            f" {shown(here.ended)} | {shown(longest)} | {shown(here.ended - plain.ended, '+')} |"
        )


def shown(seconds: float, sign: str = "") -> str:
    return f"{seconds:{sign}.2f} s" if math.isfinite(seconds) else "-" if sign else "never"


def median(stops: list[Stop]) -> Stop:
    return Stop(*(statistics.median(one) for one in zip(*stops, strict=True)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    asyncio.run(measure(parser.parse_args().rounds))
