"""A store of jobs in memory, for tests in virtual time. The contract of job stores holds for it, too."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from tidegate.clock import Clock
from tidegate.errors import StoreAwayError
from tidegate.jobs.port import JobLease, JobStore, Submission
from tidegate.jobs.record import (
    JobOutcome,
    JobRecord,
    JobState,
    NewJob,
    cancel_job,
    claim_job,
    retry_job,
    settle_job,
)
from tidegate.model import BotId, ChatId

REPORTED_STATES = {JobState.DONE, JobState.DEAD}


class MemoryJobs(JobStore):
    """`away`: the database cannot be reached. `calls` counts the verbs, also those that failed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: dict[int, JobRecord] = {}
        self._report_at: dict[int, float] = {}
        self._last_id = 0
        self.away = False
        self.calls: Counter[str] = Counter()

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def _reach(self, verb: str) -> None:
        self.calls[verb] += 1
        await self._clock.sleep(0)  # as a real one, it lets others run
        if self.away:
            raise StoreAwayError("the database cannot be reached")

    async def add(self, jobs: Sequence[NewJob]) -> list[Submission]:
        await self._reach("add")
        return [self._add(job) for job in jobs]

    def _add(self, job: NewJob) -> Submission:
        for known in self._jobs.values():
            if job.key is not None and (known.name, known.key) == (job.name, job.key):
                return Submission(known, is_new=False)
        self._last_id += 1
        now = self._clock.now()
        given = msgspec.structs.asdict(job)
        added = JobRecord(**given, id=self._last_id, created_at=now, due_at=now + job.delay)
        self._jobs[added.id] = added
        return Submission(added, is_new=True)

    async def get(self, ids: Iterable[int]) -> list[JobRecord]:
        await self._reach("get")
        return [self._jobs[number] for number in sorted(set(ids)) if number in self._jobs]

    async def find(
        self,
        *,
        states: Iterable[JobState] = (),
        name: str | None = None,
        chat_id: ChatId | None = None,
        bot: BotId | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[JobRecord]:
        await self._reach("find")
        wanted = set(states)
        found = [
            job
            for job in reversed(self._jobs.values())
            if (not wanted or job.state in wanted)
            and name in {None, job.name}
            and chat_id in {None, job.chat_id}
            and bot in {None, job.bot}
            and (before is None or job.id < before)
        ]
        return found[:limit]

    async def counts(self) -> Mapping[tuple[str, JobState], int]:
        await self._reach("counts")
        return Counter((job.name, job.state) for job in self._jobs.values())

    async def claim(
        self, names: Iterable[str], limit: int, lease: float, state: JobState = JobState.RUNNING
    ) -> list[JobRecord]:
        await self._reach("claim")
        now, known = self._clock.now(), set(names)
        due = [(job.due_at, job.id) for job in self._jobs.values() if job.due_at is not None]
        claimed = [
            claim_job(self._jobs[number], state, now, lease)
            for at, number in sorted(due)
            if at <= now and self._jobs[number].name in known
        ][:limit]
        self._write(claimed)
        return [job for job in claimed if not job.has_ended]

    async def begin(self, lease: JobLease, seconds: float) -> JobRecord | None:
        await self._reach("begin")
        now, job = self._clock.now(), self._jobs.get(lease.id)
        if job is None or job.state is not JobState.SENT or job.token != lease.token:
            return None
        running = {"state": JobState.RUNNING, "started_at": now, "due_at": now + seconds}
        return self._write([msgspec.structs.replace(job, **running)])[0]

    async def renew(self, leases: Sequence[JobLease], seconds: float) -> set[int]:
        await self._reach("renew")
        until = self._clock.now() + seconds
        known = [self._jobs[lease.id] for lease in leases if lease.id in self._jobs]
        held = [job for job in known if job.state is JobState.RUNNING and (job.id, job.token) in leases]
        self._write([msgspec.structs.replace(job, due_at=until) for job in held])
        return {job.id for job in held}

    async def settle(self, lease: JobLease, outcome: JobOutcome) -> JobRecord | None:
        await self._reach("settle")
        job = self._jobs.get(lease.id)
        if job is None or job.token != lease.token or job.has_ended or job.state is JobState.QUEUED:
            return None
        return self._write([settle_job(job, outcome, self._clock.now())])[0]

    async def cancel(self, ids: Iterable[int]) -> list[JobRecord]:
        await self._reach("cancel")
        return self._change(ids, lambda job, now: None if job.has_ended else cancel_job(job, now))

    async def retry(self, ids: Iterable[int]) -> list[JobRecord]:
        await self._reach("retry")
        again = {JobState.DEAD, JobState.CANCELLED, JobState.SENT}
        return self._change(ids, lambda job, now: retry_job(job, now) if job.state in again else None)

    async def claim_ended(self, names: Iterable[str], limit: int, lease: float) -> list[JobRecord]:
        await self._reach("claim_ended")
        now, known = self._clock.now(), set(names)
        due = sorted((at, number) for number, at in self._report_at.items() if at <= now)
        held = [number for _, number in due if self._jobs[number].name in known][:limit]
        self._report_at |= dict.fromkeys(held, now + lease)
        return [self._jobs[number] for number in held]

    async def reported(self, lease: JobLease) -> None:
        await self._reach("reported")
        if lease.id in self._jobs and self._jobs[lease.id].token == lease.token:
            self._report_at.pop(lease.id, None)

    async def next_due(self, names: Iterable[str]) -> float | None:
        await self._reach("next_due")
        known = set(names)
        times = [job.due_at for job in self._jobs.values() if job.name in known and job.due_at is not None]
        return min(times, default=None)

    async def remove(
        self,
        *,
        ended_before: float | None = None,
        unreported: bool = False,
        chat_id: ChatId | None = None,
        bot: BotId | None = None,
    ) -> int:
        await self._reach("remove")
        gone = [
            job.id
            for job in self._jobs.values()
            if (ended_before is None or self._ended_before(job, ended_before, unreported=unreported))
            and chat_id in {None, job.chat_id}
            and bot in {None, job.bot}
            and not (ended_before is None and chat_id is None)
        ]
        for number in gone:
            del self._jobs[number]
            self._report_at.pop(number, None)
        return len(gone)

    async def rewrite(self) -> None:
        await self._reach("rewrite")

    def _ended_before(self, job: JobRecord, time: float, *, unreported: bool) -> bool:
        is_meant = unreported or job.id not in self._report_at
        return job.ended_at is not None and job.ended_at < time and is_meant

    def _change(
        self, ids: Iterable[int], decide: Callable[[JobRecord, float], JobRecord | None]
    ) -> list[JobRecord]:
        known = [self._jobs[number] for number in sorted(set(ids)) if number in self._jobs]
        changed = [decide(job, self._clock.now()) for job in known]
        return self._write([job for job in changed if job is not None])

    def _write(self, jobs: list[JobRecord]) -> list[JobRecord]:
        for job in jobs:
            self._jobs[job.id] = job
            self._report_at.pop(job.id, None)
            if job.state in REPORTED_STATES and job.ended_at is not None:
                self._report_at[job.id] = job.ended_at
        return jobs
