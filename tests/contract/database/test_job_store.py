"""Jobs on every kind of store: in a SQLite file, in SQLite in memory, in PostgreSQL, and the tests' own."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from databases import SetClock
from memory_jobs import MemoryJobs
from tidegate.database.database import Database
from tidegate.database.jobs import IDS_AT_ONCE, SqlJobs
from tidegate.jobs.port import JobLease, JobStore
from tidegate.jobs.record import (
    CRASHES_BEFORE_DEATH,
    JobCrashed,
    JobDone,
    JobFailed,
    JobOutcome,
    JobRecord,
    JobReturned,
    JobState,
    NewJob,
)
from tidegate.model import BotId, File

BOT, OTHER_BOT = BotId(42), BotId(43)
LEASE = 15.0
QUEUED, SENT, RUNNING = JobState.QUEUED, JobState.SENT, JobState.RUNNING
DONE, DEAD, CANCELLED = JobState.DONE, JobState.DEAD, JobState.CANCELLED
replace = msgspec.structs.replace


@pytest.fixture(params=["file", "in memory", "postgres", "fake"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "postgres":
        request.getfixturevalue("postgres_url")  # starts it outside of the event loop
    return str(request.param)


@pytest.fixture
async def store(database: Database | None, clock: SetClock) -> AsyncIterator[JobStore]:
    made = MemoryJobs(clock) if database is None else SqlJobs(database, clock)
    await made.open()
    yield made
    await made.close()


def new(name: str = "label", **fields: Any) -> NewJob:  # noqa: ANN401  (a job's own)
    return NewJob(name=name, **fields)


async def added(store: JobStore, *jobs: NewJob) -> list[JobRecord]:
    return [job for job, _ in await store.add(jobs or [new()])]


async def claimed(store: JobStore, *names: str, limit: int = 100) -> list[int]:
    return [job.id for job in await store.claim(names or ["label"], limit, LEASE)]


async def running(store: JobStore, **fields: Any) -> JobRecord:  # noqa: ANN401
    """A job that was added and claimed."""
    [job] = await added(store, new(**fields))
    [held] = [one for one in await store.claim([job.name], 100, LEASE) if one.id == job.id]
    return held


def lease_of(job: JobRecord) -> JobLease:
    return JobLease(job.id, job.token)


async def ended_as(store: JobStore, outcome: JobOutcome, **fields: Any) -> JobRecord:  # noqa: ANN401
    job = await store.settle(lease_of(await running(store, **fields)), outcome)
    assert job is not None
    return job


async def only(store: JobStore, number: int) -> JobRecord:
    [job] = await store.get([number])
    return job


def ids(jobs: Iterable[JobRecord]) -> list[int]:
    return [job.id for job in jobs]


async def test_a_job_comes_back_as_it_was_added(store: JobStore) -> None:
    given = new(
        args=(1, "ä\0b", b"\xff\0", [1.5, None, True], File(content=b"\0pdf", name="a.pdf")),
        kwargs={"order": {"id": 2**63 - 1, "lines": [{"n": -1}]}, "photo": File(path="/tmp/x.png")},  # noqa: S108
        retries=7,
        pause=0.5,
        timeout=3.25,
        key="order-1",
        bot=BOT,
        chat_id="@channel",
        delay=60.0,
    )

    [(job, is_new)] = await store.add([given])

    assert is_new
    assert {name: getattr(job, name) for name in given.__struct_fields__} == msgspec.structs.asdict(given)
    assert (job.state, job.token, job.attempts, job.crashes) == (QUEUED, 0, 0, 0)
    assert (job.created_at, job.due_at, job.started_at, job.ended_at) == (1_000.0, 1_060.0, None, None)
    assert await store.get([job.id, 999]) == [job]


async def test_a_key_that_is_added_again_returns_the_first_job_whatever_became_of_it(store: JobStore) -> None:
    first, same, other, keyless = await store.add(
        [new(key="a", args=(1,)), new(key="a", args=(2,)), new("mail", key="a"), new()]
    )
    assert [one.is_new for one in (first, same, other, keyless)] == [True, False, True, True]
    assert same.job == first.job

    await store.cancel([first.job.id])
    [again] = await store.add([new(key="a", args=(3,))])

    assert not again.is_new
    assert (again.job.id, again.job.args, again.job.state) == (first.job.id, (1,), CANCELLED)


async def test_a_new_key_that_several_add_at_once_is_stored_once(store: JobStore) -> None:
    adding = [store.add([new(key="a", args=(number,)), new(key="b")]) for number in range(6)]

    submissions = [one for each in await asyncio.gather(*adding) for one in each]

    assert len({one.job.id for one in submissions}) == 2
    assert sum(one.is_new for one in submissions) == 2
    assert len(await store.find()) == 2


async def test_jobs_are_found_page_by_page_the_newest_first(store: JobStore) -> None:
    given = [new(chat_id=1 + n % 2, bot=BOT) for n in range(4)]
    jobs = await added(store, *given, new("mail", chat_id=1, bot=OTHER_BOT), new("mail", chat_id="@group"))
    await store.cancel([jobs[0].id, jobs[4].id])
    newest = ids(reversed(jobs))

    first = await store.find(limit=4)
    rest = await store.find(before=first[-1].id, limit=4)

    assert ids(first + rest) == newest
    assert ids(await store.find(name="mail")) == newest[:2]
    assert ids(await store.find(chat_id="@group")) == newest[:1]
    assert ids(await store.find(chat_id=1)) == [jobs[n].id for n in (4, 2, 0)]
    assert ids(await store.find(chat_id=1, bot=OTHER_BOT)) == [jobs[4].id]
    assert ids(await store.find(states=[CANCELLED])) == [jobs[4].id, jobs[0].id]
    assert ids(await store.find(states=[QUEUED, CANCELLED], name="mail", limit=1)) == newest[:1]
    assert await store.find(states=[DONE]) == []


async def test_the_lengths_of_the_queues_are_counted_by_name_and_state(store: JobStore) -> None:
    assert not await store.counts()
    jobs = await added(store, *[new() for _ in range(5)], new("mail"))
    await store.cancel([jobs[0].id])
    await store.claim(["label"], 2, LEASE)

    assert dict(await store.counts()) == {
        ("label", QUEUED): 2,
        ("label", RUNNING): 2,
        ("label", CANCELLED): 1,
        ("mail", QUEUED): 1,
    }


async def test_jobs_are_claimed_the_earliest_first_and_only_those_of_the_names(
    store: JobStore, clock: SetClock
) -> None:
    late, early, same, other = await added(store, new(delay=9.0), new(delay=3.0), new(delay=3.0), new("mail"))

    assert await claimed(store) == []
    clock.at += 10.0

    assert await claimed(store, limit=2) == [early.id, same.id]
    assert await claimed(store, "label", "unknown") == [late.id]
    assert await claimed(store, "mail") == [other.id]
    assert await store.claim([], 10, LEASE) == []


async def test_a_claimed_job_is_held_under_a_lease_with_a_token(store: JobStore, clock: SetClock) -> None:
    [job] = await added(store)
    clock.at += 1.0

    [held] = await store.claim(["label"], 10, LEASE)

    assert held == replace(job, state=RUNNING, token=1, due_at=clock.at + LEASE, started_at=clock.at)
    assert await only(store, job.id) == held
    assert await claimed(store) == []
    assert await store.next_due(["label"]) == clock.at + LEASE


async def test_a_job_whose_lease_ran_out_counts_as_crashed_and_is_claimed_again(
    store: JobStore, clock: SetClock
) -> None:
    first = await running(store)
    clock.at += LEASE

    [second] = await store.claim(["label"], 10, LEASE)

    assert (second.token, second.crashes, second.attempts) == (2, 1, 0)
    assert second.started_at == clock.at
    assert await store.settle(lease_of(first), JobDone("late")) is None
    assert await store.renew([lease_of(first)], LEASE) == set()
    assert await only(store, first.id) == second


async def test_a_job_that_takes_its_process_down_again_and_again_dies(
    store: JobStore, clock: SetClock, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    job = await running(store)
    for crashes in range(1, CRASHES_BEFORE_DEATH):
        clock.at += LEASE
        assert await claimed(store) == [job.id]
        assert (await only(store, job.id)).crashes == crashes
    clock.at += LEASE

    assert await claimed(store) == []

    dead = await only(store, job.id)
    assert (dead.state, dead.crashes, dead.attempts) == (DEAD, CRASHES_BEFORE_DEATH, 0)
    assert (dead.due_at, dead.ended_at) == (None, clock.at)
    assert ids(await store.claim_ended(["label"], 10, 60.0)) == [job.id]
    if kind != "fake":
        told = [record.levelno for record in caplog.records if f"job {job.id} (label)" in record.getMessage()]
        assert told == [logging.WARNING] * (CRASHES_BEFORE_DEATH - 1) + [logging.ERROR]


async def test_renewed_leases_hold_also_after_they_have_run_out(store: JobStore, clock: SetClock) -> None:
    one, two = await running(store), await running(store)
    gone = await ended_as(store, JobDone(1))
    clock.at += 2 * LEASE

    held = await store.renew([lease_of(job) for job in (one, two, gone)] + [JobLease(999, 1)], LEASE)

    assert held == {one.id, two.id}
    assert await claimed(store) == []
    assert (await only(store, one.id)).due_at == clock.at + LEASE


async def test_a_job_that_is_sent_begins_once(store: JobStore, clock: SetClock) -> None:
    [job] = await added(store)
    [sent] = await store.claim(["label"], 10, 3_600.0, SENT)
    assert (sent.state, sent.started_at, sent.due_at) == (SENT, None, clock.at + 3_600.0)
    assert await store.renew([lease_of(sent)], LEASE) == set()  # it does not run yet

    begun = await store.begin(lease_of(sent), LEASE)

    assert begun == replace(sent, state=RUNNING, started_at=clock.at, due_at=clock.at + LEASE)
    assert await store.begin(lease_of(sent), LEASE) is None
    assert await store.begin(JobLease(999, 1), LEASE) is None
    assert await store.renew([lease_of(sent)], LEASE) == {job.id}


async def test_a_job_that_a_broker_has_lost_is_sent_again_and_no_crash_is_counted(
    store: JobStore, clock: SetClock
) -> None:
    [job] = await added(store)
    [first] = await store.claim(["label"], 10, 3_600.0, SENT)
    clock.at += 3_600.0

    [second] = await store.claim(["label"], 10, 3_600.0, SENT)

    assert (second.id, second.crashes, second.token) == (job.id, 0, 2)
    assert await store.begin(lease_of(first), LEASE) is None
    assert await store.begin(lease_of(second), LEASE) is not None


async def test_two_that_claim_at_once_never_get_the_same_job(store: JobStore, kind: str) -> None:
    jobs = await added(store, *[new() for _ in range(200)])
    busy, most = 0, 0

    async def work() -> list[int]:
        nonlocal busy, most
        seen: list[int] = []
        while True:
            busy += 1
            most = max(most, busy)
            got = await claimed(store, limit=7)
            busy -= 1
            if not got:
                return seen
            seen += got

    parts = await asyncio.gather(*(work() for _ in range(6)))

    seen = sorted(itertools.chain(*parts))
    if kind == "postgres":  # rows that another claim has locked are passed over: some may be left
        while left := await claimed(store):
            seen = sorted(seen + left)
    assert seen == ids(jobs)
    assert most > 1
    assert {job.token for job in await store.get(ids(jobs))} == {1}


async def test_the_next_time_is_that_of_the_names_alone(store: JobStore, clock: SetClock) -> None:
    assert await store.next_due(["label"]) is None
    await added(store, new(delay=50.0), new("mail", delay=20.0), new("mail", delay=30.0))

    assert await store.next_due(["label"]) == clock.at + 50.0
    assert await store.next_due(["label", "mail"]) == clock.at + 20.0
    assert await store.next_due(["unknown"]) is None


async def test_an_end_that_nobody_has_reported_yet_does_not_count_as_due(store: JobStore) -> None:
    """The runner asked twenty times a second while a callback was slow."""
    await ended_as(store, JobDone(1))
    assert await store.next_due(["label"]) is None


async def test_a_result_with_files_and_bytes_is_kept(store: JobStore, clock: SetClock) -> None:
    result = {"document": File(content=b"%PDF\0\xff", name="label.pdf"), "n": [1, 2.5, None, b"\0"]}
    held = await running(store)
    clock.at += 2.0

    done = await store.settle(lease_of(held), JobDone(result))

    assert done == replace(held, state=DONE, result=result, due_at=None, ended_at=clock.at)
    assert await only(store, held.id) == done
    assert await claimed(store) == []


async def test_a_failure_is_tried_again_after_the_pause_and_dies_after_its_retries(
    store: JobStore, clock: SetClock
) -> None:
    held = await running(store, retries=1, pause=60.0)

    failed = await store.settle(lease_of(held), JobFailed("ValueError: no"))
    assert failed == replace(held, state=QUEUED, attempts=1, error="ValueError: no", due_at=clock.at + 60.0)
    assert await claimed(store) == []

    clock.at += 60.0
    [again] = await store.claim(["label"], 1, LEASE)
    dead = await store.settle(lease_of(again), JobFailed("ValueError: again"))

    assert dead is not None
    assert (dead.state, dead.attempts, dead.error, dead.ended_at) == (DEAD, 2, "ValueError: again", clock.at)


@pytest.mark.parametrize(
    ("outcome", "state", "due"),
    [
        (JobFailed("it is gone", final=True), DEAD, None),
        (JobCrashed("killed by signal 9"), QUEUED, 0.0),
        (JobReturned(), QUEUED, 0.0),
        (JobReturned(after=7.0), QUEUED, 7.0),
    ],
)
async def test_what_an_outcome_makes_of_a_job(
    store: JobStore, clock: SetClock, outcome: JobOutcome, state: JobState, due: float | None
) -> None:
    job = await ended_as(store, outcome)
    assert job.state is state
    assert job.due_at == (None if due is None else clock.at + due)
    assert await only(store, job.id) == job


async def test_nobody_settles_a_job_twice(store: JobStore) -> None:
    job = await ended_as(store, JobDone(1))
    assert await store.settle(lease_of(job), JobFailed("late")) is None
    assert await store.settle(JobLease(999, 1), JobDone(1)) is None
    assert await only(store, job.id) == job


async def test_one_that_was_given_back_cannot_be_settled_by_its_old_holder(store: JobStore) -> None:
    held = await running(store)
    await store.settle(lease_of(held), JobReturned())

    assert await store.settle(lease_of(held), JobDone("late")) is None
    assert await claimed(store) == [held.id]


async def test_an_error_with_a_zero_byte_ends_the_attempt(store: JobStore) -> None:
    """PostgreSQL refused the text: the attempt could not be settled, and counted as a crash."""
    job = await ended_as(store, JobFailed("ValueError: a\0b", final=True))
    found = await only(store, job.id)
    assert found.state is DEAD
    assert (found.error or "").startswith("ValueError: a")


async def make(store: JobStore, state: JobState) -> JobRecord:
    """A job in this state."""
    if state in {QUEUED, CANCELLED}:
        [job] = await added(store)
        return (await store.cancel([job.id]))[0] if state is CANCELLED else job
    if state is SENT:
        await added(store)
        return (await store.claim(["label"], 1, LEASE, SENT))[0]
    if state is RUNNING:
        return await running(store)
    return await ended_as(store, JobDone(1) if state is DONE else JobFailed("no", final=True))


@pytest.mark.parametrize("state", list(JobState))
async def test_a_job_can_be_cancelled_until_it_has_ended(
    store: JobStore, clock: SetClock, state: JobState
) -> None:
    job = await make(store, state)
    clock.at += 1.0

    cancelled = await store.cancel([job.id, 999])

    if state in {DONE, DEAD, CANCELLED}:
        assert cancelled == []
        assert await only(store, job.id) == job
        return
    assert cancelled == [replace(job, state=CANCELLED, due_at=None, ended_at=clock.at)]
    assert await store.renew([lease_of(job)], LEASE) == set()
    assert await store.begin(lease_of(job), LEASE) is None
    assert await store.settle(lease_of(job), JobDone("late")) is None
    clock.at += LEASE
    assert await claimed(store) == []
    assert await store.claim_ended(["label"], 10, 60.0) == []  # whoever cancels knows


@pytest.mark.parametrize("state", list(JobState))
async def test_a_job_that_is_dead_cancelled_or_sent_can_be_retried(
    store: JobStore, clock: SetClock, state: JobState
) -> None:
    job = await make(store, state)
    clock.at += 1.0

    retried = await store.retry([job.id, 999])

    if state not in {DEAD, CANCELLED, SENT}:
        assert retried == []
        assert await only(store, job.id) == job
        return
    [fresh] = retried
    assert (fresh.state, fresh.due_at, fresh.attempts, fresh.error) == (QUEUED, clock.at, 0, None)
    assert await store.claim_ended(["label"], 10, 60.0) == []
    assert await store.settle(lease_of(job), JobDone("of the first run")) is None
    [again] = await store.claim(["label"], 1, LEASE)
    assert (again.id, again.token) == (job.id, job.token + 1)


async def test_more_jobs_are_cancelled_and_retried_than_fit_one_statement(store: JobStore) -> None:
    """Those after the first 500 were passed over, and nobody was told."""
    many = ids(await added(store, *[new() for _ in range(IDS_AT_ONCE + 1)]))

    assert ids(await store.cancel([*many, many[0]])) == many
    assert ids(await store.retry(many)) == many
    assert ids(await store.get(many)) == many


async def test_an_end_is_held_by_one_reporter_and_reported_once(store: JobStore, clock: SetClock) -> None:
    done = await ended_as(store, JobDone("ready"))
    dead = await ended_as(store, JobFailed("no", final=True))
    await ended_as(store, JobDone("mail"), name="mail")
    await make(store, QUEUED)

    assert await store.claim_ended(["label"], 1, 60.0) == [done]
    assert await store.claim_ended(["label"], 10, 60.0) == [dead]
    assert await store.claim_ended(["label"], 10, 60.0) == []
    await store.reported(lease_of(done))
    await store.reported(JobLease(999, 1))
    clock.at += 60.0

    assert await store.claim_ended(["label"], 10, 60.0) == [dead]  # the report of that one has failed
    await store.reported(lease_of(dead))
    clock.at += 60.0
    assert await store.claim_ended(["label"], 10, 60.0) == []


async def test_a_late_report_of_the_first_end_does_not_hide_the_second(store: JobStore) -> None:
    dead = await ended_as(store, JobFailed("no", final=True))
    await store.claim_ended(["label"], 10, 60.0)
    await store.retry([dead.id])
    [again] = await store.claim(["label"], 1, LEASE)
    done = await store.settle(lease_of(again), JobDone("ready"))

    await store.reported(lease_of(dead))

    assert await store.claim_ended(["label"], 10, 60.0) == [done]


async def test_two_reporters_at_once_never_get_the_same_end(store: JobStore, kind: str) -> None:
    await added(store, *[new() for _ in range(60)])
    held = await store.claim(["label"], 100, LEASE)
    for job in held:
        await store.settle(lease_of(job), JobDone(1))

    async def report() -> list[int]:
        seen: list[int] = []
        while got := ids(await store.claim_ended(["label"], 7, 60.0)):
            seen += got
        return seen

    parts = await asyncio.gather(*(report() for _ in range(4)))

    seen = sorted(itertools.chain(*parts))
    if kind == "postgres":
        while left := ids(await store.claim_ended(["label"], 100, 60.0)):
            seen = sorted(seen + left)
    assert seen == sorted(ids(held))


async def test_jobs_that_ended_long_ago_and_were_reported_are_removed(
    store: JobStore, clock: SetClock
) -> None:
    old, unreported = await ended_as(store, JobDone(1)), await ended_as(store, JobDone(2))
    await store.reported(lease_of(old))
    cancelled = await make(store, CANCELLED)
    clock.at += 100.0
    fresh, waiting = await ended_as(store, JobDone(3)), await make(store, QUEUED)
    await store.reported(lease_of(fresh))

    assert await store.remove(ended_before=clock.at - 50.0) == 2

    assert ids(await store.find()) == [waiting.id, fresh.id, unreported.id]
    assert await store.get([old.id, cancelled.id]) == []


async def test_ends_that_nobody_reports_any_more_can_be_removed(store: JobStore, clock: SetClock) -> None:
    await ended_as(store, JobDone(1))
    clock.at += 100.0
    fresh, waiting = await ended_as(store, JobDone(2)), await make(store, QUEUED)

    assert await store.remove(ended_before=clock.at - 50.0) == 0
    assert await store.remove(ended_before=clock.at - 50.0, unreported=True) == 1
    assert ids(await store.find()) == [waiting.id, fresh.id]


async def test_every_job_of_a_chat_is_removed_whatever_its_state(store: JobStore) -> None:
    await running(store, chat_id=7, bot=BOT)
    await ended_as(store, JobDone(1), chat_id=7, bot=BOT)
    other_bot, other_chat = await added(store, new(chat_id=7, bot=OTHER_BOT), new(chat_id="@group", bot=BOT))

    assert await store.remove(chat_id=7, bot=BOT) == 2
    assert ids(await store.find()) == [other_chat.id, other_bot.id]
    assert await store.remove(chat_id=7) == 1
    assert ids(await store.find()) == [other_chat.id]


async def test_nothing_is_removed_unless_somebody_says_what(store: JobStore) -> None:
    """Every job was removed."""
    [job] = await added(store)
    assert await store.remove() == 0
    assert await store.get([job.id]) == [job]


has_rows = pytest.mark.parametrize("kind", ["file", "postgres"], indirect=True)


async def spoil(database: Database, number: int, column: str, value: object) -> None:
    async with database.write() as transaction:
        await transaction.execute(
            text(f"UPDATE tidegate_jobs SET {column} = :value WHERE id = :id"),  # noqa: S608
            {"value": value, "id": number},
        )


@has_rows
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("body", b"\xc1"),
        ("body", b""),
        ("body", msgspec.msgpack.encode([1])),
        ("body", msgspec.msgpack.encode({"args": 7})),
        ("body", msgspec.msgpack.encode({"args": [msgspec.msgpack.Ext(9, b"")]})),
        ("state", "lost"),
        ("chat_id", "nobody"),
    ],
)
async def test_a_row_that_cannot_be_decoded_is_set_aside_with_its_bytes(
    store: JobStore, database: Database | None, caplog: pytest.LogCaptureFixture, column: str, value: object
) -> None:
    assert database is not None
    bad, good = await added(store, new(), new())
    await spoil(database, bad.id, column, value)

    assert (await claimed(store, limit=1), await claimed(store, limit=1)) == ([], [good.id])

    assert caplog.text.count(f"job {bad.id} cannot be decoded") == 1
    found = await only(store, bad.id)
    assert found.state is DEAD
    assert (found.error or "").startswith("unreadable: ")
    assert (await store.counts())["label", DEAD] == 1
    if column != "state":
        async with database.read() as transaction:
            [row] = await transaction.rows(text(f"SELECT {column} FROM tidegate_jobs WHERE id = {bad.id}"))  # noqa: S608
        assert row[column] == value


@has_rows
async def test_a_result_that_cannot_be_decoded_keeps_no_other_from_being_reported(
    store: JobStore, database: Database | None
) -> None:
    assert database is not None
    bad, good = await ended_as(store, JobDone(1)), await ended_as(store, JobDone(2))
    await spoil(database, bad.id, "result", b"\xc1")

    assert await store.claim_ended(["label"], 10, 60.0) == [good]
    assert await store.claim_ended(["label"], 10, 60.0) == []
    assert (await only(store, bad.id)).state is DEAD


@has_rows
async def test_one_that_cannot_be_decoded_can_be_retried_and_is_set_aside_again(
    store: JobStore, database: Database | None
) -> None:
    assert database is not None
    [bad] = await added(store)
    await spoil(database, bad.id, "body", b"\xc1")
    assert await claimed(store) == []

    await store.retry([bad.id])

    assert await claimed(store) == []
    assert (await store.counts()) == {("label", DEAD): 1}


async def test_a_job_that_is_claimed_renewed_cancelled_and_settled_at_once_ends_once(
    store: JobStore,
) -> None:
    jobs = await added(store, *[new(retries=0) for _ in range(30)])
    held = await store.claim(["label"], 100, LEASE)
    ended: list[JobRecord] = []

    async def settle(job: JobRecord) -> None:
        if (after := await store.settle(lease_of(job), JobDone(1))) is not None:
            ended.append(after)

    async def cancel(job: JobRecord) -> None:
        ended.extend(await store.cancel([job.id]))

    acts = [act(job) for job in held for act in (cancel, settle, settle)]
    await asyncio.gather(*acts, store.renew([lease_of(job) for job in held], LEASE))

    assert sorted(ids(ended)) == ids(jobs)
    found = await store.get(ids(jobs))
    assert {job.id: job.state for job in found} == {job.id: job.state for job in ended}
    assert all(job.due_at is None for job in found)
