"""The gateway beside nginx, before the same trivial upstream: throughput, added latency, memory.

    python benchmarks/gateway.py [throughput|latency|processes|memory|upload ...] [--seconds 5] [--json]

Everything is a process of its own, on this machine: the upstream (`gateway_upstream.py`), nginx with one
worker and connections that it keeps, wrk, which loads them, and `tidegate gateway` as users start it: a store
in a file on a real disk (`--folder`, or here), history on, every call paced and counted, with limits so high
that they do not bind. nginx and wrk are found on this machine or installed by apt-get.

`throughput`: 100 connections, each with its next call when the last one is answered; the upstream alone,
nginx and the gateway in turn, three rounds, medians. `latency`: 100 calls a second over ten connections, at
fixed times; `added` is the median above that of the upstream alone in the same run. `processes`: the gateway
on a private Redis, with one process and with two in turn, three rounds; all share the cores of the machine,
so it is also done with a quarter of a core for each process, where this may make control groups. `memory`:
resident memory of the gateway after 100,000 calls, and after 200,000 more, without history and with it.
`upload`: the most resident memory during an upload of 50 MB, and during four at once, above that before,
after a small one.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import uvloop
from rich.box import MARKDOWN
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from servers import NGINX, WRK, executable, redis_server

HERE: Final = Path(__file__).resolve().parent
BOT: Final = 42
PATH: Final = f"/bot{BOT}:AAbbccddeeffgghhiijjkkllmmnnoopp"
CONNECTIONS: Final = 100
ROUNDS: Final = 3
PARTS: Final = ("throughput", "latency", "processes", "memory", "upload")
STEPS: Final = {
    "throughput": 3 * ROUNDS,
    "latency": 3 * ROUNDS,
    "processes": 4 * ROUNDS,
    "memory": 10,
    "upload": 2,
}
# nginx is asked for ten times the throughput of one process of the gateway; the rest are the gateway's own.
MOST_SHARE_OF_NGINX, MOST_ADDED_MS, MOST_UPLOAD_MB, MOST_GROWTH_MB = 10.0, 0.5, 20.0, 10.0
RATE, LINES = 100, 10  # calls a second, connections
# Of processes on Redis: how many, and which share of a core each may use. One process and its Redis fill two
# cores, so that growth shows only where the processes, not the machine, are what is scarce.
_GROUPS: Final = (
    ("1", 1, 0.0),
    ("2", 2, 0.0),
    ("1, a quarter of a core", 1, 0.25),
    ("2, a quarter of a core each", 2, 0.25),
)
CALLS, WARM_UP = 200_000, 100_000
UPLOAD_BYTES: Final = 50_000_000
TICK: Final = os.sysconf("SC_CLK_TCK")

Figures = dict[str, float]
Advance = Callable[[], object]


@contextmanager
def started(command: Sequence[str], **more: Any) -> Iterator["subprocess.Popen[str]"]:  # noqa: ANN401  (of Popen)
    with subprocess.Popen(  # noqa: S603  (composed in this file)
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def upstream() -> Iterator[int]:
    with started([sys.executable, str(HERE / "gateway_upstream.py")]) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["port"]


@contextmanager
def nginx(folder: Path, target: int) -> Iterator[int]:
    port = _free_port()
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"""
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    upstream telegram {{
        server 127.0.0.1:{target};
        keepalive 200;
        keepalive_requests 100000000;
    }}
    keepalive_requests 100000000;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://telegram;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
    }}
}}
"""
    )
    with started([str(executable(NGINX)), "-p", str(folder), "-c", str(configuration)]):
        _until_open(port)
        yield port


class Gateway:
    """A gateway that serves: its port, and what its processes use."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self._pid = pid

    @property
    def pids(self) -> list[int]:
        """Those that serve: the children, if there are several processes."""
        children = Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()
        return [int(child) for child in children] or [self._pid]

    def wait_until_started(self, processes: int) -> None:
        """A group listens before its processes serve: those begin with seconds of CPU, and then are idle."""
        before, deadline = -1.0, time.monotonic() + 60
        while time.monotonic() < deadline:
            time.sleep(0.5)
            now = self.cpu()
            if len(self.pids) == processes and now - before < 0.1:
                _until_open(self.port)
                return
            before = now
        raise RuntimeError("the gateway is not idle after its start")

    def cpu(self) -> float:
        """Seconds of all processes and threads."""
        return sum(_cpu(pid) for pid in self.pids)

    def memory(self, name: str = "VmRSS") -> float:
        """Megabytes, in all processes."""
        return sum(_status(pid, name) for pid in self.pids) / 1_000

    def forget_peak(self) -> None:
        for pid in self.pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")


@contextmanager
def gateway(
    folder: Path, target: int, *options: str, processes: int = 1, history: str = "on"
) -> Iterator[Gateway]:
    """`tidegate gateway` with the limits of no bot: what binds is the machine."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE", "TELEGRAM"))
    }
    limits = {"TIDEGATE_BOT_RATE": "100000/1", "TIDEGATE_CHAT_RATE": "100000/1"}
    if history == "off":
        limits["TIDEGATE_HISTORY"] = "off"
    command = [sys.executable, "-m", "tidegate", "gateway", "--listen", "127.0.0.1:0"]
    command += ["--telegram", f"http://127.0.0.1:{target}", "--allow", str(BOT)]
    command += ["--processes", str(processes), *options]
    with started(command, cwd=folder, env=kept | limits, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        found = re.search(r":(\d+)\b", process.stdout.readline())
        assert found is not None, "the gateway did not start"
        ours = Gateway(int(found[1]), process.pid)
        ours.wait_until_started(processes)
        yield ours


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _until_open(port: int) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"nobody listens at port {port}")


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def _status(pid: int, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1.024


def wrk(port: int, seconds: float) -> Figures:
    script = str(HERE / "gateway_load.lua")
    command = [str(executable(WRK)), "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}"]
    command += ["--timeout", "20s", "-s", script, f"http://127.0.0.1:{port}", "--", f"{PATH}/sendMessage"]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603  (composed here)
    line = next(line for line in ran.stdout.splitlines() if line.startswith("JSON "))
    found: Figures = json.loads(line.removeprefix("JSON "))
    assert not found["failed"], found
    return found | {"per_second": found["calls"] / found["seconds"]}


class Line(asyncio.Protocol):
    """A connection with one call at a time."""

    def __init__(self) -> None:
        self._answered: asyncio.Future[None] | None = None
        self._answer = b""
        self._turn = asyncio.Lock()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, end, body = self._answer.partition(b"\r\n\r\n")
        if end and len(body) >= int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            assert head.startswith(b"HTTP/1.1 200"), self._answer
            self._answer = b""
            assert self._answered is not None
            self._answered.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(exc or ConnectionError("closed"))

    async def call(self, request: bytes) -> float:
        """Return the seconds that it took, with those for which the call before it was still under way."""
        began = time.perf_counter()
        async with self._turn:
            self._answered = asyncio.get_running_loop().create_future()
            self._transport.write(request)
            await self._answered
        return time.perf_counter() - began


async def lines(port: int, count: int) -> list[Line]:
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(Line, "127.0.0.1", port))[1] for _ in range(count)]


def message(chat: int) -> bytes:
    body = b'{"chat_id":%d,"text":"Your order is on its way"}' % chat
    return _head("sendMessage", "application/json", len(body)) + body


def _head(method: str, kind: str, length: int) -> bytes:
    return (
        f"POST {PATH}/{method} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


async def times(port: int, seconds: float) -> list[float]:
    """Return the milliseconds of each call. They begin at fixed times, whether or not the last has ended."""
    opened = await lines(port, LINES)
    for line in opened:
        await line.call(message(1))
    loop, waits = asyncio.get_running_loop(), list[asyncio.Task[float]]()
    began = loop.time()
    for number in range(int(seconds * RATE)):
        await asyncio.sleep(began + number / RATE - loop.time())
        call = opened[number % LINES].call(message(1_000 + number))
        waits.append(asyncio.create_task(call))
    return [1_000 * await wait for wait in waits]


async def upload(port: int, count: int, size: int) -> None:
    edge = b"--edge\r\nContent-Disposition: form-data; name="
    before = edge + b'"chat_id"\r\n\r\n1001\r\n' + edge + b'"document"; filename="a.bin"\r\n\r\n'
    body = before + bytes(size) + b"\r\n--edge--\r\n"
    request = _head("sendDocument", "multipart/form-data; boundary=edge", len(body)) + body
    await asyncio.gather(*(line.call(request) for line in await lines(port, count)))


def throughput(folder: Path, seconds: float, advance: Advance) -> dict[str, Figures]:
    with ExitStack() as stack:
        target = stack.enter_context(upstream())
        proxy = stack.enter_context(nginx(folder, target))
        ours = stack.enter_context(gateway(folder, target))
        ports = {"upstream": target, "nginx": proxy, "gateway": ours.port}
        wrk(ours.port, 2)
        found: dict[str, list[Figures]] = {name: [] for name in ports}
        for _ in range(ROUNDS):
            for name, port in ports.items():
                cpu = ours.cpu()
                measured = wrk(port, seconds)
                if name == "gateway":
                    measured["cpu_us"] = 1e6 * (ours.cpu() - cpu) / measured["calls"]
                found[name].append(measured)
                advance()
    return {name: _medians(each) for name, each in found.items()}


def latency(folder: Path, seconds: float, advance: Advance) -> dict[str, Figures]:
    with ExitStack() as stack:
        target = stack.enter_context(upstream())
        proxy = stack.enter_context(nginx(folder, target))
        ours = stack.enter_context(gateway(folder, target))
        ports = {"upstream": target, "nginx": proxy, "gateway": ours.port}
        wrk(ours.port, 2)
        found: dict[str, list[float]] = {name: [] for name in ports}
        for _ in range(ROUNDS):
            for name, port in ports.items():
                found[name] += uvloop.run(times(port, seconds))
                advance()
    results = {}
    for name, waits in found.items():
        waits.sort()
        results[name] = {"p50_ms": statistics.median(waits), "p99_ms": waits[len(waits) * 99 // 100]}
        results[name]["added_ms"] = results[name]["p50_ms"] - results["upstream"]["p50_ms"]
    return results


def processes(folder: Path, seconds: float, advance: Advance) -> dict[str, Figures]:
    found: dict[str, list[Figures]] = {}
    for _ in range(ROUNDS):
        for name, count, share in _GROUPS:
            with ExitStack() as stack:
                redis = stack.enter_context(redis_server(appendonly=True, fsync="everysec"))
                target = stack.enter_context(upstream())
                options = ("--store", redis.url)
                ours = stack.enter_context(gateway(folder, target, *options, processes=count))
                wrk(ours.port, 2)
                if share and not stack.enter_context(limited(ours.pids, share)):
                    continue
                cpu, cpu_redis = ours.cpu(), _cpu(redis.pid)
                one = wrk(ours.port, seconds)
                one["cpu_us"] = 1e6 * (ours.cpu() - cpu) / one["calls"]
                one["redis_us"] = 1e6 * (_cpu(redis.pid) - cpu_redis) / one["calls"]
                found.setdefault(name, []).append(one)
            advance()
    return {name: _medians(each) for name, each in found.items()}


@contextmanager
def limited(pids: Sequence[int], share: float) -> Iterator[bool]:
    """Let each process have this share of a core. Yields False where this may not make control groups."""
    made: list[Path] = []
    old = Path("/sys/fs/cgroup/cpu")  # of cgroup v1
    try:
        for pid in pids:
            group = (old if old.is_dir() else old.parent) / f"tidegate-{pid}"
            group.mkdir()
            made.append(group)
            if old.is_dir():
                (group / "cpu.cfs_period_us").write_text("10000")
                (group / "cpu.cfs_quota_us").write_text(f"{share * 10_000:.0f}")
            else:
                (group / "cpu.max").write_text(f"{share * 10_000:.0f} 10000")
            (group / "cgroup.procs").write_text(str(pid))
        is_limited = True
    except OSError:
        is_limited = False
    try:
        yield is_limited
    finally:
        for group, pid in zip(made, pids, strict=False):
            with suppress(OSError):
                (group.parent / "cgroup.procs").write_text(str(pid))
            with suppress(OSError):
                group.rmdir()


def memory(folder: Path, seconds: float, advance: Advance) -> dict[str, Figures]:
    results = {}
    for history in ("off", "on"):
        with upstream() as target, gateway(folder, target, history=history) as ours:
            at_first, steps = _pass(ours, WARM_UP, seconds), STEPS["memory"] // 2
            first, seen, made = ours.memory(), list[float](), 0.0
            for step in range(1, steps + 1):
                made += _pass(ours, CALLS * step / steps - made, seconds)
                seen.append(ours.memory())
                advance()
        results[f"history {history}"] = {
            "before": at_first,
            "calls": made,
            "first_mb": first,
            "last_mb": seen[-1],
            "most_mb": max(seen),
            "growth_mb": seen[-1] - first,
        }
    return results


def _pass(ours: Gateway, calls: float, seconds: float) -> float:
    """Make at least so many calls; return how many."""
    made = 0.0
    while made < calls:
        made += wrk(ours.port, min(seconds, 2))["calls"]
    return made


def uploads(folder: Path, _: float, advance: Advance) -> dict[str, Figures]:
    results = {}
    with upstream() as target, gateway(folder, target) as ours:
        wrk(ours.port, 2)
        uvloop.run(upload(ours.port, 1, 1_000))  # opens what uploads need
        for count in (1, 4):
            before = ours.memory()
            ours.forget_peak()
            began = time.perf_counter()
            uvloop.run(upload(ours.port, count, UPLOAD_BYTES))
            took = time.perf_counter() - began
            grown = ours.memory("VmHWM") - before
            results[str(count)] = {"before_mb": before, "growth_mb": grown, "seconds": took}
            advance()
    return results


def _medians(rounds: list[Figures]) -> Figures:
    return {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}


MEASURE: Final[dict[str, Callable[[Path, float, Advance], dict[str, Figures]]]] = {
    "throughput": throughput,
    "latency": latency,
    "processes": processes,
    "memory": memory,
    "upload": uploads,
}


def verdict(part: str, found: dict[str, Figures]) -> tuple[str, bool]:
    """Return a sentence, and whether the target is met."""
    if part == "throughput":
        times = found["nginx"]["per_second"] / found["gateway"]["per_second"]
        return f"nginx passes {times:.1f} times as much (target: at most 10)", times <= MOST_SHARE_OF_NGINX
    if part == "latency":
        added = found["gateway"]["added_ms"]
        return f"{added:.2f} ms added at {RATE} calls a second (target: below 0.5)", added < MOST_ADDED_MS
    if part == "processes":
        one, two = list(found)[-2:]
        times = found[two]["per_second"] / found[one]["per_second"]
        return f"{two}: {times:.2f} times as much as {one} (target: more)", times > 1
    if part == "memory":
        off = found["history off"]
        grown, calls = off["growth_mb"], off["calls"]
        target = f"target: flat, below {MOST_GROWTH_MB:g}"
        return f"{grown:+.1f} MB over {calls:,.0f} calls ({target})", grown < MOST_GROWTH_MB
    grown = found["1"]["growth_mb"]
    return f"an upload of 50 MB takes {grown:.1f} MB more (target: below 20)", grown < MOST_UPLOAD_MB


def table(found: dict[str, Figures]) -> Table:
    keys = list(dict.fromkeys(key for figures in found.values() for key in figures if key != "failed"))
    shown = Table("", *(key.replace("_", " ") for key in keys), box=MARKDOWN)
    for name, figures in found.items():
        shown.add_row(name, *(_number(figures.get(key)) for key in keys))
    return shown


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description="The gateway beside nginx, measured.")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="part", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--folder", type=Path, default=Path(), help="on which disk (default: here)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = options.parts or list(PARTS)
    load_before = os.getloadavg()[0]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results: dict[str, dict[str, Figures]] = {}
    console = Console(width=160, highlight=False, stderr=options.json)
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=sum(STEPS[part] for part in chosen))
        for part in chosen:
            progress.update(task, description=part)
            with tempfile.TemporaryDirectory(prefix="gateway-", dir=options.folder.resolve()) as folder:
                found = MEASURE[part](Path(folder), options.seconds, lambda: progress.advance(task))
            results[part] = found
            text, is_met = verdict(part, found)
            console.print(f"\n{part}", table(found), f"{text}: {'met' if is_met else 'NOT MET'}", sep="\n")
    console.print(f"\nload: {load_before:.2f} before, {os.getloadavg()[0]:.2f} after")
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
