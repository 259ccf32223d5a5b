"""Jobs that do nothing: how fast they are submitted and run, beside others that do the same in one run.

    python benchmarks/jobs.py [--jobs 1000] [--json]

Tidegate records each job in a SQLite file before `submit` returns, and its end when it has ended; two
processes run them, or two of a worker of Celery with Redis. Beside it: a ProcessPoolExecutor with two
processes, which keeps nothing, and Celery alone on the same Redis, acknowledging late, which keeps neither
results nor what became of a job (its tasks count themselves in Redis). Submitted in order by one task, and by
100 at a time, as handlers do.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import redis
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from benchmarks import jobs_functions

from servers import redis_server
from tidegate import Tidegate
from tidegate.settings import Settings

ROOT: Final = Path(__file__).resolve().parents[1]
WORKERS: Final = 2
AT_ONCE: Final = 100
WARM_UP: Final = 20
DEADLINE: Final = 300.0  # seconds

Result = dict[str, Any]
Submit = Callable[[int], Awaitable[object]]


async def measure(submit: Submit, ended: Callable[[], Awaitable[int]], jobs: int, at_once: int) -> Result:
    """Submit jobs, so many side by side, and wait until all have ended."""
    before = await ended()
    numbers, took, began = iter(range(jobs)), list[float](), time.perf_counter()

    async def producer() -> None:
        for number in numbers:
            start = time.perf_counter()
            await submit(number)
            took.append(time.perf_counter() - start)

    await asyncio.gather(*(producer() for _ in range(at_once)))
    submitted = time.perf_counter() - began
    while await ended() < before + jobs:
        if time.perf_counter() - began > DEADLINE:
            raise RuntimeError("not all jobs have ended")
        await asyncio.sleep(0.01)
    took.sort()
    return {
        "submitted_per_s": round(jobs / submitted),
        "submit_p99_ms": round(took[int(len(took) * 0.99)] * 1000, 1),
        "run_per_s": round(jobs / (time.perf_counter() - began)),
    }


async def of_tidegate(jobs: int, broker: str | None) -> dict[str, Result]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {"TIDEGATE_STORE": f"{folder}/store.db", "TIDEGATE_JOB_WORKERS": str(WORKERS)}
        if broker is not None:
            environment |= {"CELERY_BROKER_URL": broker, "TIDEGATE_JOBS": "benchmarks.jobs_functions"}
        with _worker("tidegate.jobs.celery", environment) if broker else _nothing():
            os.environ.update(environment)
            gate = Tidegate(settings=Settings.read())
            noop = gate.job(jobs_functions.nothing)
            noop.name, noop.place = "noop", jobs_functions.noop.place
            gate.jobs._declared.clear()  # noqa: SLF001  (known by the name that the worker has)
            gate.jobs._declared["noop"] = noop  # noqa: SLF001

            async def ended() -> int:
                return sum(n for (_, state), n in (await gate.jobs.counts()).items() if state == "done")

            async with gate, gate.worker():
                await measure(noop.submit, ended, WARM_UP, 1)
                return {str(n): await measure(noop.submit, ended, jobs, n) for n in (1, AT_ONCE)}


async def of_executor(jobs: int) -> dict[str, Result]:
    done = 0

    async def ended() -> int:
        return done

    with ProcessPoolExecutor(WORKERS) as pool:

        async def submit(number: int) -> None:
            def count(_: object) -> None:
                nonlocal done
                done += 1

            pool.submit(jobs_functions.nothing, number).add_done_callback(count)

        await measure(submit, ended, WARM_UP, 1)
        return {str(n): await measure(submit, ended, jobs, n) for n in (1, AT_ONCE)}


async def of_celery(jobs: int, broker: str) -> dict[str, Result]:
    environment = {"CELERY_BROKER_URL": broker}
    jobs_functions.plain.conf.update(broker_url=broker)
    counter = redis.Redis.from_url(broker)

    async def submit(number: int) -> None:
        await asyncio.to_thread(jobs_functions.plain_noop.delay, number, "ended")

    async def ended() -> int:
        return int(await asyncio.to_thread(counter.get, "ended") or 0)

    with _worker("benchmarks.jobs_functions:plain", environment):
        await measure(submit, ended, WARM_UP, 1)
        return {str(n): await measure(submit, ended, jobs, n) for n in (1, AT_ONCE)}


@contextmanager
def _worker(app: str, environment: dict[str, str]) -> Iterator[None]:
    command = [
        str(Path(sys.executable).with_name("celery")),
        "-A",
        app,
        "worker",
        "-c",
        str(WORKERS),
        "-l",
        "INFO",
    ]
    variables = os.environ | environment | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(  # noqa: S603  (composed here)
        command,
        env=variables,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if b" ready." in line:
                break
        drain = subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL)  # noqa: S607
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            drain.wait()


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@asynccontextmanager
async def _redis() -> AsyncIterator[str]:
    with redis_server() as server:
        yield server.url


async def run(jobs: int) -> dict[str, dict[str, Result]]:
    found = {"Tidegate, process pool": await of_tidegate(jobs, None)}
    found["ProcessPoolExecutor (keeps nothing)"] = await of_executor(jobs)
    async with _redis() as broker:
        found["Tidegate, Celery with Redis"] = await of_tidegate(jobs, broker)
        found["Celery alone, Redis"] = await of_celery(jobs, broker)
    return found


def table(found: dict[str, dict[str, Result]]) -> Table:
    shown = Table("", "at once", "submitted/s", "submit p99", "run/s", box=MARKDOWN)
    for name, by_number in found.items():
        for number, one in by_number.items():
            shown.add_row(
                name,
                number,
                f"{one['submitted_per_s']:,}",
                f"{one['submit_p99_ms']} ms",
                f"{one['run_per_s']:,}",
            )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    found = asyncio.run(run(given.jobs))
    if given.json:
        print(json.dumps({"jobs": given.jobs, "load": load, "found": found}))
        return
    Console(width=120).print(table(found))
    print(f"{given.jobs:,} jobs each; load {load:.1f} at the start")


if __name__ == "__main__":
    main()
