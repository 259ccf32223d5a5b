"""The runner of jobs: what becomes of them when the database, the process or a person gets in the way."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from memory_jobs import MemoryJobs
from tidegate.jobs.port import JobLease
from tidegate.jobs.record import (
    JobCrashed,
    JobDone,
    JobFailed,
    JobOutcome,
    JobRecord,
    JobReturned,
    JobState,
)
from tidegate.jobs.runner import (
    CLEAN_EVERY,
    POLL_EVERY,
    RUN_LEASE,
    SENT_LEASE,
    STOP_GRACE,
    JobRunner,
    settle_attempt,
)
from tidegate.sim.virtual_time import VirtualClock
from unit.jobs.office_jobs import ScriptedExecutor, add, declared, get

KEEP = 2 * CLEAN_EVERY
FOREVER = 10_000.0


@pytest.fixture
def store(clock: VirtualClock) -> MemoryJobs:
    return MemoryJobs(clock)


@pytest.fixture
def executor(clock: VirtualClock) -> ScriptedExecutor:
    return ScriptedExecutor(clock)


@asynccontextmanager
async def running(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock, ended: list[float] | None = None
) -> AsyncIterator[JobRunner]:
    def on_end() -> None:
        if ended is not None:
            ended.append(clock.now())

    async with JobRunner(store, executor, clock, declared(), keep=KEEP, on_end=on_end) as runner:
        yield runner


async def hangs(_: JobRecord) -> JobOutcome:
    await asyncio.Event().wait()
    raise AssertionError


async def test_jobs_that_are_due_run_and_no_more_than_there_is_room_for(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    jobs = await add(store, 7)
    began, ended = clock.now(), list[float]()
    async with running(store, executor, clock, ended):
        await clock.sleep(4.5)

    assert {job.state for job in await store.find()} == {JobState.DONE}
    assert [number for number, _ in executor.begun] == [job.id for job in jobs]
    assert executor.most == 2
    assert [round(at - began) for at in ended] == [1, 1, 2, 2, 3, 3, 4]
    assert executor.is_stopped


async def test_a_job_of_another_process_is_found_and_one_of_this_process_begins_at_once(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    async with running(store, executor, clock) as runner:
        await clock.sleep(10.3)
        await add(store)
        await clock.sleep(POLL_EVERY)
        assert len(executor.begun) == 1

        await add(store)
        runner.wake()
        await clock.sleep(0.01)
        assert len(executor.begun) == 2


async def test_a_job_with_a_delay_begins_at_its_time(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    [job] = await add(store, delay=90.5)
    async with running(store, executor, clock):
        await clock.sleep(100.0)

    assert ((await get(store, job)).started_at or 0.0) - job.created_at == pytest.approx(90.5, abs=0.06)


async def test_the_database_is_asked_seldom_while_there_is_nothing_to_do(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    await add(store, delay=500.0)
    async with running(store, executor, clock):
        await clock.sleep(100.0)

    assert store.calls["claim"] <= 100 / POLL_EVERY + 2
    assert store.calls["renew"] == 0


async def test_a_job_that_fails_runs_again_after_its_pause_and_dies_after_its_retries(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(_: JobRecord) -> JobOutcome:
        return JobFailed("ValueError: no such order (shop/tasks.py:7)")

    executor.behaviour = fails
    [job] = await add(store, retries=2, pause=60.0)
    async with running(store, executor, clock):
        await clock.sleep(200.0)

    found = await get(store, job)
    assert (found.state, found.attempts, len(executor.begun)) == (JobState.DEAD, 3, 3)
    assert ((found.ended_at or 0.0) - job.created_at) == pytest.approx(120.0, abs=1.0)
    lines = [record.getMessage() for record in caplog.records if record.name == "tidegate.jobs"]
    assert [line.split(": ")[0] for line in lines] == [
        f"job {job.id} (label) has failed, and runs again in 60 s",
        f"job {job.id} (label) has failed, and runs again in 60 s",
        f"job {job.id} (label) is dead",
    ]


async def test_a_job_whose_process_died_runs_again_at_once(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    async def dies_once(job: JobRecord) -> JobOutcome:
        return JobCrashed("killed by signal 9") if job.token == 1 else JobDone("ready")

    executor.behaviour = dies_once
    [job] = await add(store)
    async with running(store, executor, clock):
        await clock.sleep(1.0)

    found = await get(store, job)
    assert (found.state, found.crashes, found.attempts) == (JobState.DONE, 1, 0)


async def test_an_executor_that_fails_gives_the_job_back_and_the_others_run(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def cannot_start(job: JobRecord) -> JobOutcome:
        if job.token == 1 and job.id == 1:
            raise OSError("no more processes")
        return JobDone("ready")

    executor.behaviour = cannot_start
    first, second = await add(store, 2, pause=30.0)
    async with running(store, executor, clock):
        await clock.sleep(1.0)
        assert (await get(store, first)).state is JobState.QUEUED
        assert (await get(store, second)).state is JobState.DONE
        await clock.sleep(30.0)

    found = await get(store, first)
    assert (found.state, found.attempts, found.crashes) == (JobState.DONE, 0, 0)
    assert "could not be started" in caplog.text


async def test_jobs_that_workers_elsewhere_run_are_left_to_them(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    async def sends(_: JobRecord) -> None:
        return None

    executor.behaviour = sends
    executor.claims_as = JobState.SENT
    [job] = await add(store)
    async with running(store, executor, clock):
        await clock.sleep(SENT_LEASE - 2.0)
        found = await get(store, job)
        assert (found.state, found.token) == (JobState.SENT, 1)
        await clock.sleep(4.0)  # nobody has begun: the broker may have lost it

    assert executor.begun == [(job.id, 1), (job.id, 2)]
    assert store.calls["renew"] == store.calls["settle"] == 0


async def test_jobs_that_ended_long_ago_are_forgotten(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    [job] = await add(store)
    async with running(store, executor, clock):
        await clock.sleep(5.0)
        await store.reported(JobLease(job.id, 1))
        await clock.sleep(KEEP - 10.0)
        assert await store.get([job.id])
        await clock.sleep(CLEAN_EVERY + 10.0)
        assert not await store.get([job.id])


async def test_a_long_job_keeps_its_lease(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    executor._seconds = 10 * RUN_LEASE  # noqa: SLF001  (how long a job takes)
    [job] = await add(store)
    async with running(store, executor, clock):
        await clock.sleep(10 * RUN_LEASE + 1.0)

    found = await get(store, job)
    assert (found.state, found.token, found.crashes) == (JobState.DONE, 1, 0)


async def test_a_process_does_not_claim_what_it_still_runs_after_an_outage_of_the_database(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    """Its own leases had run out: each job was begun a second time, and a crash was counted."""
    executor._seconds = 120.0  # noqa: SLF001
    [job] = await add(store)
    async with running(store, executor, clock) as runner:
        await clock.sleep(1.0)
        store.away = True
        await clock.sleep(3 * RUN_LEASE)
        store.away = False
        runner.wake()  # a job was submitted: it looks before the next renewal
        await clock.sleep(120.0)

    found = await get(store, job)
    assert executor.begun == [(job.id, 1)]
    assert (found.state, found.crashes) == (JobState.DONE, 0)


async def test_an_end_during_an_outage_is_noted_when_it_is_over(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    executor._seconds = 5.0  # noqa: SLF001
    [job] = await add(store)
    async with running(store, executor, clock) as runner:
        await clock.sleep(1.0)
        store.away = True
        await clock.sleep(60.0)
        assert runner.problems() == ["jobs wait: the database cannot be reached"]
        store.away = False
        await clock.sleep(40.0)
        assert runner.problems() == []

    found = await get(store, job)
    assert (found.state, found.result, found.crashes) == (JobState.DONE, "label is ready", 0)
    assert executor.begun == [(job.id, 1)]
    assert caplog.text.count("the end of job 1 cannot be noted yet") == 1
    assert caplog.text.count("jobs wait until this is mended, and nothing is lost") == 1


async def test_while_the_database_is_away_it_is_asked_less_and_less(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    store.away = True
    async with running(store, executor, clock):
        await clock.sleep(600.0)
        assert store.calls["claim"] + store.calls["renew"] < 30
        store.away = False
        [job] = await add(store)
        await clock.sleep(35.0)
        assert (await get(store, job)).state is JobState.DONE


async def test_a_run_whose_job_another_process_has_taken_is_ended_and_settles_nothing(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    executor.behaviour = hangs
    [job] = await add(store)
    async with running(store, executor, clock):
        await clock.sleep(1.5)
        await store.settle(JobLease(job.id, 1), JobReturned())
        [elsewhere] = await store.claim(["label"], 1, FOREVER)
        await clock.sleep(RUN_LEASE / 3)

        assert executor.cut_off == [(job.id, 1)]
        assert await get(store, job) == elsewhere


async def test_the_end_of_a_run_whose_lease_is_lost_changes_nothing_and_is_logged(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    executor._seconds = 2.0  # noqa: SLF001
    [job] = await add(store)
    async with running(store, executor, clock):
        await clock.sleep(1.0)
        await store.cancel([job.id])  # by another process
        await clock.sleep(2.0)

    assert (await get(store, job)).state is JobState.CANCELLED
    assert "has ended too late: it was cancelled, or runs elsewhere" in caplog.text


async def test_a_job_that_is_cancelled_while_it_runs_is_ended_at_once(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    executor.behaviour = hangs
    [job] = await add(store)
    async with running(store, executor, clock) as runner:
        await clock.sleep(1.0)
        runner.drop(one.id for one in await store.cancel([job.id]))
        await clock.sleep(0.01)

        assert executor.cut_off == [(job.id, 1)]
        assert executor.room == 2
    assert (await get(store, job)).state is JobState.CANCELLED
    assert store.calls["settle"] == 0


async def test_a_job_that_another_process_has_cancelled_is_ended_within_seconds(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    executor.behaviour = hangs
    [job] = await add(store)
    async with running(store, executor, clock):
        await clock.sleep(1.0)
        await store.cancel([job.id])
        await clock.sleep(RUN_LEASE / 3 + 0.1)
        assert executor.cut_off == [(job.id, 1)]


async def test_a_job_that_is_retried_while_its_cancelled_run_still_ends_keeps_its_lease(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    """The end of the first run took the lease of the second away: that was never settled, or ran twice."""

    async def ends_slowly(job: JobRecord) -> JobOutcome:
        try:
            await clock.sleep(3 * RUN_LEASE)
        except asyncio.CancelledError:
            await clock.sleep(2.0)  # to kill a process takes time
            raise
        return JobDone(f"run {job.token}")

    executor.behaviour = ends_slowly
    [job] = await add(store)
    async with running(store, executor, clock) as runner:
        await clock.sleep(1.0)
        runner.drop(one.id for one in await store.cancel([job.id]))
        await store.retry([job.id])
        runner.wake()
        await clock.sleep(0.01)
        assert executor.running == {(job.id, 1), (job.id, 2)}
        await clock.sleep(3 * RUN_LEASE + 5.0)

    found = await get(store, job)
    assert (found.state, found.result, found.crashes) == (JobState.DONE, "run 2", 0)
    assert executor.begun == [(job.id, 1), (job.id, 2)]


async def test_a_job_that_is_cancelled_before_its_task_has_begun_can_be_retried(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    """It stayed marked as lost, so that its second run was never settled."""
    jobs = declared()
    runner = JobRunner(store, executor, clock, jobs, keep=KEEP, on_end=lambda: None)
    [job] = await add(store)
    [claimed] = await store.claim(jobs, 1, RUN_LEASE)
    runner._begin(claimed)  # noqa: SLF001  (its task has not begun: nothing was awaited)
    cancelling = asyncio.create_task(store.cancel([job.id]))
    runner.drop([job.id])
    await cancelling
    await store.retry([job.id])
    async with runner:
        await clock.sleep(3.0)

    assert (await get(store, job)).state is JobState.DONE
    assert executor.begun == [(job.id, 2)]


async def test_a_renewal_beside_the_end_of_a_job_does_not_hide_how_it_ended(
    executor: ScriptedExecutor, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The renewal found the lease gone, as the job had just died of it, and cut its last line off."""

    class SlowToAnswer(MemoryJobs):
        async def settle(self, lease: JobLease, outcome: JobOutcome) -> JobRecord | None:
            after = await super().settle(lease, outcome)
            await clock.sleep(RUN_LEASE)  # it is committed, and the answer is on its way
            return after

    async def fails(_: JobRecord) -> JobOutcome:
        return JobFailed("no", final=True)

    slow, executor.behaviour = SlowToAnswer(clock), fails
    await add(slow)
    async with running(slow, executor, clock):
        await clock.sleep(RUN_LEASE + 1.0)

    assert "job 1 (label) is dead: no" in caplog.text


async def test_a_stop_waits_a_moment_for_jobs_that_run(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    executor._seconds = STOP_GRACE - 1.0  # noqa: SLF001
    [job] = await add(store)
    async with running(store, executor, clock):
        await clock.sleep(0.5)

    assert (await get(store, job)).state is JobState.DONE


async def test_a_stop_gives_jobs_back_that_take_longer_and_counts_nothing(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    executor.behaviour = hangs
    running_one, waiting_one, _ = await add(store, 3)
    async with running(store, executor, clock):
        await clock.sleep(1.0)
    began = clock.now()

    assert await store.claim(["label"], 1, RUN_LEASE)
    found = await get(store, running_one)
    assert (found.crashes, found.attempts) == (0, 0)
    assert (await get(store, waiting_one)).crashes == 0
    assert clock.now() == began
    assert caplog.text.count("was cut off by a stop: it runs again, from its start") == 2
    assert f"waiting up to {STOP_GRACE:g} s for 2 tasks" in caplog.text


async def test_a_job_that_has_ended_when_the_grace_is_over_is_noted_and_does_not_run_again(
    executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    """The stop cut the settlement off: the result was lost."""

    class SlowToSettle(MemoryJobs):
        async def settle(self, lease: JobLease, outcome: JobOutcome) -> JobRecord | None:
            await clock.sleep(2.0)
            return await super().settle(lease, outcome)

    slow = SlowToSettle(clock)
    executor._seconds = STOP_GRACE  # noqa: SLF001
    [job] = await add(slow)
    async with running(slow, executor, clock):
        await clock.sleep(1.0)

    found = await get(slow, job)
    assert (found.state, found.result) == (JobState.DONE, "label is ready")


async def test_leases_are_renewed_until_the_stop_has_given_the_jobs_back(
    executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    class SlowToClaim(MemoryJobs):
        async def claim(self, *args: object, **kwargs: object) -> list[JobRecord]:
            got = await super().claim(*args, **kwargs)  # type: ignore[arg-type]  # as they are
            if not got:
                await clock.sleep(FOREVER)
            return got

        async def settle(self, lease: JobLease, outcome: JobOutcome) -> JobRecord | None:
            await clock.sleep(STOP_GRACE - 0.5)
            return await super().settle(lease, outcome)

    slow, executor.behaviour = SlowToClaim(clock), hangs
    [job] = await add(slow)
    leases: list[float] = []

    async def watch() -> None:
        while (found := await get(slow, job)).state is JobState.RUNNING:
            leases.append((found.due_at or 0.0) - clock.now())
            await clock.sleep(0.5)

    async with running(slow, executor, clock):
        await clock.sleep(4.5)
        watching = asyncio.create_task(watch())
    await watching

    assert min(leases) > 0.0
    assert (await get(slow, job)).state is JobState.QUEUED


async def test_a_stop_while_the_database_is_away_ends_in_bounded_time_and_loses_no_job(
    store: MemoryJobs, executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    executor.behaviour = hangs
    [job] = await add(store)
    async with running(store, executor, clock):
        await clock.sleep(1.0)
        store.away = True
        began = clock.now()
    took = clock.now() - began
    store.away = False

    assert took <= 3 * STOP_GRACE + 0.1
    assert executor.is_stopped
    await clock.sleep(RUN_LEASE)
    assert [one.id for one in await store.claim(["label"], 1, RUN_LEASE)] == [job.id]


async def test_what_was_claimed_during_a_stop_is_given_back(
    executor: ScriptedExecutor, clock: VirtualClock
) -> None:
    class SlowToAnswer(MemoryJobs):
        async def claim(self, *args: object, **kwargs: object) -> list[JobRecord]:
            got = await super().claim(*args, **kwargs)  # type: ignore[arg-type]  # as they are
            await clock.sleep(1.0)
            return got

    slow, executor.behaviour = SlowToAnswer(clock), hangs
    [job] = await add(slow)
    async with running(slow, executor, clock):
        await clock.sleep(0.5)

    found = await get(slow, job)
    assert (found.state, found.crashes, found.token) == (JobState.QUEUED, 0, 1)


@pytest.mark.parametrize("seconds", [0.3, 1.0, 2.7, 5.2, 7.9])
async def test_no_job_is_lost_or_run_by_two_at_once_whatever_happens(
    clock: VirtualClock, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Two processes, outages, cancellations and restarts: each job ends once, in one run."""
    caplog.set_level(logging.CRITICAL)
    store = MemoryJobs(clock)
    executors = [ScriptedExecutor(clock, 3, seconds) for _ in range(6)]
    jobs = await add(store, 40, retries=0)

    async def process(executor: ScriptedExecutor, lifetime: float) -> None:
        async with running(store, executor, clock) as runner:
            for _ in range(3):
                await clock.sleep(lifetime)
                runner.drop(one.id for one in await store.cancel([jobs[len(executor.begun)].id]))

    async def outages() -> None:
        for _ in range(3):
            await clock.sleep(9.0)
            store.away = True
            await clock.sleep(4.0)  # shorter than a lease: longer ones may double a run
            store.away = False

    troubled = asyncio.create_task(outages())
    for pair in range(2):
        lives = [process(executor, 2.0 + seconds) for executor in executors[2 * pair : 2 * pair + 2]]
        await asyncio.gather(*lives, return_exceptions=True)
    await troubled
    async with running(store, executors[4], clock):
        await clock.sleep(40 * seconds + 60.0)

    found = await store.find()
    assert {job.state for job in found} <= {JobState.DONE, JobState.CANCELLED}
    assert len(found) == 40
    begun = [mark for executor in executors for mark in executor.begun]
    assert len(begun) == len(set(begun))
    assert not any(executor.running for executor in executors)


async def test_a_job_that_is_done_after_a_crash_is_not_said_to_have_failed(
    store: MemoryJobs, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The log said that it had failed, and ran again, when it was done."""
    await add(store)
    await store.claim(["label"], 1, RUN_LEASE)
    await clock.sleep(RUN_LEASE + 1.0)
    [again] = await store.claim(["label"], 1, RUN_LEASE)
    assert (again.crashes, again.error is None) == (1, False)
    caplog.clear()

    await settle_attempt(store, clock, again, JobDone("ready"))

    assert (await get(store, again)).state is JobState.DONE
    assert "has failed" not in caplog.text
