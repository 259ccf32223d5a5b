"""kill -9 of schedulers that share the reminders: each occurrence is in the outbox exactly once."""

import asyncio
import datetime as dt
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import pytest

from databases import new_database
from servers import redis_server
from system import scheduler_member
from system.killing import clock, in_thread, line_of, running
from system.scheduler_member import Terms, gate_of
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.settings import Settings

HOUR, DAY = 3_600.0, 86_400.0
LATE: Final = 30 * HOUR  # since the reminders were added: each was due twice
CHUNK: Final = 40
ENOUGH: Final = 500  # reminders that wait: then no more are added for now
PATIENCE: Final = 60.0  # seconds
ALL: Final = 1_000_000


class ShiftedClock(Clock):
    """A clock on the wall that can be set back."""

    behind = 0.0  # seconds

    def now(self) -> float:
        return super().now() - self.behind


class SchedulerProcesses:
    """Starts schedulers, hears what they say, and kills them."""

    def __init__(self, starter: asyncio.subprocess.Process) -> None:
        self._starter = starter
        self._pids: asyncio.Queue[int] = asyncio.Queue()
        self._said: dict[int, dict[str, asyncio.Event]] = {}
        self.put_again = 0  # messages that were in the outbox already

    async def listen(self) -> None:
        while line := await line_of(self._starter):
            pid, word, *count = line.split(" ")
            if word == "started":
                self._said[int(pid)] = {name: asyncio.Event() for name in ("ready", "between")}
                await self._pids.put(int(pid))
            elif word == "again":
                self.put_again += int(count[0])
            else:
                self._said[int(pid)][word].set()

    async def start(self, terms: Terms, hang_after: int = 0) -> int:
        """Return the pid of one that is at work."""
        assert self._starter.stdin is not None
        given = msgspec.structs.replace(terms, hang_after=hang_after)
        self._starter.stdin.write(msgspec.json.encode(given) + b"\n")
        async with clock.timeout(PATIENCE):
            pid = await self._pids.get()
        await self.says(pid, "ready")
        return pid

    async def says(self, pid: int, word: str) -> None:
        async with clock.timeout(PATIENCE):
            await self._said[pid][word].wait()


@asynccontextmanager
async def scheduler_processes() -> AsyncIterator[SchedulerProcesses]:
    async with running(script=scheduler_member.__file__) as starter:
        processes = SchedulerProcesses(starter)
        listening = asyncio.create_task(processes.listen())
        yield processes
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening


class Feeder:
    """Adds daily reminders that were due twice, as long as the schedulers fire them."""

    def __init__(self, database: str) -> None:
        settings = Settings(database_url=database, tidegate_busy_timeout=PATIENCE)  # type: ignore[arg-type]
        self._clock = ShiftedClock()
        self._gate = Tidegate("memory://", settings=settings, clock=self._clock)
        self._gate.add_bot(scheduler_member.TOKEN)
        self._stopped = False
        self.expected: Counter[str] = Counter()  # dedup keys

    async def run(self) -> None:
        reminders = self._gate.reminders
        async with self._gate:
            while not self._stopped:
                if (await reminders.counts()).due < ENOUGH:
                    await self._add(CHUNK * 5)
                await clock.sleep(0.02)
            while (await reminders.counts()).due:
                await clock.sleep(0.05)

    def stop(self) -> None:
        self._stopped = True

    async def _add(self, number: int) -> None:
        self._clock.behind = LATE
        first = dt.datetime.fromtimestamp(self._clock.now() + HOUR, dt.UTC)
        given = {"text": "Drink!", "every": "day", "at": first.time(), "zone": "UTC"}
        added = await self._gate.reminders.add_many({"chat_id": 1 + one, **given} for one in range(number))
        self._clock.behind = 0.0
        for one in added:
            assert one.occurrence_at is not None
            self.expected.update(one.occurrence_key(one.occurrence_at + day * DAY) for day in range(2))


async def kill_again_and_again(processes: SchedulerProcesses, terms: Terms, kills: int) -> None:
    """Two are at work at any time. Each second one that is killed is between its put and its commit."""
    draw = random.Random(kills)
    alive = [await processes.start(terms)]
    for number in range(kills):
        alive.append(await processes.start(terms, hang_after=draw.randint(1, 4) if number % 2 else 0))
        if number % 2:
            victim = alive.pop()
            await processes.says(victim, "between")
        else:
            await clock.sleep(draw.uniform(0.0, 0.4))
            victim = alive.pop(draw.randrange(2))
        os.kill(victim, signal.SIGKILL)
    await processes.start(terms)


async def check_kills(terms: Terms, kills: int) -> None:
    feeder = await in_thread(Feeder, terms.database)
    async with scheduler_processes() as processes, asyncio.TaskGroup() as group:
        feeding = group.create_task(feeder.run())
        await kill_again_and_again(processes, terms, kills)
        feeder.stop()
        await feeding

    async with await in_thread(gate_of, terms) as gate:
        records = await gate.outbox.records(limit=ALL)
        reminders = await gate.reminders.list(limit=ALL)
    print(  # noqa: T201
        f"{kills} schedulers killed: {len(records):,} messages of {len(reminders):,} reminders,"
        f" {processes.put_again:,} put again"
    )
    assert Counter(one.message.dedup_key for one in records) == feeder.expected
    assert {(one.fired, one.skipped, one.merged) for one in reminders} == {(2, 0, 0)}
    assert processes.put_again > 0, "some were killed between put and commit"
    assert len(records) > 500 * kills, "they were in the middle of it"


@pytest.fixture(params=["postgres", "sqlite"])
async def database(request: pytest.FixtureRequest, postgres_url: str, tmp_path: Path) -> str:
    """Where the reminders are: PostgreSQL, or the file beside a store in a file."""
    if request.param == "postgres":
        return await new_database(postgres_url)
    return f"sqlite:///{tmp_path / 'store-data.db'}"


@pytest.fixture(params=["redis", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where the outbox is."""
    if request.param == "sqlite":
        yield str(tmp_path / "store.db")
        return
    with redis_server() as server:  # of its own: all messages are looked at
        yield server.url


@pytest.fixture
def terms(database: str, store: str, tmp_path: Path) -> Terms:
    return Terms(store=store, database=database, spool=str(tmp_path / "spool"), chunk=CHUNK)


@pytest.mark.parametrize(("database", "store"), [("postgres", "redis"), ("sqlite", "sqlite")], indirect=True)
async def test_schedulers_that_are_killed_put_each_occurrence_once(terms: Terms) -> None:
    await check_kills(terms, 5)


@pytest.mark.proof
@pytest.mark.timeout(600)
async def test_schedulers_that_are_killed_thirty_times_put_each_occurrence_once(terms: Terms) -> None:
    await check_kills(terms, 30)
