"""The recorder of history, in virtual time: batches, a database that is away or slow, and whole runs."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from history_rows import BOT, FakeHistory
from simulated import TOKEN
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.errors import BadInputError, NotDeliveredError
from tidegate.events import Attempted, Ended, EventStream, UpdateReceived
from tidegate.history import History, HistoryStore
from tidegate.inbound.inbox import bot_source
from tidegate.inbound.updates import update_item
from tidegate.model import BotId, Claim, Dead, Delivered, Message, Outcome, Record, Refused, State, TicketId
from tidegate.ops.history import (
    BATCH,
    FIRST_PURGE,
    MOST_IN_MEMORY,
    PURGE_EVERY,
    SPOOL_ABOVE,
    STOP_PATIENCE,
    HistoryRecorder,
    spool_folder,
)
from tidegate.ops.history_spool import HistorySpool
from tidegate.settings import Settings
from tidegate.sim.telegram import Faults, Latency, SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock

DAY = 86_400.0


class Host:
    """What history needs of a gate."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def bot_id(self, bot: Any) -> BotId:  # noqa: ANN401
        return BotId(bot)


async def exists() -> bool:
    return True


class Desk:
    """A recorder and what it needs; messages end here by number."""

    def __init__(self, clock: VirtualClock, folder: Path, *, spool_bytes: int = 2**26) -> None:
        self.clock = clock
        self.folder = folder
        self.store = FakeHistory(clock)
        self.events = EventStream()
        self.history = History(Host(clock), lambda: self.store, exists)
        self.recorder = HistoryRecorder(
            self.events, self.history, HistorySpool(folder, spool_bytes), clock, days=30.0
        )

    def end(self, *numbers: int, text: str | None = None) -> None:
        for number in numbers:
            params = {"text": text or f"#{number}"}
            ticket = TicketId(f"t-{number}")
            message = Message(id=ticket, bot=BOT, chat_id=1001, method="sendMessage", params=params)
            now = self.clock.now()
            record = Record(message=message, state=State.DELIVERED, created_at=now, settled_at=now)
            self.events.publish(Ended(record))

    def attempt(self, outcome: Outcome) -> None:
        message = Message(id=TicketId("t-1"), bot=BOT, chat_id=1001, method="sendMessage", params={})
        self.events.publish(Attempted(Claim(message, 1, 1), outcome, 0.1))

    def restarted(self) -> "Desk":
        """Return the recorder of the next process, with the same database and disk."""
        after = Desk(self.clock, self.folder)
        after.store.rows, after.store.attempts_of = self.store.rows, self.store.attempts_of
        return after

    async def spooled(self) -> list[Path]:
        return await asyncio.to_thread(lambda: list(self.folder.iterdir()))

    def recorded(self) -> list[str]:
        return sorted((text or "" for text in self.store.texts()), key=lambda text: int(text[1:]))


def numbered(count: int) -> list[str]:
    return [f"#{number}" for number in range(count)]


@pytest.fixture
async def desk(clock: VirtualClock, tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(clock, tmp_path)
    desk.recorder.start()
    yield desk
    await desk.recorder.stop()


async def test_what_happens_within_a_second_is_written_together(desk: Desk) -> None:
    desk.end(0, 1)
    await desk.clock.sleep(0.5)
    desk.end(2)
    assert desk.recorder.waiting == 3
    assert desk.store.rows == {}

    await desk.clock.sleep(0.6)

    assert desk.store.batches == [3]
    assert (desk.recorder.waiting, desk.recorder.written) == (0, 3)


async def test_many_messages_are_written_before_the_second_is_over(desk: Desk) -> None:
    desk.end(*range(BATCH - 1))
    await desk.clock.sleep(0.1)
    assert desk.store.batches == []

    desk.end(BATCH)
    await desk.clock.sleep(0.1)

    assert desk.store.batches == [BATCH]


async def test_what_waited_for_a_slow_write_is_written_together_up_to_a_bound(desk: Desk) -> None:
    desk.store.seconds = 2.0
    desk.end(0)
    await desk.clock.sleep(1.1)
    desk.end(*range(1, BATCH + 8))
    await desk.clock.sleep(10.0)

    assert desk.store.batches == [1, BATCH, 7]


async def test_a_process_that_does_nothing_writes_nothing(desk: Desk) -> None:
    await desk.clock.sleep(3_600.0)

    assert desk.store.batches == []


async def test_an_update_that_comes_twice_is_recorded_once(desk: Desk) -> None:
    update = {"update_id": 5, "message": {"message_id": 1, "chat": {"id": 3}, "text": "#1"}}
    other = {"update_id": 6, "poll": {"id": "x"}}
    for received in (update, other):
        desk.events.publish(UpdateReceived(BOT, received.copy))
    await desk.clock.sleep(2.0)
    desk.events.publish(UpdateReceived(BOT, update.copy))
    await desk.clock.sleep(2.0)

    assert desk.recorded() == ["#1"]


async def test_a_row_that_cannot_be_kept_is_dropped_alone(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.end(0, 1, 2)
    desk.end(3, text="#3 is poison")
    desk.end(4, 5, 6)
    await desk.clock.sleep(2.0)

    assert desk.recorded() == ["#0", "#1", "#2", "#4", "#5", "#6"]
    assert (desk.recorder.dropped, desk.recorder.written) == (1, 6)
    assert "a message cannot be recorded in the history" in caplog.text


async def test_attempts_that_do_not_deliver_are_written_with_the_messages(desk: Desk) -> None:
    desk.attempt(Refused(3.0))
    desk.attempt(Refused(3.0))
    desk.attempt(Delivered({}))
    desk.end(1)
    await desk.clock.sleep(2.0)

    assert desk.store.batches == [3]
    assert [row.outcome for row in desk.store.attempts_of.values()] == ["refused", "refused"]


async def test_a_delivered_attempt_leaves_nothing_that_waits(desk: Desk) -> None:
    desk.attempt(Delivered({}))

    assert desk.recorder.waiting == 0


async def test_an_attempt_that_cannot_be_kept_is_dropped_alone(desk: Desk) -> None:
    desk.end(0)
    desk.attempt(Dead("bad_request", "poison"))
    desk.attempt(Refused(1.0))
    await desk.clock.sleep(2.0)

    assert desk.recorded() == ["#0"]
    assert (len(desk.store.attempts_of), desk.recorder.dropped) == (1, 1)


async def test_attempts_outlive_a_database_that_is_away_on_disk_each_once(
    clock: VirtualClock, tmp_path: Path
) -> None:
    desk = Desk(clock, tmp_path)
    desk.store.is_away = True
    desk.recorder.start()
    desk.attempt(Refused(1.0))
    desk.end(0)
    await clock.sleep(10.0)
    desk.attempt(Refused(2.0))
    await desk.recorder.stop()

    after = desk.restarted()
    after.store.loses_answers = True
    after.recorder.start()
    await clock.sleep(5.0)
    after.store.loses_answers = False
    await clock.sleep(60.0)

    assert sorted(row.wait or 0 for row in after.store.attempts_of.values()) == [1.0, 2.0]
    assert after.recorded() == ["#0"]
    await after.recorder.stop()


async def test_a_stop_writes_what_waits_at_once(clock: VirtualClock, tmp_path: Path) -> None:
    desk = Desk(clock, tmp_path)
    desk.recorder.start()
    desk.end(*range(50))
    began = clock.monotonic()
    await desk.recorder.stop()

    assert clock.monotonic() == began
    assert (desk.recorded(), await desk.spooled()) == (numbered(50), [])


async def test_a_stop_while_the_database_is_away_leaves_everything_to_the_next_process(
    clock: VirtualClock, tmp_path: Path
) -> None:
    desk = Desk(clock, tmp_path)
    desk.store.is_away = True
    desk.recorder.start()
    desk.end(*range(50))
    await clock.sleep(10.0)
    desk.end(50, 51)
    await desk.recorder.stop()
    assert desk.store.rows == {}

    after = desk.restarted()
    after.recorder.start()
    await clock.sleep(1.0)
    await after.recorder.stop()

    assert (after.recorded(), await after.spooled()) == (numbered(52), [])
    assert desk.recorder.dropped == 0


async def test_a_stop_does_not_wait_long_for_a_slow_database(clock: VirtualClock, tmp_path: Path) -> None:
    desk = Desk(clock, tmp_path)
    desk.store.seconds = 60.0
    desk.recorder.start()
    desk.end(*range(50))
    began = clock.monotonic()
    await desk.recorder.stop()
    assert clock.monotonic() - began == STOP_PATIENCE

    after = desk.restarted()
    after.recorder.start()
    await clock.sleep(1.0)
    await after.recorder.stop()

    assert after.recorded() == numbered(50)


async def test_a_kill_loses_a_second_at_most_while_the_database_is_away(
    clock: VirtualClock, tmp_path: Path
) -> None:
    desk = Desk(clock, tmp_path)
    desk.store.is_away = True
    desk.recorder.start()
    for number in range(100):
        desk.end(number)
        await clock.sleep(0.5)
    await desk.recorder._tasks.stop()  # noqa: SLF001  (nothing else is done: as after kill -9)
    desk.recorder._spool.close()  # noqa: SLF001  (the system frees its locks)

    after = desk.restarted()
    after.recorder.start()
    await clock.sleep(1.0)
    await after.recorder.stop()

    assert after.recorded() == numbered(len(after.store.rows))
    assert len(after.store.rows) >= 97


async def test_what_happened_while_the_database_was_away_is_recorded_once_when_it_is_back(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.end(0)
    await desk.clock.sleep(2.0)
    desk.store.is_away = True
    for number in range(1, 600):
        desk.end(number)
        await desk.clock.sleep(0.5)
    assert desk.recorder.waiting < 5  # the rest is on disk
    assert "MB of history wait on disk" in str(desk.recorder.notes())

    desk.store.is_away = False
    await desk.clock.sleep(60.0)
    desk.end(600)
    await desk.clock.sleep(2.0)

    assert desk.recorded() == numbered(601)
    assert (await desk.spooled(), desk.recorder.notes()) == ([], [])
    assert caplog.text.count("history cannot be written, and goes on trying") == 1
    assert caplog.text.count("history can be written again") == 1


async def test_a_batch_whose_answer_was_lost_is_not_doubled(desk: Desk) -> None:
    desk.store.loses_answers = True
    desk.end(*range(10))
    await desk.clock.sleep(5.0)
    desk.store.loses_answers = False
    desk.end(10)
    await desk.clock.sleep(60.0)

    assert len(desk.store.batches) > 2
    assert desk.recorded() == numbered(11)


async def test_while_a_write_takes_long_rows_go_to_disk_and_none_is_lost(desk: Desk) -> None:
    desk.store.seconds = 20.0
    count = 0
    for _ in range(16):
        desk.end(*range(count, count + 1_000))
        count += 1_000
        await desk.clock.sleep(0.5)
        assert desk.recorder.waiting <= SPOOL_ABOVE + BATCH + 2_000
    assert await desk.spooled()

    desk.store.seconds = 0.0
    await desk.clock.sleep(60.0)

    assert desk.recorded() == numbered(count)
    assert desk.recorder.dropped == 0


async def test_what_does_not_fit_on_disk_is_counted_and_told_once(
    clock: VirtualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(clock, tmp_path, spool_bytes=10_000)
    desk.store.is_away = True
    desk.recorder.start()
    for number in range(300):
        desk.end(number)
        await clock.sleep(1.0)
    dropped = desk.recorder.dropped
    assert f"{dropped:,} messages are not in the history" in desk.recorder.notes()

    desk.store.is_away = False
    await clock.sleep(60.0)
    desk.end(300)
    await clock.sleep(2.0)
    await desk.recorder.stop()

    assert len(desk.store.rows) + desk.recorder.dropped == 301
    assert 200 < dropped == desk.recorder.dropped
    assert caplog.text.count("messages are not recorded in the history") == 1
    assert caplog.text.count(f"{dropped} messages were not recorded in the history; it goes on") == 1


async def test_without_a_disk_rows_wait_in_memory_up_to_a_bound(
    clock: VirtualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    desk = Desk(clock, tmp_path / "file")  # no folder can be made there
    desk.store.is_away = True
    desk.recorder.start()
    desk.end(*range(MOST_IN_MEMORY))
    await clock.sleep(5.0)
    desk.end(*range(MOST_IN_MEMORY, MOST_IN_MEMORY + 10))
    assert (desk.recorder.waiting, desk.recorder.dropped) == (MOST_IN_MEMORY, 10)

    desk.store.is_away = False
    await clock.sleep(60.0)
    await desk.recorder.stop()

    assert desk.recorded() == numbered(MOST_IN_MEMORY)
    assert caplog.text.count("history cannot be spooled, and goes on trying") == 1


async def test_a_database_that_can_never_be_used_is_told_once_and_nothing_is_kept(
    clock: VirtualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> HistoryStore:
        raise BadInputError("not the address of a database")

    desk = Desk(clock, tmp_path)
    desk.history._store.make = refuse  # noqa: SLF001  (as one of the settings does)
    desk.recorder.start()
    for number in range(5):
        desk.end(number)
        await clock.sleep(30.0)

    assert desk.recorder.notes() == ["history is not recorded: not the address of a database"]
    assert caplog.text.count("history is not recorded") == 1
    assert (desk.recorder.waiting, await desk.spooled()) == (0, [])
    await desk.recorder.stop()


def test_each_database_has_a_spool_of_its_own_whoever_asks_it() -> None:
    def folder(store: str, url: str | None = None) -> Path:
        return spool_folder(Settings(database_url=None if url is None else SecretStr(url)), store)

    beside, elsewhere = folder("a.db"), folder("b.db")
    one = folder("a.db", "postgresql://ann:secret@host:5432/app")
    assert one == folder("b.db", "postgresql://bob:other@host:5432/app")
    assert len({beside, elsewhere, one, folder("a.db", "postgresql://ann@host/other")}) == 4
    assert folder("a.db", "sqlite:///app.db") == folder("b.db", f"sqlite:///{Path('app.db').absolute()}")
    assert {each.parent.name for each in (beside, elsewhere, one)} == {"tidegate-spool"}


async def test_old_messages_are_purged_now_and_then(desk: Desk) -> None:
    began = desk.clock.now()
    await desk.clock.sleep(FIRST_PURGE + 1.0)
    desk.store.is_away = True
    await desk.clock.sleep(PURGE_EVERY)
    desk.store.is_away = False
    await desk.clock.sleep(PURGE_EVERY)

    ages = [began - before for before in desk.store.purged_before]
    assert ages == [30 * DAY - FIRST_PURGE, 30 * DAY - FIRST_PURGE - 2 * PURGE_EVERY]


class WholeRun:
    """A gate that delivers and receives in bad weather, with a recorder whose database goes away once."""

    def __init__(self, clock: VirtualClock, folder: Path) -> None:
        weather = Latency.parse("5-40")
        faults = Faults(latency_in=weather, latency_out=weather, server_error=0.1, lost_answer=0.02)
        telegram = SimulatedTelegram(clock, faults=faults, seed=1)
        self.clock = clock
        self.gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock), seed=1)
        self.gate.add_bot(TOKEN)
        self.store = FakeHistory(clock)
        core = self.gate.core
        core.history = History(core, lambda: self.store, exists)
        self.recorder = HistoryRecorder(core.events, core.history, HistorySpool(folder), clock)
        core.add_companion(self.recorder)
        self.called: list[str] = []

    async def call(self, number: int) -> None:
        text = f"call {number}"
        with suppress(NotDeliveredError):
            await self.gate.call("sendMessage", {"chat_id": 5_000 + number, "text": text})
            self.called.append(text)

    async def receive(self, number: int) -> None:
        """An update comes in, twice."""
        message = {"message_id": number, "chat": {"id": 9}, "from": {"id": 9}, "text": f"in {number}"}
        item = update_item(BOT, {"update_id": number, "message": message})
        for _ in range(2):
            await self.gate.core.handler_registry.accept([item])

    async def happen(self) -> None:
        """Make sixty direct calls and receive sixty updates within six seconds."""
        async with asyncio.TaskGroup() as group:
            for number in range(60):
                group.create_task(self.call(number))
                group.create_task(self.receive(number))
                await self.clock.sleep(0.1)
                self.store.is_away = 20 < number < 40


async def test_in_a_whole_run_every_message_in_and_out_is_there_once(
    clock: VirtualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    run = WholeRun(clock, tmp_path)
    gate = run.gate
    async with gate, gate.worker():
        gate.core.handler_registry.add_source(bot_source(BOT))
        tickets = await gate.send_many(
            {"chat_id": 1 + n % 150, "text": f"out {n}", "on_unknown": ("park", "resend")[n % 2]}
            for n in range(400)
        )
        media = [{"type": "photo", "media": "https://example.org/a.png", "caption": f"{n}"} for n in range(3)]
        album = await gate.send(chat_id=700, method="sendMediaGroup", media=media)
        late = await gate.send(chat_id=701, text="late", delay=3_600.0)
        await run.happen()
        await gate.cancel(late)
        await gate.drained()
        ends = {ticket.id: await gate.outbox.find(ticket.id) for ticket in (*tickets, album, late)}

    rows = list(run.store.rows.values())
    queued = [row for row in rows if row.ticket is not None]
    direct = [row for row in rows if row.direction == "out" and row.ticket is None]
    incoming = [row for row in rows if row.direction == "in"]
    assert Counter(row.ticket for row in queued) == Counter([*ends, album.id, album.id])
    for row in queued:
        record = ends[TicketId(str(row.ticket))]
        assert record is not None
        assert (row.state, row.attempts, row.ended_at) == (record.state, record.attempts, record.settled_at)
    assert sorted(str(row.text) for row in direct) == sorted(run.called)
    assert len(run.called) > 50
    assert sorted(str(row.text) for row in incoming) == sorted(f"in {number}" for number in range(60))
    assert {row.state for row in rows} >= {"delivered", "parked", "cancelled", "received"}
    assert (run.recorder.dropped, run.recorder.waiting) == (0, 0)
