"""The reporter of jobs: what a chat and a callback hear of an end, and what if that fails."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from contract.post import ROOMY
from memory_jobs import MemoryJobs
from tidegate.errors import StoreFullError
from tidegate.events import EventStream
from tidegate.jobs.job import FAILED_TEXT, Job
from tidegate.jobs.port import JobLease
from tidegate.jobs.record import JobDone, JobFailed, JobOutcome, JobRecord
from tidegate.jobs.reporter import (
    CALLBACK_DEADLINE,
    POLL_EVERY,
    REPORT_FOR,
    REPORT_LEASE,
    REPORTS_AT_ONCE,
    JobReporter,
)
from tidegate.model import File, Message, Ticket
from tidegate.outbox.producer import Producer
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.outbox import MemoryOutbox
from unit.jobs.office_jobs import BOT, CHAT, add, declared

DEAD = JobFailed("ValueError: no", final=True)


class RecordingOutbox(MemoryOutbox):
    """Keeps what was put and was not there yet. `is_full`: it takes nothing."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock, ROOMY, lease=30.0, keep=600.0)
        self.accepted: list[Message] = []
        self.puts = 0
        self.is_full = False

    async def put(self, messages: Sequence[Message]) -> list[Ticket]:
        self.puts += 1
        if self.is_full:
            raise StoreFullError("no room")
        tickets = await super().put(messages)
        self.accepted += [message for message, ticket in zip(messages, tickets, strict=True) if ticket.fresh]
        return tickets


@pytest.fixture
def store(clock: VirtualClock) -> MemoryJobs:
    return MemoryJobs(clock)


@pytest.fixture
async def outbox(clock: VirtualClock) -> AsyncIterator[RecordingOutbox]:
    made = RecordingOutbox(clock)
    await made.open()
    yield made
    await made.close()


@asynccontextmanager
async def reporting(
    store: MemoryJobs,
    outbox: RecordingOutbox,
    clock: VirtualClock,
    jobs: dict[str, Job[..., Any]] | None = None,
) -> AsyncIterator[JobReporter]:
    async with JobReporter(
        store, Producer(outbox, clock, EventStream()), clock, jobs or declared()
    ) as reporter:
        yield reporter


async def ended(store: MemoryJobs, outcome: JobOutcome, **fields: Any) -> JobRecord:  # noqa: ANN401
    """A job that has run and ended so."""
    [job] = await add(store, **fields)
    [claimed] = await store.claim([job.name], 1, 60.0)
    after = await store.settle(JobLease(claimed.id, claimed.token), outcome)
    assert after is not None
    return after


async def are_all_reported(store: MemoryJobs, clock: VirtualClock) -> bool:
    await clock.sleep(2 * REPORT_LEASE)
    return await store.claim_ended(declared(), 100, 0.0) == []


def texts(outbox: RecordingOutbox) -> list[str]:
    return [message.params["text"] for message in outbox.accepted]


@pytest.mark.parametrize(
    ("outcome", "text"), [(JobDone("Your label is ready"), "Your label is ready"), (DEAD, FAILED_TEXT)]
)
async def test_the_chat_gets_the_result_or_hears_that_it_has_failed(
    store: MemoryJobs, outbox: RecordingOutbox, clock: VirtualClock, outcome: JobOutcome, text: str
) -> None:
    job = await ended(store, outcome)
    async with reporting(store, outbox, clock):
        await clock.sleep(POLL_EVERY)

    [message] = outbox.accepted
    assert (message.bot, message.chat_id, message.params["text"]) == (BOT, CHAT, text)
    assert message.dedup_key == job.message_key
    assert await are_all_reported(store, clock)


async def test_the_fields_of_a_message_are_sent_with_their_file_to_the_chat_of_the_job(
    store: MemoryJobs, outbox: RecordingOutbox, clock: VirtualClock
) -> None:
    pdf = File(content=b"%PDF", name="label.pdf")
    fields = {"method": "sendDocument", "document": pdf, "caption": "Here", "chat_id": 666, "dedup_key": "x"}
    job = await ended(store, JobDone(fields))
    async with reporting(store, outbox, clock):
        await clock.sleep(POLL_EVERY)

    [message] = outbox.accepted
    assert (message.method, message.chat_id, message.dedup_key) == ("sendDocument", CHAT, job.message_key)
    assert message.params == {"document": pdf, "caption": "Here"}


@pytest.mark.parametrize(
    ("outcome", "fields", "options"),
    [
        (JobDone(None), {}, {}),
        (JobDone("nobody hears it"), {"chat_id": None, "bot": None}, {}),
        (DEAD, {}, {"failed_text": None}),
    ],
)
async def test_there_is_no_message_without_a_result_or_a_chat_or_a_text(
    store: MemoryJobs,
    outbox: RecordingOutbox,
    clock: VirtualClock,
    outcome: JobOutcome,
    fields: dict[str, Any],
    options: dict[str, Any],
) -> None:
    await ended(store, outcome, **fields)
    async with reporting(store, outbox, clock, declared(**options)):
        await clock.sleep(POLL_EVERY)

    assert outbox.accepted == []
    assert await are_all_reported(store, clock)


@pytest.mark.parametrize(
    "result", [17, ["a"], b"pdf", File(content=b"pdf"), {"txt": "a"}, {"text": "x" * 5_000}, "", {}]
)
async def test_a_result_that_is_no_message_is_logged_and_the_chat_hears_that_it_has_failed(
    store: MemoryJobs,
    outbox: RecordingOutbox,
    clock: VirtualClock,
    result: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await ended(store, JobDone(result))
    async with reporting(store, outbox, clock):
        await clock.sleep(POLL_EVERY)

    assert texts(outbox) == [FAILED_TEXT]
    assert caplog.text.count("the message of job 1 (label) cannot be sent") == 1
    assert await are_all_reported(store, clock)


async def test_jobs_of_unknown_names_are_left_to_those_that_know_them(
    store: MemoryJobs, outbox: RecordingOutbox, clock: VirtualClock
) -> None:
    job = await ended(store, JobDone("hi"), name="video")
    async with reporting(store, outbox, clock):
        await clock.sleep(10.0)

    assert outbox.accepted == []
    assert await store.claim_ended(["video"], 1, 1.0) == [job]


async def test_an_end_is_told_at_once_when_the_runner_says_so(
    store: MemoryJobs, outbox: RecordingOutbox, clock: VirtualClock
) -> None:
    async with reporting(store, outbox, clock) as reporter:
        await clock.sleep(POLL_EVERY / 2)
        await ended(store, JobDone("hi"))
        reporter.wake()
        await clock.sleep(0.01)
        assert texts(outbox) == ["hi"]


def with_callbacks(
    done: Callable[[JobRecord], Awaitable[Any]], failed: Callable[[JobRecord], Awaitable[Any]] | None = None
) -> dict[str, Job[..., Any]]:
    jobs = declared()
    jobs["label"].on_done(done)
    jobs["label"].on_failed(failed or done)
    return jobs


async def test_a_callback_makes_the_message(
    store: MemoryJobs, outbox: RecordingOutbox, clock: VirtualClock
) -> None:
    seen: list[JobRecord] = []

    async def done(job: JobRecord) -> str:
        seen.append(job)
        return f"Ready: {job.result}"

    async def failed(job: JobRecord) -> dict[str, Any]:
        seen.append(job)
        return {"text": f"Failed: {job.error}", "priority": "high"}

    jobs = [await ended(store, JobDone(7)), await ended(store, DEAD)]
    async with reporting(store, outbox, clock, with_callbacks(done, failed)):
        await clock.sleep(POLL_EVERY)

    assert seen == jobs
    assert texts(outbox) == ["Ready: 7", "Failed: ValueError: no"]
    assert await are_all_reported(store, clock)


async def test_a_callback_that_fails_is_called_again_and_the_message_is_put_once(
    store: MemoryJobs, outbox: RecordingOutbox, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[float] = []

    async def fails_twice(_: JobRecord) -> str:
        calls.append(clock.now())
        if len(calls) < 3:
            raise ConnectionError("the shop does not answer")
        return "Ready"

    await ended(store, JobDone(7))
    async with reporting(store, outbox, clock, with_callbacks(fails_twice)):
        await clock.sleep(3 * REPORT_LEASE)

    assert [round(at - calls[0]) for at in calls] == [0, REPORT_LEASE, 2 * REPORT_LEASE]
    assert texts(outbox) == ["Ready"]
    assert caplog.text.count("has failed, and is called again in a minute") == 2
    assert await are_all_reported(store, clock)


async def test_a_callback_that_always_fails_is_given_up_after_an_hour(
    store: MemoryJobs, outbox: RecordingOutbox, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    async def fails(_: JobRecord) -> str:
        nonlocal calls
        calls += 1
        raise ValueError("never")

    await ended(store, JobDone(7))
    async with reporting(store, outbox, clock, with_callbacks(fails)):
        await clock.sleep(REPORT_FOR + 2 * REPORT_LEASE)
        tried = calls
        await clock.sleep(REPORT_FOR)

    assert calls == tried
    assert tried == pytest.approx(REPORT_FOR / REPORT_LEASE, abs=2)
    assert caplog.text.count("is not called any more") == 1
    assert outbox.accepted == []
    assert await are_all_reported(store, clock)


async def test_a_callback_that_hangs_is_ended_and_keeps_no_other_from_being_called(
    store: MemoryJobs, outbox: RecordingOutbox, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def hangs(job: JobRecord) -> str:
        if job.id == 1:
            await asyncio.Event().wait()
        return f"job {job.id}"

    await ended(store, JobDone(1))
    await ended(store, JobDone(2))
    async with reporting(store, outbox, clock, with_callbacks(hangs)):
        await clock.sleep(POLL_EVERY)
        assert texts(outbox) == ["job 2"]
        await clock.sleep(CALLBACK_DEADLINE)

    assert "TimeoutError" in caplog.text


async def test_only_so_many_callbacks_run_at_once_and_all_are_called(
    store: MemoryJobs, outbox: RecordingOutbox, clock: VirtualClock
) -> None:
    running, most = 0, 0

    async def slow(_: JobRecord) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await clock.sleep(3.0)
        running -= 1

    for _ in range(2 * REPORTS_AT_ONCE + 5):
        await ended(store, JobDone(1))
    async with reporting(store, outbox, clock, with_callbacks(slow)):
        await clock.sleep(20.0)

    assert most == REPORTS_AT_ONCE
    assert await are_all_reported(store, clock)


async def test_a_report_that_a_stop_cuts_off_is_made_by_the_next_process_and_put_once(
    store: MemoryJobs, outbox: RecordingOutbox, clock: VirtualClock
) -> None:
    class DiesAfterPut(MemoryJobs):
        async def reported(self, lease: JobLease) -> None:
            await asyncio.Event().wait()
            await super().reported(lease)

    dying = DiesAfterPut(clock)
    dying._jobs, dying._report_at = store._jobs, store._report_at  # noqa: SLF001  (one database)
    await ended(store, JobDone("hi"))
    async with reporting(dying, outbox, clock):
        await clock.sleep(POLL_EVERY)
    async with reporting(store, outbox, clock):
        await clock.sleep(REPORT_LEASE + POLL_EVERY)

    assert outbox.puts == 2
    assert texts(outbox) == ["hi"]
    assert await are_all_reported(store, clock)


async def test_a_callback_is_not_called_again_because_the_database_was_away_after_it(
    store: MemoryJobs, outbox: RecordingOutbox, clock: VirtualClock
) -> None:
    """Its report could not be noted, and was made again a minute later."""
    calls = 0

    async def done(_: JobRecord) -> str:
        nonlocal calls
        calls += 1
        store.away = True
        return "Ready"

    await ended(store, JobDone(7))
    async with reporting(store, outbox, clock, with_callbacks(done)) as reporter:
        await clock.sleep(5 * REPORT_LEASE)
        assert reporter.problems() == ["reports of jobs wait: the database cannot be reached"]
        store.away = False
        reporter.wake()  # it looks before the report is noted
        await clock.sleep(60.0)

    assert calls == 1
    assert texts(outbox) == ["Ready"]
    assert await are_all_reported(store, clock)


async def test_a_message_that_the_outbox_has_no_room_for_is_put_later(
    store: MemoryJobs, outbox: RecordingOutbox, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The log spoke of a background task."""
    caplog.set_level(logging.WARNING)
    outbox.is_full = True
    await ended(store, JobDone("hi"))
    async with reporting(store, outbox, clock):
        await clock.sleep(REPORT_FOR + 3 * REPORT_LEASE)
        outbox.is_full = False
        await clock.sleep(2 * REPORT_LEASE)

    assert texts(outbox) == ["hi"]
    assert "the end of job 1 (label) is told in a minute, and not lost: no room" in caplog.text
    assert "background task" not in caplog.text
