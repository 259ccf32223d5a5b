"""How much a busy HTTP API slows down the deliveries of the process that serves it.

    python benchmarks/api_delivery.py [--bots 20] [--seconds 10] [--rounds 3] [--json]

The whole service is one process (`tidegate up`): 20 bots with Telegram's limits, 30 a second each, send what
waits for them over a wire that answers after 20 ms, from a SQLite file on a real disk. Meanwhile another
process puts messages over HTTP, for a bot that is paused. Turn by turn: nobody asks; 4 connections that stay
open, each with its next message when the last one is answered; 64 of them, which is all that one process can
take. What is delivered is counted at the wire.
"""

import argparse
import asyncio
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvloop
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.api import message, request
from benchmarks.outbox_subject import STORE
from benchmarks.webhook_load import Connection

from tidegate import Tidegate
from tidegate.delivery.transport import ApiAnswer, BotApiTransport
from tidegate.inbound.server import serve
from tidegate.model import BotId
from tidegate.ops.service import Service

ROUND_TRIP: Final = 0.02  # seconds
CHATS: Final = 2_000  # of each bot: no chat's own limit binds
PAUSED_BOT: Final = 99
CONNECTIONS: Final = (0, 4, 64)
LIMIT: Final = 5.0  # percent


class CountingWire(BotApiTransport):
    """Answers after a while, and counts."""

    def __init__(self) -> None:
        self.delivered = 0

    async def call(self, *_: object, on_written: Callable[[], None] | None = None, **__: object) -> ApiAnswer:
        if on_written is not None:
            on_written()
        await asyncio.sleep(ROUND_TRIP)
        self.delivered += 1
        return ApiAnswer(200, {"ok": True, "result": {"message_id": 1}})

    async def close(self) -> None: ...


async def run_server(folder: Path, bots: int, messages: int) -> None:
    """Serve until SIGTERM. Say the port and a token, then what was delivered for each line that comes in."""
    wire = CountingWire()
    gate = Tidegate(folder / STORE, wire=wire)
    numbers = range(100, 100 + bots)
    for bot in (*numbers, PAUSED_BOT):
        gate.add_bot(f"{bot}:token")
    service = Service(gate, delivers=True)
    async with gate:
        await gate.outbox.pause(BotId(PAUSED_BOT))
        for bot in numbers:
            items = ({"chat_id": 1 + i % CHATS, "text": f"News #{i}"} for i in range(messages))
            await gate.send_many(items, bot=bot, priority="low")
        token = (await service.access.create_token("benchmark", "operator", bot=BotId(PAUSED_BOT))).secret

        def answer() -> None:
            if sys.stdin.readline():
                print(wire.delivered, flush=True)
            else:
                asyncio.get_running_loop().remove_reader(sys.stdin)

        def ready(port: int) -> None:
            asyncio.get_running_loop().add_reader(sys.stdin, answer)
            print(json.dumps({"port": port, "token": token}), flush=True)

        await serve(service.app, port=0, on_ready=ready)


async def load(port: int, token: str, connections: int, seconds: float) -> int:
    """Put messages until the time is over; return how many were accepted."""
    made = [request("/api/v1/messages", token, message(i), "application/json") for i in range(2_000)]
    deadline = time.perf_counter() + seconds
    left = itertools.takewhile(lambda _: time.perf_counter() < deadline, itertools.cycle(made))
    statuses, loop = Counter[bytes](), asyncio.get_running_loop()
    opened = [
        (await loop.create_connection(lambda: Connection(left, [], statuses), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    for connection in opened:
        connection.send_next()
    await asyncio.gather(*(connection.ended for connection in opened))
    assert set(statuses) <= {b"202"}, statuses
    return statuses.total()


def measure(folder: Path, bots: int, seconds: float, rounds: int) -> dict[int, dict[str, float]]:
    """Return, by the number of connections, the medians of what was delivered and accepted in a second."""
    messages = int(30 * (seconds + 3) * rounds * len(CONNECTIONS)) + 300
    command = [sys.executable, __file__, "--serve", str(folder), str(bots), str(messages)]
    found: dict[int, list[tuple[float, float]]] = {count: [] for count in CONNECTIONS}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603  (ourselves)
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            place = json.loads(server.stdout.readline())
            time.sleep(3)  # the first burst is over
            for turn in range(rounds):
                for count in CONNECTIONS if turn % 2 == 0 else reversed(CONNECTIONS):
                    found[count].append(_phase(server, place, count, seconds))
        finally:
            server.send_signal(signal.SIGTERM)
    return {
        count: {
            "delivered_per_second": statistics.median(one for one, _ in phases),
            "accepted_per_second": statistics.median(one for _, one in phases),
        }
        for count, phases in found.items()
    }


def _phase(
    server: "subprocess.Popen[str]", place: dict[str, str], connections: int, seconds: float
) -> tuple[float, float]:
    before, started = _delivered(server), time.perf_counter()
    accepted = 0
    if connections:
        arguments = [
            sys.executable,
            __file__,
            "--load",
            str(place["port"]),
            place["token"],
            str(connections),
            str(seconds),
        ]
        ended = subprocess.run(arguments, check=True, stdout=subprocess.PIPE)  # noqa: S603  (ourselves)
        accepted = json.loads(ended.stdout)
    else:
        time.sleep(seconds)
    took = time.perf_counter() - started
    return (_delivered(server) - before) / took, accepted / seconds


def _delivered(server: "subprocess.Popen[str]") -> int:
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write("\n")
    server.stdin.flush()
    return int(server.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description="Deliveries beside a busy API, measured.")
    parser.add_argument("--bots", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(), help="on which disk (default: here)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    fresh = Path(tempfile.mkdtemp(prefix="api-delivery-", dir=options.folder.resolve()))
    try:
        found = measure(fresh, options.bots, options.seconds, options.rounds)
    finally:
        shutil.rmtree(fresh)
    if options.json:
        print(json.dumps(found))
        return
    quiet = found[0]["delivered_per_second"]
    shown = Table(
        "connections", "accepted a second", "delivered a second", "slower", f"< {LIMIT:g} %", box=MARKDOWN
    )
    for count, one in found.items():
        slower = 100 * (1 - one["delivered_per_second"] / quiet)
        row = (f"{one['accepted_per_second']:,.0f}", f"{one['delivered_per_second']:,.1f}", f"{slower:.1f} %")
        shown.add_row(str(count), *row, "yes" if slower < LIMIT else "NO")
    console = Console(width=120)
    console.print(shown, highlight=False)
    console.print(f"\nload: {load_before:.2f} before, {os.getloadavg()[0]:.2f} after", highlight=False)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        uvloop.run(run_server(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
    elif sys.argv[1:2] == ["--load"]:
        port, token, connections, seconds = sys.argv[2:]
        print(uvloop.run(load(int(port), token, int(connections), float(seconds))))
    else:
        main()
