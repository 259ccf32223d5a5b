"""PostgreSQL is stopped while reminders fire: nothing is lost, nothing doubled, and the sender goes on."""

import asyncio
import datetime as dt
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from servers import postgres_server
from system.killing import TOKEN, clock, in_thread
from tidegate import Tidegate
from tidegate.outbox.tickets import LiveTicket
from tidegate.reminders.scheduler import AHEAD
from tidegate.settings import Settings
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire

EACH_SECOND: Final = 50  # reminders
OTHERS: Final = 2_000_000_000  # chats from here on get other messages
ALL: Final = 1_000_000


class StoppablePostgres:
    """A PostgreSQL of its own, always on the same port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self._port: int | None = None
        self.url = ""

    async def start(self) -> None:
        server = postgres_server(directory=self._directory, port=self._port)
        started = await in_thread(self._stack.enter_context, server)
        self._port, self.url = started.port, started.url

    async def stop(self) -> None:
        await in_thread(self._stack.close)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that the account of a server can reach: pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="tidegate-") as made:
        yield Path(made)


@pytest.fixture
async def postgres(folder: Path) -> AsyncIterator[StoppablePostgres]:
    server = StoppablePostgres(folder)
    await server.start()
    yield server
    await server.stop()


class PutRecorder:
    """Counts what the scheduler puts again; when told to, stops PostgreSQL between a put and its commit."""

    def __init__(self, gate: Tidegate, postgres: StoppablePostgres) -> None:
        self._put = gate.core.producer.put
        self._postgres = postgres
        self.stop_at_next = False
        self.stopped = asyncio.Event()
        self.again = 0
        gate.core.producer.put = self.put  # type: ignore[method-assign]

    async def put(self, messages: list[Any]) -> list[LiveTicket]:
        tickets = await self._put(messages)
        self.again += sum(not ticket.fresh for ticket in tickets)
        if self.stop_at_next and messages[0].dedup_key:  # one of a reminder
            self.stop_at_next = False
            await self._postgres.stop()
            self.stopped.set()
        return tickets


@asynccontextmanager
async def sending_others(gate: Tidegate) -> AsyncIterator[list[float]]:
    """Send other messages, ten each second; yields the seconds that each took to be delivered."""
    took: list[float] = []

    async def send(chat: int) -> None:
        began = clock.monotonic()
        await (await gate.send(chat_id=chat, text="news")).delivered()
        took.append(clock.monotonic() - began)

    async def send_on() -> None:
        async with asyncio.TaskGroup() as group:
            for chat in range(OTHERS, OTHERS + ALL):
                group.create_task(send(chat))
                await clock.sleep(0.1)

    sender = asyncio.create_task(send_on())
    yield took
    sender.cancel()
    with suppress(asyncio.CancelledError):
        await sender


async def check_outage(
    postgres: StoppablePostgres, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, away: float
) -> None:
    settings = Settings(database_url=postgres.url)  # type: ignore[arg-type]
    wire = TelegramWire(SimulatedTelegram(clock), clock)
    gate = await in_thread(lambda: Tidegate(tmp_path / "store.db", settings=settings, wire=wire))
    gate.add_bot(TOKEN)
    recorder = PutRecorder(gate, postgres)
    async with gate:
        assert (await gate.reminders.counts()).active == 0  # the tables are made
        # Each is put into the outbox a minute before it is due: from now on, until PostgreSQL is back.
        first, number = dt.datetime.fromtimestamp(clock.now() + AHEAD, dt.UTC), int(EACH_SECOND * (away + 6))
        added = await gate.reminders.add_many(
            {
                "chat_id": 1 + one,
                "text": "Drink!",
                "at": first + dt.timedelta(seconds=one / EACH_SECOND),
                "zone": "UTC",
            }
            for one in range(number)
        )
        async with gate.worker(), sending_others(gate) as took:
            await clock.sleep(1)
            recorder.stop_at_next = True
            await recorder.stopped.wait()
            before = len(took)
            put = sum(one.message.dedup_key is not None for one in await gate.outbox.records(limit=ALL))
            await clock.sleep(away)
            reasons, delivered_meanwhile = gate.health().reasons, len(took) - before
            await postgres.start()
            while (await gate.reminders.counts()).active:
                await clock.sleep(0.2)
        records = await gate.outbox.records(limit=ALL)

    print(  # noqa: T201
        f"PostgreSQL away for {away} s: {put} of {number} reminders put before, {recorder.again} put again;"
        f" {delivered_meanwhile} other messages delivered meanwhile, the slowest in {max(took):.2f} s"
    )
    keys = [one.message.dedup_key for one in records if one.message.dedup_key is not None]
    assert Counter(keys) == Counter(one.occurrence_key(one.occurrence_at or 0) for one in added)
    assert 0 < put < number, "it was in the middle of it"
    assert recorder.again > 0, "it went away between a put and its commit"
    assert delivered_meanwhile > 5 * away
    assert [reason.startswith("reminders wait: ") for reason in reasons] == [True]
    assert caplog.text.count("reminders wait until this is mended") == 1
    assert caplog.text.count("reminders go on") == 1


async def test_a_postgres_that_is_stopped_for_seconds_costs_no_reminder(
    postgres: StoppablePostgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await check_outage(postgres, tmp_path, caplog, away=2.0)


@pytest.mark.proof
@pytest.mark.timeout(180)
async def test_a_postgres_that_is_stopped_for_twenty_seconds_costs_no_reminder(
    postgres: StoppablePostgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await check_outage(postgres, tmp_path, caplog, away=20.0)
