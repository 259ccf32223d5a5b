"""Messages that one process of the HTTP API accepts in a second, each on disk before it is answered.

    python benchmarks/api.py [puts|stream ...] [--seconds 5] [--folder DIR] [--json]

The API (uvicorn, one process) and the load are processes of their own, on this machine. The store is a
SQLite file with a write-ahead log and synchronous=FULL on a real disk, in `--folder` or here. `puts`: 64
connections that stay open, each with its next message when the last one is answered. `stream`: two requests
at a time, 50,000 lines each, as application/x-ndjson; `stream-keyed` the same with an Idempotency-Key. At the
end as many messages are in the store as were accepted. If `load_cpu` comes near 1, the load is what is
measured.
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
from collections.abc import Iterator
from pathlib import Path

import uvloop
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.outbox_subject import RULES, STORE, TEXT, seconds_of_fsync
from benchmarks.webhook_load import Connection

from tidegate import Tidegate
from tidegate.inbound.server import serve
from tidegate.ops.access import AccessControl
from tidegate.ops.api.app import make_api

Figures = dict[str, float]
BOT, CHATS = 42, 1_000
CONNECTIONS, STREAMS, LINES = 64, 2, 50_000
TARGETS = {"puts": 4_000, "stream": 40_000}
KINDS = ("puts", "stream", "stream-keyed")


async def run_server(folder: Path) -> None:
    """Serve until SIGTERM; say the port and a token first, and then what was kept and what it took."""
    gate = Tidegate(folder / STORE, rules=RULES)
    gate.add_bot(f"{BOT}:token")
    access = AccessControl.of(gate.core)
    started = 0.0
    async with gate:
        token = (await access.create_token("benchmark", "operator")).secret

        def ready(port: int) -> None:
            nonlocal started
            started = time.process_time()
            print(json.dumps({"port": port, "token": token}), flush=True)

        await serve(make_api(gate, access), port=0, on_ready=ready)
        cpu, kept = time.process_time() - started, (await gate.stats()).waiting
    print(json.dumps({"kept": kept, "cpu": cpu}), flush=True)


def message(i: int) -> bytes:
    return json.dumps({"chat_id": 1_000_000 + i % CHATS, "text": f"{TEXT} #{i}"}).encode()


def request(path: str, token: str, body: bytes, kind: str, *more: str) -> bytes:
    head = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {token}",
        f"Content-Type: {kind}",
    ]
    head += [*more, f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, "", ""]).encode() + body


async def load(kind: str, port: int, token: str, seconds: float) -> Figures:
    """Send requests that were made before, until the time is over."""
    if kind == "puts":
        some = [request("/api/v1/messages", token, message(i), "application/json") for i in range(2_000)]
        return await _send(port, itertools.cycle(some), CONNECTIONS, seconds, b"202", 1)
    body = b"\n".join(map(message, range(LINES)))
    path, lines = "/api/v1/messages/stream", "application/x-ndjson"
    if kind == "stream":
        endless: Iterator[bytes] = itertools.repeat(request(path, token, body, lines))
    else:
        endless = (request(path, token, body, lines, f"Idempotency-Key: {i}") for i in itertools.count())
    return await _send(port, endless, STREAMS, seconds, b"200", LINES)


async def _send(  # noqa: PLR0917
    port: int, endless: Iterator[bytes], connections: int, seconds: float, accepted: bytes, each: int
) -> Figures:
    deadline = time.perf_counter() + seconds
    left = itertools.takewhile(lambda _: time.perf_counter() < deadline, endless)
    waits, statuses = list[float](), Counter[bytes]()
    loop = asyncio.get_running_loop()
    opened = [
        (await loop.create_connection(lambda: Connection(left, waits, statuses), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    started, cpu = time.perf_counter(), time.process_time()
    for connection in opened:
        connection.send_next()
    await asyncio.gather(*(connection.ended for connection in opened))
    took = time.perf_counter() - started
    assert set(statuses) == {accepted}, statuses
    waits.sort()
    return {
        "accepted": len(waits) * each,
        "per_second": len(waits) * each / took,
        "p50_ms": 1e3 * waits[len(waits) // 2],
        "p99_ms": 1e3 * waits[len(waits) * 99 // 100],
        "load_cpu": (time.process_time() - cpu) / took,
    }


def measure(kind: str, folder: Path, seconds: float) -> Figures:
    command = [sys.executable, __file__, "--serve", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603  (ourselves)
        assert server.stdout is not None
        try:
            place = json.loads(server.stdout.readline())
            arguments = [
                sys.executable,
                __file__,
                "--load",
                kind,
                str(place["port"]),
                place["token"],
                str(seconds),
            ]
            ended = subprocess.run(arguments, check=True, stdout=subprocess.PIPE)  # noqa: S603  (ourselves)
            figures: Figures = json.loads(ended.stdout)
        finally:
            server.send_signal(signal.SIGTERM)
        kept = json.loads(server.stdout.readline())
    assert kept["kept"] == figures["accepted"], (kept, figures)
    cpu = kept["cpu"] / figures["accepted"]
    return figures | {"cpu_us": 1e6 * cpu, "server_cpu": cpu * figures["per_second"]}


def table(results: dict[str, Figures]) -> Table:
    keys = ["per_second", "p50_ms", "p99_ms", "accepted", "cpu_us", "server_cpu", "load_cpu"]
    shown = Table("", *(key.replace("_", " ") for key in keys), "target", box=MARKDOWN)
    for kind, figures in results.items():
        target = TARGETS.get(kind)
        met = "" if target is None else f"≥ {target:,}: {'yes' if figures['per_second'] >= target else 'NO'}"
        shown.add_row(kind, *(_number(figures[key]) for key in keys), met)
    return shown


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description="The HTTP API, measured.")
    parser.add_argument("kinds", nargs="*", metavar="kind", help=", ".join(KINDS))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--folder", type=Path, default=Path(), help="on which disk (default: here)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder, load_before = options.folder.resolve(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=folder) as place:
        fsync = statistics.median(seconds_of_fsync(Path(place)))
    results: dict[str, Figures] = {}
    for kind in options.kinds or KINDS:
        fresh = Path(tempfile.mkdtemp(prefix="api-", dir=folder))
        try:
            results[kind] = measure(kind, fresh, options.seconds)
        finally:
            shutil.rmtree(fresh)
    if options.json:
        print(json.dumps({"fsync_ms": 1e3 * fsync, **results}))
        return
    console = Console(width=160)
    console.print(table(results), highlight=False)
    load = f"{load_before:.2f} before, {os.getloadavg()[0]:.2f} after"
    console.print(f"\nan fsync of 4 KiB: {1e3 * fsync:.2f} ms; load: {load}", highlight=False)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        uvloop.run(run_server(Path(sys.argv[2])))
    elif sys.argv[1:2] == ["--load"]:
        kind, port, token, seconds = sys.argv[2:]
        print(json.dumps(uvloop.run(load(kind, int(port), token, float(seconds)))))
    else:
        main()
