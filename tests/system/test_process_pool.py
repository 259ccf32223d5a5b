"""A pool of real processes: what comes back, what happens if one dies, and that none is left."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from system import pool_functions
from tidegate.clock import Clock
from tidegate.jobs import process_pool
from tidegate.jobs.job import FunctionPlace, Job, JobOptions
from tidegate.jobs.process_pool import ProcessPool
from tidegate.jobs.record import JobCrashed, JobDone, JobFailed, JobOutcome, JobRecord
from tidegate.model import File

JOBS = dict(pool_functions.gate.jobs.declared)


@pytest.fixture
async def pool() -> AsyncIterator[ProcessPool]:
    made = ProcessPool(JOBS, Clock(), size=2)
    yield made
    await made.stop()
    assert made.pids == []


def job(name: str, *args: object, **kwargs: object) -> JobRecord:
    timeout = JOBS[name].options_of_job.timeout if name in JOBS else 30.0
    return JobRecord(id=1, name=name, args=args, kwargs=dict(kwargs), created_at=0.0, timeout=timeout)


async def result(pool: ProcessPool, name: str, *args: object, **kwargs: object) -> Any:  # noqa: ANN401
    outcome = await pool.run(job(name, *args, **kwargs))
    assert isinstance(outcome, JobDone), outcome
    return outcome.result


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").exists() and bool(Path(f"/proc/{pid}/cmdline").read_bytes())


async def test_values_go_there_and_come_back(pool: ProcessPool) -> None:
    values = [1, "ä", b"\xff", [None, 2.5], File(content=b"x")]
    assert await result(pool, "echo", *values, note="n") == [*values, {"note": "n"}]
    found = await result(pool, "document")
    assert found["document"] == File(content=b"%PDF" * 500_000, name="a.pdf")


async def test_a_process_is_used_again(pool: ProcessPool) -> None:
    assert await result(pool, "pid") == await result(pool, "pid") != os.getpid()


async def test_no_process_is_lost_when_one_comes_back_while_another_is_started(
    pool: ProcessPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that came back was forgotten: it lived on beside the pool, which then started more."""
    sign = tmp_path / "go"
    first = asyncio.create_task(result(pool, "pid", str(sign)))
    while len(pool.pids) < 1:
        await asyncio.to_thread(lambda: None)
    starting, go_on = asyncio.Event(), asyncio.Event()
    start = process_pool.PoolProcess.start

    async def slowly() -> process_pool.PoolProcess:
        starting.set()
        await go_on.wait()
        return await start()

    monkeypatch.setattr(process_pool.PoolProcess, "start", slowly)
    second = asyncio.create_task(result(pool, "pid"))
    await starting.wait()
    await asyncio.to_thread(sign.touch)
    one = await first
    go_on.set()
    two = await second

    assert sorted(pool.pids) == sorted({one, two})


async def test_a_program_that_a_job_starts_does_not_take_the_calls_of_the_next_jobs(
    pool: ProcessPool,
) -> None:
    """It inherited the pipe of the calls, and hung or swallowed the next one."""
    outcomes = [await pool.run(job("runs_a_program_that_reads_its_input")) for _ in range(2)]
    assert outcomes == [JobDone(0), JobDone(0)]
    assert len(pool.pids) == 1


@pytest.mark.parametrize(
    ("name", "args", "outcome"),
    [
        ("leaves", (3,), JobCrashed("its process ended with code 3")),
        ("exits", (), JobFailed("SystemExit: enough (system/pool_functions.py:")),
        ("broken", ("no\0 42:aaaaaaaaaaaaaaaaaaaaaaaaaaaa",), JobFailed("ValueError: no\0 42:… (system/")),
        ("returns_a_set", (), JobFailed("BadInputError: job returns_a_set: its result is of type set")),
        ("endless", (), JobFailed("it took longer than 0.5 s, and was ended")),
    ],
)
async def test_what_becomes_of_a_job_that_goes_wrong_and_the_next_one_runs(
    pool: ProcessPool, name: str, args: tuple[object, ...], outcome: JobOutcome
) -> None:
    found = await pool.run(job(name, *args))
    assert type(found) is type(outcome)
    assert isinstance(found, JobFailed | JobCrashed)
    assert isinstance(outcome, JobFailed | JobCrashed)
    assert found.error.startswith(outcome.error)
    assert pool.room == 2
    assert await result(pool, "echo", 1) == [1, {}]


async def test_a_function_that_is_not_there_any_more_fails_for_good(pool: ProcessPool) -> None:
    def gone() -> None: ...

    gone.__qualname__, gone.__module__ = "gone", pool_functions.__name__
    jobs: Any = None
    pool._jobs["gone"] = Job(gone, jobs, JobOptions())  # noqa: SLF001  (as after a change of the module)
    try:
        found = await pool.run(job("gone"))
    finally:
        del pool._jobs["gone"]  # noqa: SLF001
    assert found == JobFailed("there is no job gone in system.pool_functions any more", final=True)


async def test_a_module_that_cannot_be_imported_is_named(pool: ProcessPool) -> None:
    declared = JOBS["echo"]
    place = declared.place
    declared.place = msgspec.structs.replace(place, module="system.no_such_module")
    try:
        found = await pool.run(job("echo"))
    finally:
        declared.place = FunctionPlace(place.module, place.name)
    assert isinstance(found, JobFailed)
    assert not found.final
    assert "no_such_module" in found.error


async def test_a_run_that_is_cancelled_ends_its_process(pool: ProcessPool) -> None:
    running = asyncio.create_task(pool.run(msgspec.structs.replace(job("endless"), timeout=60.0)))
    while not pool.pids:
        await asyncio.to_thread(lambda: None)
    [pid] = pool.pids
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert pool.pids == []
    assert not await asyncio.to_thread(is_alive, pid)
    assert pool.room == 2


async def test_a_process_without_work_is_ended_after_a_while(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_pool, "IDLE_SECONDS", 0.05)
    pid = await result(pool, "pid")
    while pool.pids:
        await asyncio.to_thread(lambda: None)
    await pool._tasks.join()  # noqa: SLF001  (its end)
    assert not await asyncio.to_thread(is_alive, pid)
    assert await result(pool, "pid") != pid
