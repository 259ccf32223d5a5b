"""Jobs for tests, and an executor that does with them what a test says."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from memory_jobs import MemoryJobs
from tidegate.clock import Clock
from tidegate.jobs.job import Job, JobOptions
from tidegate.jobs.port import JobExecutor
from tidegate.jobs.record import JobDone, JobOutcome, JobRecord, JobState, NewJob
from tidegate.model import BotId

BOT = BotId(42)
CHAT = 1001
Behaviour = Callable[[JobRecord], Awaitable[JobOutcome | None]]


def label(order: int = 0) -> str:
    return f"label {order}"


def mail(address: str = "") -> str:
    return address


def declared(**options: Any) -> dict[str, Job[..., Any]]:  # noqa: ANN401  (those of a job)
    """The jobs `label` and `mail`, of no gate."""
    jobs: Any = None
    functions: tuple[Callable[..., Any], ...] = (label, mail)
    return {function.__name__: Job(function, jobs, JobOptions(**options)) for function in functions}


async def add(store: MemoryJobs, count: int = 1, **fields: Any) -> list[JobRecord]:  # noqa: ANN401
    given: dict[str, Any] = {"name": "label", "chat_id": CHAT, "bot": BOT, **fields}
    return [job for job, _ in await store.add([NewJob(**given)] * count)]


async def get(store: MemoryJobs, job: JobRecord) -> JobRecord:
    [found] = await store.get([job.id])
    return found


class ScriptedExecutor(JobExecutor):
    """Each job takes `seconds`, then it is done; or it does as `behaviour` says."""

    claims_as = JobState.RUNNING

    def __init__(self, clock: Clock, size: int = 2, seconds: float = 1.0) -> None:
        self._clock = clock
        self._size = size
        self._seconds = seconds
        self.behaviour: Behaviour = self._take_its_time
        self.begun: list[tuple[int, int]] = []  # ids and tokens
        self.cut_off: list[tuple[int, int]] = []
        self.running: set[tuple[int, int]] = set()
        self.most = 0  # at once
        self.is_stopped = False

    @property
    def room(self) -> int:
        return self._size - len(self.running)

    async def run(self, job: JobRecord) -> JobOutcome | None:
        mark = job.id, job.token
        self.begun.append(mark)
        self.running.add(mark)
        self.most = max(self.most, len(self.running))
        try:
            return await self.behaviour(job)
        except asyncio.CancelledError:
            self.cut_off.append(mark)
            raise
        finally:
            self.running.discard(mark)

    def problems(self) -> list[str]:
        return []

    async def stop(self) -> None:
        self.is_stopped = True

    async def _take_its_time(self, job: JobRecord) -> JobOutcome:
        await self._clock.sleep(self._seconds)
        return JobDone(f"{job.name} is ready")
