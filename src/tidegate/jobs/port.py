"""The ports of jobs: where their records are kept, and who runs them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from tidegate.jobs.record import JobOutcome, JobRecord, JobState, NewJob
from tidegate.model import BotId, ChatId


class Submission(NamedTuple):
    job: JobRecord
    is_new: bool  # False: an earlier one has the same key


class JobLease(NamedTuple):
    """A job as its holder knows it. The token tells a holder from a later one."""

    id: int
    token: int


class JobStore(Protocol):
    """Records of jobs. Every verb is one transaction; StoreAwayError while the database cannot be reached."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def add(self, jobs: Sequence[NewJob]) -> list[Submission]:
        """Store jobs, all or none. One whose name has its key already is not added."""
        ...

    async def get(self, ids: Iterable[int]) -> list[JobRecord]: ...

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
        """Return jobs, the newest first, from the one before the id `before` on."""
        ...

    async def counts(self) -> Mapping[tuple[str, JobState], int]:
        """Return how many jobs of each name are in each state: the length of every queue."""
        ...

    async def claim(
        self, names: Iterable[str], limit: int, lease: float, state: JobState = JobState.RUNNING
    ) -> list[JobRecord]:
        """Hold jobs that are due, the earliest first, for `lease` seconds; nobody else gets them meanwhile.

        A job whose lease has run out counts as crashed, and dies of too many crashes instead.
        """
        ...

    async def begin(self, lease: JobLease, seconds: float) -> JobRecord | None:
        """Let a worker run a job that was sent to it; None if it was cancelled, or is run by another."""
        ...

    async def renew(self, leases: Sequence[JobLease], seconds: float) -> set[int]:
        """Prolong leases; return the ids of those that are still held. The others are to be stopped."""
        ...

    async def settle(self, lease: JobLease, outcome: JobOutcome) -> JobRecord | None:
        """Note the end of an attempt; None if the lease is not held any more, and nothing has changed."""
        ...

    async def cancel(self, ids: Iterable[int]) -> list[JobRecord]:
        """Cancel jobs that have not ended; return them."""
        ...

    async def retry(self, ids: Iterable[int]) -> list[JobRecord]:
        """Queue jobs that are dead, cancelled or sent again, as if they were new; return them."""
        ...

    async def claim_ended(self, names: Iterable[str], limit: int, lease: float) -> list[JobRecord]:
        """Hold jobs whose end is to be reported for `lease` seconds: those done or dead."""
        ...

    async def reported(self, lease: JobLease) -> None:
        """The end of a job was reported: nobody has to do it any more."""

    async def next_due(self, names: Iterable[str]) -> float | None:
        """Return when the next job can be claimed."""
        ...

    async def remove(
        self,
        *,
        ended_before: float | None = None,
        unreported: bool = False,
        chat_id: ChatId | None = None,
        bot: BotId | None = None,
    ) -> int:
        """Delete jobs that ended before a time and were reported, or every job of a chat; return how many.

        `unreported`: also those of whose end nobody was told, as no process declares them any more.
        """
        ...

    async def rewrite(self) -> None:
        """Leave no byte of what was removed in a file. Raises StoreError if that fails."""


class JobExecutor(Protocol):
    """Runs jobs, or hands them to those that do."""

    claims_as: JobState  # RUNNING: it runs them itself. SENT: workers elsewhere do, and settle them

    @property
    def room(self) -> int:
        """How many more jobs it takes now."""
        ...

    async def run(self, job: JobRecord) -> JobOutcome | None:
        """Run a job; None if its worker settles it. Cancelling this ends it."""
        ...

    def problems(self) -> list[str]: ...

    async def stop(self) -> None: ...
