"""The decisions about a job, whatever happens to it in whatever order."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidegate.jobs.record import (
    CRASHES_BEFORE_DEATH,
    ENDED,
    JobCrashed,
    JobDone,
    JobFailed,
    JobOutcome,
    JobRecord,
    JobReturned,
    JobState,
    cancel_job,
    claim_job,
    retry_job,
    settle_job,
)

LEASE = 15.0
QUEUED, SENT, RUNNING = JobState.QUEUED, JobState.SENT, JobState.RUNNING
DONE, DEAD, CANCELLED = JobState.DONE, JobState.DEAD, JobState.CANCELLED
outcomes = st.one_of(
    st.builds(JobDone, st.none() | st.text() | st.integers()),
    st.builds(JobFailed, st.text(), st.booleans()),
    st.builds(JobCrashed, st.text()),
    st.builds(JobReturned, st.floats(0, 100)),
)


def job(**fields: Any) -> JobRecord:  # noqa: ANN401
    return JobRecord(**{"id": 7, "name": "label", "created_at": 1_000.0, "due_at": 1_000.0, **fields})


class JobLife(RuleBasedStateMachine):
    """A job is claimed, settled, lost, cancelled and retried by processes that know nothing of each other."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0
        self.job = job(retries=3, pause=10.0)
        self.ends = 0  # since it was new
        self.failures = 0
        self.crashes = 0
        self.tokens = [0]

    def _note_end(self, before: JobRecord) -> None:
        assert not before.has_ended
        self.ends += self.job.has_ended

    @rule(seconds=st.floats(0.1, 60.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.job.due_at is not None and self.job.due_at <= self.now)
    @rule(state=st.sampled_from([RUNNING, SENT]))
    def it_is_claimed(self, state: JobState) -> None:
        before = self.job
        self.job = claim_job(before, state, self.now, LEASE)
        self.crashes += before.state is RUNNING
        self._note_end(before)
        if not self.job.has_ended:
            assert (self.job.state, self.job.due_at) == (state, self.now + LEASE)
            self.tokens.append(self.job.token)

    @precondition(lambda self: self.job.state in {SENT, RUNNING})
    @rule(outcome=outcomes)
    def it_is_settled(self, outcome: JobOutcome) -> None:
        before = self.job
        self.job = settle_job(before, outcome, self.now)
        self.failures += isinstance(outcome, JobFailed)
        self.crashes += isinstance(outcome, JobCrashed)
        self._note_end(before)
        assert self.job.state in {QUEUED, DONE, DEAD}
        assert self.job.token == before.token
        if isinstance(outcome, JobReturned):
            assert self.job == msgspec.structs.replace(before, state=QUEUED, due_at=self.now + outcome.after)

    @precondition(lambda self: not self.job.has_ended)
    @rule()
    def it_is_cancelled(self) -> None:
        before = self.job
        self.job = cancel_job(before, self.now)
        self._note_end(before)
        assert self.job.state is CANCELLED

    @precondition(lambda self: self.job.state in {DEAD, CANCELLED})
    @rule()
    def it_is_retried(self) -> None:
        before = self.job
        self.job = retry_job(before, self.now)
        self.ends = self.failures = self.crashes = 0
        as_new = job(retries=3, pause=10.0, token=before.token, due_at=self.now)
        assert self.job == as_new

    @invariant()
    def it_has_ended_at_most_once_and_says_when(self) -> None:
        assert self.ends == self.job.has_ended
        assert (self.job.ended_at is None) == (not self.job.has_ended)
        assert (self.job.due_at is None) == self.job.has_ended

    @invariant()
    def failures_and_crashes_are_counted_apart_and_bounded(self) -> None:
        assert self.job.attempts == self.failures <= self.job.retries + 1
        assert self.job.crashes == self.crashes <= CRASHES_BEFORE_DEATH
        if self.job.attempts > self.job.retries or self.job.crashes == CRASHES_BEFORE_DEATH:
            assert self.job.state is DEAD

    @invariant()
    def tokens_rise(self) -> None:
        assert all(one < two for one, two in zip(self.tokens, self.tokens[1:], strict=False))
        assert self.job.token == self.tokens[-1]


TestJobLife = JobLife.TestCase


@given(st.integers(0, 20), st.floats(0, 1_000))
def test_a_job_that_always_fails_is_tried_once_more_than_its_retries(retries: int, pause: float) -> None:
    one, runs, now = job(retries=retries, pause=pause), 0, 1_000.0
    while not one.has_ended:
        assert one.due_at is not None
        now = max(now, one.due_at)
        one = settle_job(claim_job(one, RUNNING, now, LEASE), JobFailed("no"), now)
        runs += 1
    assert (one.state, runs, one.attempts, one.crashes) == (DEAD, retries + 1, retries + 1, 0)
    assert one.ended_at == pytest.approx(1_000.0 + retries * pause)


@given(st.integers(0, 20))
def test_crashes_are_bounded_however_many_retries_there_are(retries: int) -> None:
    one, runs = job(retries=retries), 0
    while not one.has_ended:
        one = settle_job(claim_job(one, RUNNING, 1_000.0, LEASE), JobCrashed("killed"), 1_000.0)
        runs += 1
    assert (one.state, runs, one.attempts, one.error) == (DEAD, CRASHES_BEFORE_DEATH, 0, "killed")


def test_a_result_takes_the_error_of_an_earlier_attempt_away() -> None:
    failed = settle_job(claim_job(job(), RUNNING, 1_000.0, LEASE), JobFailed("no"), 1_000.0)
    done = settle_job(claim_job(failed, RUNNING, 1_060.0, LEASE), JobDone(7), 1_061.0)
    assert (done.state, done.result, done.error, done.attempts) == (DONE, 7, None, 1)
    assert (done.started_at, done.ended_at) == (1_060.0, 1_061.0)


def test_each_end_has_a_message_key_of_its_own_and_one_end_always_the_same() -> None:
    dead = settle_job(claim_job(job(), RUNNING, 1_000.0, LEASE), JobFailed("no", final=True), 1_000.0)
    again = claim_job(retry_job(dead, 1_001.0), RUNNING, 1_001.0, LEASE)
    done = settle_job(again, JobDone(1), 1_002.0)

    assert dead.message_key == msgspec.structs.replace(dead, error="other").message_key
    assert len({dead.message_key, done.message_key}) == 2
    # A database that was deleted gives its ids again.
    assert job(id=7, token=1).message_key != job(id=7, token=1, created_at=2_000.0).message_key


def test_the_states_that_end_a_job() -> None:
    assert {state for state in JobState if job(state=state).has_ended} == ENDED == {DONE, DEAD, CANCELLED}
