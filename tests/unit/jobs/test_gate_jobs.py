"""`gate.jobs` on virtual time: a job that is submitted runs, and its chat hears of it once."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from memory_jobs import MemoryJobs
from tidegate import Tidegate
from tidegate.jobs.jobs import Jobs
from tidegate.jobs.record import JobDone, JobFailed, JobOutcome, JobRecord, JobState
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock
from unit.jobs.office_jobs import CHAT, ScriptedExecutor, label, mail


@pytest.fixture
def telegram(clock: VirtualClock) -> SimulatedTelegram:
    return SimulatedTelegram(clock)


@pytest.fixture
def store(clock: VirtualClock) -> MemoryJobs:
    return MemoryJobs(clock)


@pytest.fixture
def executor(clock: VirtualClock) -> ScriptedExecutor:
    return ScriptedExecutor(clock)


@pytest.fixture
async def gate(
    clock: VirtualClock, telegram: SimulatedTelegram, store: MemoryJobs, executor: ScriptedExecutor
) -> AsyncIterator[Tidegate]:
    made = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock))
    made.add_bot("42:token")

    async def exist() -> bool:
        return True

    made.core.jobs = Jobs(made.core, lambda: store, exist, lambda _: executor)
    async with made:
        yield made


def texts(telegram: SimulatedTelegram) -> list[tuple[Any, str | None]]:
    return [(entry.chat_id, entry.text) for entry in telegram.request_log.log]


async def test_a_job_runs_while_the_bot_runs_and_its_chat_gets_the_result(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    job = gate.job(label)
    ticket = await job.options(chat_id=CHAT).submit(7)
    await clock.sleep(10.0)
    assert await gate.jobs.queue_length() == 1

    async with gate.worker():
        ended = await ticket.ended(timeout=10.0)
        await clock.sleep(2.0)

    assert (ended.state, ended.result) == (JobState.DONE, "label is ready")
    assert texts(telegram) == [(CHAT, "label is ready")]
    assert await gate.jobs.queue_length() == 0


async def test_a_job_that_is_declared_while_the_bot_runs_is_run(gate: Tidegate, clock: VirtualClock) -> None:
    async with gate.worker():
        await clock.sleep(10.0)
        ticket = await gate.job(label).submit(7)
        assert (await ticket.ended(timeout=10.0)).state is JobState.DONE


async def test_a_chat_hears_once_of_a_job_that_died_and_again_after_a_retry(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram, executor: ScriptedExecutor
) -> None:
    async def fails_at_first(job: JobRecord) -> JobOutcome:
        return JobFailed("no") if job.token <= 2 else JobDone("at last")

    executor.behaviour = fails_at_first
    ticket = await gate.job(retries=1, pause=5.0, failed_text="Sorry")(mail).options(chat_id=CHAT).submit("a")
    async with gate.worker():
        assert (await ticket.ended(timeout=20.0)).state is JobState.DEAD
        await clock.sleep(300.0)
        assert [job.id for job in await gate.jobs.retry(ticket.id)] == [ticket.id]
        assert (await ticket.ended(timeout=20.0)).state is JobState.DONE
        await clock.sleep(300.0)

    assert texts(telegram) == [(CHAT, "Sorry"), (CHAT, "at last")]


async def test_a_database_that_is_away_holds_the_jobs_and_nothing_else(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram, store: MemoryJobs
) -> None:
    ticket = await gate.job(label).options(chat_id=CHAT).submit(7)
    store.away = True
    async with gate.worker():
        await clock.sleep(5.0)
        await gate.send(chat_id=CHAT, text="still here")
        await clock.sleep(30.0)
        assert texts(telegram) == [(CHAT, "still here")]
        assert "jobs wait: the database cannot be reached" in gate.health().reasons
        store.away = False
        assert (await ticket.ended(timeout=60.0)).state is JobState.DONE
        await clock.sleep(60.0)
        assert gate.health().reasons == ()

    assert texts(telegram)[1:] == [(CHAT, "label is ready")]


async def test_jobs_are_run_until_the_last_worker_of_the_process_has_stopped(
    gate: Tidegate, clock: VirtualClock, executor: ScriptedExecutor
) -> None:
    job = gate.job(label)
    async with gate.worker():
        async with gate.worker():
            await job.submit(1)
            await clock.sleep(3.0)
        await job.submit(2)
        await clock.sleep(3.0)
        assert not executor.is_stopped
    await job.submit(3)
    await clock.sleep(3.0)

    assert executor.is_stopped
    assert len(executor.begun) == 2
    async with gate.worker():
        await clock.sleep(3.0)
    assert len(executor.begun) == 3


async def test_a_cancelled_job_ends_at_once_and_its_chat_hears_nothing(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram, executor: ScriptedExecutor
) -> None:
    executor._seconds = 100.0  # noqa: SLF001  (how long a job takes)
    ticket = await gate.job(label).options(chat_id=CHAT).submit(7)
    async with gate.worker():
        await clock.sleep(3.0)
        assert await ticket.cancel()
        await clock.sleep(0.1)
        assert executor.cut_off == [(ticket.id, 1)]
        await clock.sleep(200.0)

    assert texts(telegram) == []


async def test_what_is_forgotten_of_a_chat_is_gone_and_does_not_come_back(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram, executor: ScriptedExecutor
) -> None:
    executor._seconds = 10.0  # noqa: SLF001
    job = gate.job(label)
    await job.options(chat_id=CHAT).submit(1)
    await job.options(chat_id=CHAT).submit(2)
    other = await job.options(chat_id=CHAT + 1).submit(3)
    async with gate.worker():
        await clock.sleep(3.0)
        assert await gate.jobs.forget(CHAT) == 2
        assert (await other.ended(timeout=30.0)).state is JobState.DONE
        await clock.sleep(30.0)

    assert texts(telegram) == [(CHAT + 1, "label is ready")]
    assert [one.id for one in await gate.jobs.list()] == [other.id]
