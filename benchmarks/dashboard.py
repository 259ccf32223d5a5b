"""How fast each page of the dashboard answers over two million rows, and what ten viewers cost.

    python benchmarks/dashboard.py [pages|viewers ...] [--rows 1000000] [--folder DIR] [--json]

`pages`: a SQLite file with a million queued messages and its database with a million rows of history, as
`api_reads.py` fills them; pages are those that the dashboard declares, opened by an admin. Nothing is kept
from one try to the next. `viewers`: the sample of `tidegate up` in a process of its own, and ten who follow
the live page Now, for some seconds and not for some seconds, in turns; the median of the differences counts.
Exits 1 if an aim is missed.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import uvloop
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.api_reads import BOT, OTHER_BOT, fill, get
from benchmarks.outbox_subject import RULES, STORE

from tidegate import Tidegate
from tidegate.flows import FlowBuilder, Session
from tidegate.flows.executor.executor import FlowRunner
from tidegate.flows.port import SessionKey
from tidegate.flows.registry import RunningFlow
from tidegate.ops.access import AccessControl
from tidegate.ops.api.app import make_api
from tidegate.ops.dashboard import activity
from tidegate.ops.dashboard.dashboard import PAGES

TRIES, TARGET_MS = 10, 300.0
PEOPLE = 1_000  # in a flow
VIEWERS, TARGET_CORE = 10, 0.05
PAIRS, SLICE_SECONDS, SETTLE_SECONDS = 6, 5.0, 20.0
TICKS = os.sysconf("SC_CLK_TCK")
PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
LINK = re.compile(r"(http://127\.0\.0\.1:(\d+))/login\?code=\S+")
# Filters that people use, by the path of a page.
MESSAGES = (
    *("", f"?bot={BOT}", "?chat=1000007", "?state=queued", "?state=dead"),
    *("?in=history", "?in=history&chat=1000007", "?direction=in", "?state=delivered&in=history"),
    *("?text=Thursday", "?text=order+17*", "?text=nowhere"),
)
QUERIES = {
    "/messages": MESSAGES,
    "/dead-letters": ("", f"?bot={OTHER_BOT}", "?state=parked"),
    "/dead-letters/list": ("", "?reason=blocked", "?chat=1000007", "?older_than=3600"),
}


def addresses(values: dict[str, str]) -> Iterator[str]:
    """Return the address of each page; a parameter that has no value here fails loudly."""
    for page in PAGES:
        path = PARAMETER.sub(lambda found: values[found[1]], page.path)
        yield from (path + query for query in QUERIES.get(page.path, ("",)))


async def measure_pages(folder: Path, rows: int) -> dict[str, dict[str, float]]:
    gate = Tidegate(folder / STORE, rules=RULES)
    for bot in (BOT, OTHER_BOT):
        gate.add_bot(f"{bot}:token")
    access = AccessControl.of(gate.core)
    app = make_api(gate, access)
    await app.start()
    found: dict[str, dict[str, float]] = {}
    try:
        started = time.perf_counter()
        values = {name.strip("{}"): value for name, value in (await fill(gate, rows)).items()}
        print(f"filled in {time.perf_counter() - started:.0f} s", file=sys.stderr)
        token = (await access.create_token("benchmark", "admin")).secret
        values |= {"id": values["message_id"], "job": values["job_id"], "flow": await run_flow(gate)}
        for address in addresses(values):
            await get(app, token, address)  # the first one compiles its template
            times = [await get(app, token, address) for _ in range(TRIES)]
            milliseconds = sorted(one for _, one in times)
            found[address] = {
                "status": times[0][0],
                "median_ms": statistics.median(milliseconds),
                "worst_ms": milliseconds[-1],
            }
    finally:
        await app.stop()
    return found


async def run_flow(gate: Tidegate) -> str:
    """Let a flow run with people in its first state, and return its name."""
    declared = FlowBuilder("order")
    declared.command("/start", to="choosing")
    declared.state("choosing", say="What would you like?").button("Tea", to="ordered")
    declared.final("ordered", say="Thanks!")
    flow, sessions = declared.build(), gate.core.store.flow_sessions("order")
    there = Session(flow=flow.name, state="choosing", visit=1, data={})
    await asyncio.gather(
        *(sessions.commit(SessionKey(BOT, user, user), there, expected=0) for user in range(1, PEOPLE + 1))
    )
    gate.core.flows.add(RunningFlow(flow, BOT, sessions, FlowRunner(flow, gate).stats, gate.clock))
    return flow.name


@contextmanager
def sample() -> Iterator[tuple[int, int, str]]:
    """Run the sample; yield its pid, its port and a cookie."""
    command = [sys.executable, "-m", "tidegate", "up", "--sample", "--port", "0"]
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(  # noqa: S603  (our own command)
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert process.stdout is not None
            link = next(found for line in process.stdout if (found := LINK.search(line)))
            yield process.pid, int(link[2]), cookie_of(link[0])
        finally:
            process.kill()
            process.communicate()


def cookie_of(link: str) -> str:
    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    try:
        urllib.request.build_opener(Stay).open(link)
    except urllib.error.HTTPError as answer:  # it leads to the first page
        return str(answer.headers["set-cookie"]).partition(";")[0]
    raise AssertionError(link)


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def view(port: int, cookie: str, counts: list[int]) -> None:
    """Follow the page Now and count its events, until this is cancelled."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    request = f"GET /live?page=%2F HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n"
    writer.write(request.encode())
    try:
        async for line in reader:
            counts[0] += line.startswith(b"event: live")
    finally:
        writer.close()


async def measure_viewers() -> dict[str, float]:
    with sample() as (pid, port, cookie):
        await asyncio.sleep(SETTLE_SECONDS)

        async def slice_of_cpu() -> float:
            before, started = cpu_of(pid), time.perf_counter()
            await asyncio.sleep(SLICE_SECONDS)
            return (cpu_of(pid) - before) / (time.perf_counter() - started)

        counts = [0]
        without, beside = list[float](), list[float]()
        for _ in range(PAIRS):
            without.append(await slice_of_cpu())
            viewers = [asyncio.create_task(view(port, cookie, counts)) for _ in range(VIEWERS)]
            beside.append(await slice_of_cpu())
            for viewer in viewers:
                viewer.cancel()
            await asyncio.gather(*viewers, return_exceptions=True)
    differences = [more - less for less, more in zip(without, beside, strict=True)]
    return {
        "without": statistics.median(without),
        "with": statistics.median(beside),
        "cost": statistics.median(differences),
        "events_per_second": counts[0] / VIEWERS / PAIRS / SLICE_SECONDS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Pages of the dashboard, measured.")
    parser.add_argument("parts", nargs="*", default=[], metavar="pages|viewers")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path(), help="on which disk (default: here)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    parts, load = options.parts or ["pages", "viewers"], os.getloadavg()[0]
    pages: dict[str, dict[str, float]] = {}
    viewers: dict[str, float] = {}
    if "pages" in parts:
        fresh = Path(tempfile.mkdtemp(prefix="dashboard-", dir=options.folder.resolve()))
        try:
            with patch.object(activity, "READ_AT_MOST_EVERY", 0.0):
                pages = uvloop.run(measure_pages(fresh, options.rows))
        finally:
            shutil.rmtree(fresh)
    if "viewers" in parts:
        viewers = uvloop.run(measure_viewers())
    if options.json:
        print(json.dumps({"pages": pages, "viewers": viewers, "load": load}))
    else:
        show(pages, viewers, load)
    is_late = any(one["status"] != 200 or one["worst_ms"] >= TARGET_MS for one in pages.values())
    sys.exit(is_late or viewers.get("cost", 0.0) >= TARGET_CORE)


def show(pages: dict[str, dict[str, float]], viewers: dict[str, float], load: float) -> None:
    console = Console(width=140)
    print(f"load of the machine before: {load:.1f}")
    if pages:
        table = Table("page", "status", "median ms", "worst ms", f"< {TARGET_MS:.0f} ms", box=MARKDOWN)
        for address, one in pages.items():
            met = "yes" if one["status"] == 200 and one["worst_ms"] < TARGET_MS else "NO"
            numbers = f"{one['status']:.0f}", f"{one['median_ms']:.1f}", f"{one['worst_ms']:.1f}"
            table.add_row(address, *numbers, met)
        console.print(table, highlight=False)
    if viewers:
        table = Table("", "of a core", box=MARKDOWN)
        table.add_row("the sample, nobody looks", f"{viewers['without']:.1%}")
        table.add_row(f"{VIEWERS} follow the page Now", f"{viewers['with']:.1%}")
        met = "yes" if viewers["cost"] < TARGET_CORE else "NO"
        table.add_row(f"what they cost (< {TARGET_CORE:.0%}: {met})", f"{viewers['cost']:.1%}")
        table.add_row("events a second for each", f"{viewers['events_per_second']:.2f}")
        console.print(table, highlight=False)


if __name__ == "__main__":
    main()
