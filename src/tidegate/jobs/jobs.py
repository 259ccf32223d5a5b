"""`gate.jobs`: declare and submit jobs, look at them, cancel and retry them, and run them."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, ParamSpec, Protocol, TypeVar

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreError, TidegateError
from tidegate.events import EventStream
from tidegate.failure import pause_after
from tidegate.jobs.job import LONGEST_TIMEOUT, MAX_NAME_LENGTH, Job, JobOptions, checked_name
from tidegate.jobs.port import JobExecutor, JobStore
from tidegate.jobs.record import JobRecord, JobState, NewJob
from tidegate.jobs.reporter import JobReporter
from tidegate.jobs.runner import JobRunner
from tidegate.model import BotId, ChatId
from tidegate.outbox.admission import check_chat
from tidegate.outbox.effect_keys import effect_key
from tidegate.outbox.producer import Producer
from tidegate.store_opener import StoreOpener
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.jobs")

P = ParamSpec("P")
R = TypeVar("R")

KEEP: Final = 7 * 86_400.0  # seconds that a job is remembered after its end
LOOK_EVERY: Final = 0.2  # seconds, of a ticket that waits for a result
FoundJobs = list[JobRecord]  # `list` is a method below
Problems = list[str]


class JobHost(Protocol):
    """The part of the gate that jobs need."""

    clock: Clock
    producer: Producer
    events: EventStream

    def check_open(self) -> None: ...

    def bot_id(self, bot: Any) -> BotId: ...  # noqa: ANN401  (a number, a token or an object of a library)


class ReceivedEvent(Protocol):
    """A signed event, as `inbound/` has it."""

    hook: str
    id: str
    body: bytes

    def json(self) -> Any: ...  # noqa: ANN401  (whatever its sender sends)


class JobTicket:
    """A submitted job. `is_new` is False if an earlier one had the same key."""

    def __init__(self, job_id: int, jobs: "Jobs", *, is_new: bool) -> None:
        self.id = job_id
        self.is_new = is_new
        self._jobs = jobs

    async def status(self) -> JobRecord | None:
        """Return the job as it is now; None if it is not remembered any more."""
        return await self._jobs.get(self.id)

    async def ended(self, timeout: float | None = None) -> JobRecord:  # noqa: ASYNC109  (the clock's time)
        """Wait until it is done, dead or cancelled. Raises TimeoutError."""
        return await self._jobs.ended(self.id, timeout)

    async def cancel(self) -> bool:
        """Cancel it, also while it runs; return whether it had not ended."""
        return bool(await self._jobs.cancel(self.id))

    def __repr__(self) -> str:
        return f"JobTicket({self.id})"


class Jobs:
    """Heavy functions that run elsewhere, recorded in the database of the gate.

    It is opened when it is first needed. Raises StoreAwayError while it cannot be reached.
    """

    def __init__(
        self,
        host: JobHost,
        make_store: Callable[[], JobStore],
        exist: Callable[[], Awaitable[bool]],
        make_executor: Callable[[dict[str, Job[..., Any]]], JobExecutor],
        keep: float = KEEP,
    ) -> None:
        self._host = host
        self._store = StoreOpener(make_store, exist)
        self._make_executor = make_executor
        self._keep = keep
        self._declared: dict[str, Job[..., Any]] = {}
        self._delivers = 0  # how often this process is asked to run jobs
        self._running: AsyncExitStack | None = None
        self._runner: JobRunner | None = None
        self._reporter: JobReporter | None = None
        self._tasks = BackgroundTasks()
        self._starting = asyncio.Lock()
        self._refusal: str | None = None

    def declare(self, function: Callable[P, R], options: JobOptions, name: str | None = None) -> Job[P, R]:
        """Make a job of a function. Raises BadInputError if its name is taken."""
        job = Job(function, self, options, name)
        known = self._declared.get(job.name)
        if known is not None and known.place != job.place:
            raise BadInputError(f"there is a job {job.name} already: give another name=…")
        self._declared[job.name] = job
        if self._delivers:
            self._tasks.start(self._start_when_reachable(), "begins with jobs")
        return job

    @property
    def declared(self) -> Mapping[str, Job[..., Any]]:
        """The jobs of this process, by name."""
        return self._declared

    def named(self, name: str) -> Job[..., Any]:
        """Return the job that was declared under a name. Raises BadInputError that lists those known."""
        if name not in self._declared:
            known = ", ".join(sorted(self._declared)) or "none"
            raise BadInputError(f"there is no job {name!r} in this process; declared: {known}")
        return self._declared[name]

    async def submit(self, new: NewJob, *, bot: object = None) -> JobTicket:
        """Store a job that was checked. Inside a handler that may run again, it is stored once."""
        self._host.check_open()
        if new.chat_id is not None:
            chat_id = check_chat(new.chat_id)
            new = msgspec.structs.replace(new, chat_id=chat_id, bot=self._host.bot_id(bot))
        _check_delay(new.delay)
        if new.key is not None:
            checked_name("the key of a job", new.key)
        key = new.key or effect_key(("job", new.name, new.args, new.kwargs, new.chat_id))
        [(job, is_new)] = await (await self.opened()).add([msgspec.structs.replace(new, key=key)])
        self._wake()
        return JobTicket(job.id, self, is_new=is_new)

    async def exist(self) -> bool:
        """Return whether there may be jobs: whether their database was made. Creates none."""
        return await self._store.may_hold_rows()

    async def get(self, job_id: int) -> JobRecord | None:
        found = await (await self.opened()).get([job_id])
        return found[0] if found else None

    async def list(
        self,
        *,
        states: Iterable[JobState | str] = (),
        name: str | None = None,
        chat_id: ChatId | None = None,
        bot: object = None,
        before: int | None = None,
        limit: int = 100,
    ) -> FoundJobs:
        """Return jobs, the newest first, from the one before the id `before` on."""
        wanted = [JobState(state) for state in states]
        whose = None if bot is None else self._host.bot_id(bot)
        store = await self.opened()
        return await store.find(
            states=wanted, name=name, chat_id=chat_id, bot=whose, before=before, limit=limit
        )

    async def counts(self) -> Mapping[tuple[str, JobState], int]:
        """Return how many jobs of each name are in each state: the lengths of the queues."""
        return await (await self.opened()).counts()

    async def queue_length(self, name: str | None = None) -> int:
        """Return how many jobs have not begun, of one name or of all."""
        counts = await self.counts()
        waiting = (JobState.QUEUED, JobState.SENT)
        return sum(n for (job, state), n in counts.items() if state in waiting and name in {None, job})

    async def ended(self, job_id: int, timeout: float | None = None) -> JobRecord:  # noqa: ASYNC109
        """Wait until a job is done, dead or cancelled. Raises TimeoutError."""
        async with self._host.clock.timeout(timeout):
            while (job := await self.get(job_id)) is not None and not job.has_ended:
                await self._host.clock.sleep(LOOK_EVERY)
        if job is None:
            raise BadInputError(f"there is no job {job_id}, or it has ended long ago")
        return job

    async def cancel(self, *ids: int) -> FoundJobs:
        """Cancel jobs that have not ended; return them. One that runs is stopped within seconds.

        On Celery, its function runs to its end, and its result is thrown away.
        """
        cancelled = await (await self.opened()).cancel(ids)
        if self._runner is not None:
            self._runner.drop(job.id for job in cancelled)
        return cancelled

    async def retry(self, *ids: int) -> FoundJobs:
        """Run jobs that are dead or cancelled again, as if they were new; return them.

        Also those that were sent to a broker, and lost by it or by a worker that does not know them.
        """
        queued = await (await self.opened()).retry(ids)
        self._wake()
        return queued

    async def forget(self, chat_id: ChatId, bot: object = None, *, rewrite: bool = False) -> int:
        """Delete every job of a chat; return how many there were. Creates no database.

        With `rewrite`, a SQLite file is then written anew, so that nothing of them can be found in it.
        """
        if not await self.exist():
            return 0
        store = await self.opened()
        whose = None if bot is None else self._host.bot_id(bot)
        removed = await store.remove(chat_id=chat_id, bot=whose)
        if removed and rewrite:
            await store.rewrite()
        return removed

    @asynccontextmanager
    async def deliver(self) -> AsyncIterator[None]:
        """While the body runs, run the declared jobs, if there are any, and report their ends."""
        self._delivers += 1
        if self._declared:
            self._tasks.start(self._start_when_reachable(), "begins with jobs")
        try:
            yield
        finally:
            self._delivers -= 1
            if self._delivers == 0:
                await self.stop()

    def problems(self) -> Problems:
        """Why jobs are not run as they should be, a line each."""
        parts = [part for part in (self._runner, self._reporter) if part is not None]
        refusal = [] if self._refusal is None else [self._refusal]
        return [*refusal, *(problem for part in parts for problem in part.problems())]

    async def close(self) -> None:
        """Disconnect. It is opened again when it is needed."""
        await self.stop()
        await self._store.close()

    def prepare(self) -> None:
        """Import what the store needs, before a process forks: its children need not do so again."""
        self._store.make()

    async def opened(self) -> JobStore:
        """Return the open store. Raises StoreAwayError."""
        return await self._store.opened()

    async def _start_when_reachable(self) -> None:
        failures = 0
        while self._running is None:
            try:
                async with self._starting:
                    await self._start(await self.opened())
            except StoreError as error:
                failures += 1
                if failures == 1:
                    log.warning("jobs wait until this is mended, and nothing is lost: %s", error)
                await self._host.clock.sleep(pause_after(failures))
            except TidegateError as error:  # such as a broker of an unknown kind: somebody has to mend it
                self._refusal = f"jobs are not run: {error}"
                log.error("%s", self._refusal)  # noqa: TRY400
                return

    async def _start(self, store: JobStore) -> None:
        if self._running is not None:  # somebody else was quicker
            return
        host, jobs = self._host, self._declared
        executor = await asyncio.to_thread(self._make_executor, jobs)  # it may import a library
        self._running = AsyncExitStack()
        self._reporter = JobReporter(store, host.producer, host.clock, jobs)
        self._runner = JobRunner(
            store,
            executor,
            host.clock,
            jobs,
            keep=self._keep,
            on_end=self._reporter.wake,
            events=host.events,
        )
        await self._running.enter_async_context(self._reporter)
        await self._running.enter_async_context(self._runner)

    async def stop(self) -> None:
        """End what runs in the background. It stays connected."""
        await self._tasks.stop()
        running, self._running = self._running, None
        if running is not None:
            await running.aclose()
        self._runner = self._reporter = None

    def _wake(self) -> None:
        if self._runner is not None:
            self._runner.wake()


def submits_events(job: Job[..., Any]) -> Callable[[Any], Awaitable[None]]:
    """Return the handler of a hook that hands each event to a job, once, as a dictionary."""

    async def submit(event: ReceivedEvent) -> None:
        known = {name: getattr(event, name) for name in ("hook", "id", "timestamp", "received_at", "headers")}
        given = {**known, "body": event.body}
        key = _event_key(event)
        try:
            await job.options(key=key).submit({**given, "json": event.json()})
        except BadInputError:  # it is not JSON, or holds what cannot be stored, or is too large twice
            await job.options(key=key).submit({**given, "json": None})

    return submit


def _event_key(event: ReceivedEvent) -> str:
    """Two events never have the same, however long their ids are."""
    key = f"hook:{event.hook}:{event.id}"
    return key if len(key) <= MAX_NAME_LENGTH else f"hook:{hashlib.sha256(key.encode()).hexdigest()}"


def _check_delay(seconds: object) -> None:
    if type(seconds) not in {int, float} or not 0 <= seconds <= LONGEST_TIMEOUT * 365:  # type: ignore[operator]
        raise BadInputError(f"delay is {seconds!r}: give seconds, 0 or more, and a year at most")
