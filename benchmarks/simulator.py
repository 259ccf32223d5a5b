"""How many calls a second the Telegram simulator takes: in this process, and over HTTP from another one.

    python benchmarks/simulator.py [--json]

The limits never bind, every message carries a tag, so that order and doubles are checked too.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time

import aiohttp
import uvloop

from tidegate.clock import Clock
from tidegate.model import Rate
from tidegate.sim.telegram import Limits, SimulatedTelegram
from tidegate.sim.telegram.http import TelegramServer

ROUNDS = 3
CALLS_IN_PROCESS, CALLS_OVER_HTTP = 100_000, 15_000
CHATS, CONNECTIONS = 5_000, 50
FREE = Rate(10**9, 1)
LOOSE = Limits(bot=FREE, private=FREE, group=FREE)


async def in_process() -> float:
    telegram = SimulatedTelegram(Clock(), limits=LOOSE)
    started = time.perf_counter()
    for i in range(CALLS_IN_PROCESS):
        await telegram.call("42:token", "sendMessage", {"chat_id": 1 + i % CHATS, "text": f"Hello #{i}"})
    seconds = time.perf_counter() - started
    report = telegram.report()
    assert (report["accepted"], report["out_of_order"]) == (CALLS_IN_PROCESS, 0)
    return CALLS_IN_PROCESS / seconds


async def client(url: str) -> None:
    """Runs in a process of its own; prints its rate."""
    numbers = iter(range(CALLS_OVER_HTTP))
    async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=CONNECTIONS)) as session:

        async def send() -> None:
            for i in numbers:
                params = {"chat_id": 1 + i % CHATS, "text": f"Hello #{i}"}
                async with session.post("/bot42:token/sendMessage", json=params) as answer:
                    assert answer.status == 200
                    await answer.read()

        started = time.perf_counter()
        await asyncio.gather(*(send() for _ in range(CONNECTIONS)))
        print(CALLS_OVER_HTTP / (time.perf_counter() - started))


async def over_http() -> float:
    async with TelegramServer(limits=LOOSE) as server:
        command = [sys.executable, __file__, "--client", server.url]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        output, _ = await process.communicate()
        assert process.returncode == 0
        assert server.telegram.report()["accepted"] == CALLS_OVER_HTTP
        return float(output)


def main() -> None:
    rates = {
        "in process": statistics.median(uvloop.run(in_process()) for _ in range(ROUNDS)),
        "over HTTP, one client process": statistics.median(uvloop.run(over_http()) for _ in range(ROUNDS)),
    }
    if "--json" in sys.argv:
        print(json.dumps({name: round(rate) for name, rate in rates.items()}))
        return
    for name, rate in rates.items():
        print(f"sendMessage {name:<30} {rate:>10,.0f}/s")


if __name__ == "__main__":
    if "--client" in sys.argv:
        uvloop.run(client(sys.argv[-1]))
    else:
        main()
