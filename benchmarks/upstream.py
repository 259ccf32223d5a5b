"""The cost of an API client, and the share of a limit that it uses without being refused.

    python benchmarks/upstream.py [--seconds 15] [--json]

**Overhead**: reads of an API on this machine that answers at once, 1 and 10 in flight, with limits that
never bind: the client beside aiohttp alone and httpx alone, in turns, round after round. Medians of the CPU
time for each read; `ratio` is to aiohttp alone. The server has a process of its own.

**Limit**: 20 callers ask a strict API for 15 s: 5 requests in any second, counted at the arrival, 5 to 40 ms
away each way. All subjects run side by side, each with a limit of its own there. `share` is of the 5 in a
second that the API allows; `of possible` of what a sender can have who never risks a 429: 5 in a second and a
round trip. The peers pause for a second after a 429, and ask again.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import httpx
import uvloop
from aiolimiter import AsyncLimiter
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from tidegate.clock import Clock
from tidegate.model import Rate
from tidegate.upstream.client import Upstream
from tidegate.upstream.http_transport import HttpTransport
from tidegate.upstream.limiter import MemoryLimiter

READS: Final = 200  # in a round
ROUNDS: Final = 5
IN_FLIGHT: Final = (1, 10)
CALLERS: Final = 20
LIMIT: Final = Rate(5, 1)
ROUND_TRIP: Final = 0.045  # seconds, on average
REFUSED: Final = 429

Read = Callable[[str], Awaitable[object]]
Row = dict[str, Any]


@contextmanager
def api() -> Iterator[str]:
    command = [sys.executable, str(Path(__file__).with_name("upstream_server.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        assert process.stdin is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.stdin.close()


@asynccontextmanager
async def tidegate(url: str, rate: Rate) -> AsyncIterator[Read]:
    clock = Clock()
    wire = HttpTransport(url, headers={"xc-token": "t"}, clock=clock)
    async with Upstream(wire, clock=clock, limiter=MemoryLimiter(rate, clock)) as client:
        yield client.read


@asynccontextmanager
async def plain_aiohttp(url: str) -> AsyncIterator[Read]:
    async with aiohttp.ClientSession() as session:

        async def read(path: str) -> object:
            async with session.get(f"{url}/{path}") as response:
                await response.read()
                return await response.json(content_type=None) if response.status < REFUSED else None

        yield read


@asynccontextmanager
async def plain_httpx(url: str) -> AsyncIterator[Read]:
    async with httpx.AsyncClient(base_url=url) as client:

        async def read(path: str) -> object:
            return (await client.get(f"/{path}")).json()

        yield read


@asynccontextmanager
async def with_aiolimiter(url: str, limit: AsyncLimiter) -> AsyncIterator[Read]:
    async with plain_aiohttp(url) as plain:

        async def read(path: str) -> object:
            while True:
                async with limit:
                    found = await plain(path)
                if found is not None:
                    return found
                await asyncio.sleep(1)

        yield read


async def cpu_of(read: Read, in_flight: int) -> tuple[float, float]:
    """CPU time and time of one read, in µs."""
    numbers = iter(range(READS))

    async def caller() -> None:
        for _ in numbers:
            await read("free")

    cpu, began = time.process_time(), time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(in_flight)))
    return (
        1e6 * (time.process_time() - cpu) / READS,
        1e6 * (time.perf_counter() - began) / READS,
    )


async def overhead(url: str) -> list[Row]:
    rows: list[Row] = []
    async with AsyncExitStack() as stack:
        subjects = {
            "aiohttp": await stack.enter_async_context(plain_aiohttp(url)),
            "Tidegate": await stack.enter_async_context(tidegate(url, Rate(1_000_000, 1))),
            "httpx": await stack.enter_async_context(plain_httpx(url)),
        }
        for in_flight in IN_FLIGHT:
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in subjects}
            for round_ in range(-1, ROUNDS):  # the first warms up
                for name, read in subjects.items():
                    figures = await cpu_of(read, in_flight)
                    if round_ >= 0:
                        found[name].append(figures)
            cpu = {name: statistics.median(one for one, _ in figures) for name, figures in found.items()}
            rows += [
                {
                    "client": name,
                    "in_flight": in_flight,
                    "cpu_us": round(cpu[name]),
                    "ratio": round(cpu[name] / cpu["aiohttp"], 2),
                    "reads_per_second": round(1e6 / statistics.median(wall for _, wall in found[name])),
                }
                for name in subjects
            ]
    return rows


async def ask_for(read: Read, name: str, seconds: float) -> None:
    """Callers who always want more."""

    async def caller() -> None:
        while True:
            await read(name)

    callers = [asyncio.create_task(caller()) for _ in range(CALLERS)]
    await asyncio.sleep(seconds)
    for one in callers:
        one.cancel()
    await asyncio.gather(*callers, return_exceptions=True)


async def limit(url: str, seconds: float) -> list[Row]:
    async with AsyncExitStack() as stack:
        subjects = {
            "Tidegate": await stack.enter_async_context(tidegate(url, LIMIT)),
            "aiolimiter": await stack.enter_async_context(with_aiolimiter(url, AsyncLimiter(5, 1))),
            "aiolimiter, a fifth of a second each": await stack.enter_async_context(
                with_aiolimiter(url, AsyncLimiter(1, 0.2))
            ),
        }
        names = {name: f"s{number}" for number, name in enumerate(subjects)}
        await asyncio.gather(*(ask_for(read, names[name], seconds) for name, read in subjects.items()))
        report: Any = await (await stack.enter_async_context(plain_aiohttp(url)))("report")
    possible = LIMIT.count * (1 + (seconds - ROUND_TRIP) / (LIMIT.seconds + ROUND_TRIP))
    return [
        {
            "client": name,
            "ok": report[names[name]].get("ok", 0),
            "refused": report[names[name]].get("refused", 0),
            "share": round(report[names[name]].get("ok", 0) / seconds / LIMIT.count, 3),
            "of_possible": round(report[names[name]].get("ok", 0) / possible, 3),
        }
        for name in subjects
    ]


def show(title: str, rows: list[Row]) -> None:
    table = Table(title=title, box=MARKDOWN)
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="left" if name == "client" else "right")
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=110).print(table)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with api() as url:
        results = {"overhead": uvloop.run(overhead(url)), "limit": uvloop.run(limit(url, options.seconds))}
    if options.json:
        print(json.dumps(results))
        return
    for title, rows in results.items():
        show(title, rows)


if __name__ == "__main__":
    main()
