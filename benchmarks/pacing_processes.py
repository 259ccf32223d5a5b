"""Processes of `pacing.py`: each sender has one, and each of those a simulator in another one.

A child lives only as long as somebody holds the other end of its stdin: a parent that dies in whatever
way takes its children and theirs along.
"""

import asyncio
import json
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import uvloop

from tidegate.clock import Clock
from tidegate.model import Rate
from tidegate.sim.telegram import Faults, Latency, Limits
from tidegate.sim.telegram.http import TelegramServer

RUN, SERVE = Path(__file__).with_name("pacing.py"), Path(__file__)
LARGEST_LINE = 256 * 1024 * 1024  # the log of a run comes as one line
EACH_WAY = Latency(5, 40)


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    """A call as the simulator counted it. `at` is in seconds since the Unix epoch."""

    at: float
    bot: int
    chat: int
    status: int
    text: str


class Seen(msgspec.Struct, frozen=True):
    """What the simulator saw."""

    report: dict[str, Any]
    log: list[Arrival]


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """What the simulator of one run is told to be."""

    bot: str = "30/1"
    closes: Literal["chat", "bot"] = "chat"
    server_error: float = 0.0
    lost_answer: float = 0.0
    silent: float = 0.0

    def limits(self) -> Limits:
        return Limits(bot=Rate.parse(self.bot), closes=self.closes)

    def faults(self) -> Faults:
        return Faults(
            latency_in=EACH_WAY,
            latency_out=EACH_WAY,
            server_error=self.server_error,
            lost_answer=self.lost_answer,
            silent=self.silent,
        )


def die_with_parent(on_line: Callable[[], object] | None = None) -> None:
    """Read stdin in a thread: a line is a wish, its end is the end."""

    def watch() -> None:
        while sys.stdin.readline():
            if on_line is not None:
                on_line()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def tell(**words: object) -> None:
    """One line of JSON to the parent."""
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


async def serve(weather: Weather) -> None:
    """The simulator's process: tells its address, serves until asked what it saw, tells that and ends."""
    asked, loop = asyncio.Event(), asyncio.get_running_loop()
    die_with_parent(lambda: loop.call_soon_threadsafe(asked.set))
    async with TelegramServer(limits=weather.limits(), faults=weather.faults(), clock=Clock()) as server:
        ledger = server.telegram.request_log
        ledger.log = deque()  # all of it, not the latest
        tell(url=server.url)
        await asked.wait()
        log = [Arrival(e.at, e.bot, int(str(e.chat_id or 0)), e.status, e.text) for e in ledger.log]
        seen = msgspec.json.encode(Seen(server.telegram.report(), log))
        sys.stdout.buffer.write(seen + b"\n")
        sys.stdout.buffer.flush()


class Simulator:
    """A simulator in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self._process = process
        self.url = url

    async def seen(self) -> Seen:
        """What it saw. Ends it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        return msgspec.json.decode(await self._process.stdout.readline(), type=Seen)


@asynccontextmanager
async def simulator(weather: Weather) -> AsyncIterator[Simulator]:
    async with child(SERVE, "--serve", msgspec.json.encode(weather).decode()) as process:
        assert process.stdout is not None
        yield Simulator(process, json.loads(await process.stdout.readline())["url"])


@asynccontextmanager
async def child(script: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A script in another process, ended with the body."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), *arguments, stdin=pipe, stdout=pipe, limit=LARGEST_LINE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


if __name__ == "__main__" and sys.argv[1:2] == ["--serve"]:
    uvloop.run(serve(msgspec.json.decode(sys.argv[2], type=Weather)))
