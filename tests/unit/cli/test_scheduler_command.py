"""What `tidegate scheduler` tells while it runs, and which part of the users it takes."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from rich.console import Console

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.cli.scheduler import (
    SchedulerRun,
    SchedulerView,
    default_offset,
    parse_shard,
    print_lines,
    summary,
)
from tidegate.errors import BadInputError, StoreAwayError
from tidegate.reminders.port import ReminderCounts, Shard
from tidegate.sim.virtual_time import VirtualClock

HOUR = 3_600.0


@pytest.fixture
async def gate(clock: VirtualClock) -> AsyncIterator[Tidegate]:
    gate = Tidegate("memory://", clock=clock)
    gate.add_bot(TOKEN)
    async with gate:
        yield gate


async def add_hourly(gate: Tidegate, count: int) -> None:
    await gate.reminders.add_many(
        {"chat_id": 1 + number, "text": "Hi", "cron": "0 * * * *", "zone": "UTC"} for number in range(count)
    )


async def test_a_run_counts_what_it_fired_and_reports_it(gate: Tidegate, clock: VirtualClock) -> None:
    await add_hourly(gate, 30)
    async with gate.reminders.schedule() as scheduler:
        run = SchedulerRun(gate, scheduler, clock)
        await run.look()
        await clock.sleep(2 * HOUR)
        await run.end()
    await clock.sleep(HOUR)

    report = run.report()
    assert (report["fired"], report["late"], report["active"], report["seconds"]) == (60, 0, 30, 2 * HOUR)
    assert summary(report) == ("Fired 60 reminders in 7,200.0 s: 0 late, 0 skipped, 0 merged; 30 are active")


async def test_a_pipe_is_told_now_and_then_and_only_what_is_new(
    gate: Tidegate, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    await add_hourly(gate, 2)
    stop = asyncio.Event()
    async with gate.reminders.schedule() as scheduler, asyncio.TaskGroup() as group:
        run = SchedulerRun(gate, scheduler, clock)
        await run.look()
        group.create_task(print_lines(run, stop))
        await clock.sleep(2 * HOUR)
        stop.set()

    assert capsys.readouterr().out == "2 fired; 2 reminders active\n4 fired; 2 reminders active\n"


async def test_the_picture_fits_a_small_terminal_and_shows_trouble(
    gate: Tidegate, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_hourly(gate, 3)
    async with gate.reminders.schedule() as scheduler:
        run = SchedulerRun(gate, scheduler, clock)
        await run.look()
        view = SchedulerView(run, "/very" * 40 + "/tidegate.db")
        console = Console(width=80, height=24)
        with console.capture() as capture:
            monkeypatch.setattr(scheduler, "problems", lambda: ["reminders wait: the database is away"])
            console.print(view.picture())

    shown = capture.get()
    assert max(map(len, shown.splitlines())) <= 80
    assert "the next is due in" in shown
    assert "reminders wait: the database is away" in shown


async def test_a_database_that_is_away_leaves_the_last_counts(
    gate: Tidegate, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails() -> ReminderCounts:
        raise StoreAwayError("the database is away")

    await add_hourly(gate, 3)
    async with gate.reminders.schedule() as scheduler:
        run = SchedulerRun(gate, scheduler, clock)
        await run.look()
        monkeypatch.setattr(gate.reminders, "counts", fails)
        await clock.sleep(60)
        await run.look()

    assert run.report()["active"] == 3


async def test_reminders_are_counted_at_most_every_ten_seconds(
    gate: Tidegate, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    async def count() -> ReminderCounts:
        asked.append(clock.now())
        return ReminderCounts(1, 0, 0, 0)

    monkeypatch.setattr(gate.reminders, "counts", count)
    async with gate.reminders.schedule() as scheduler:
        run = SchedulerRun(gate, scheduler, clock)
        for _ in range(100):  # as often as a picture is drawn
            await run.look()
            await clock.sleep(0.25)

    assert len(asked) == 3


@pytest.mark.parametrize(("text", "shard"), [("0/1", Shard(0, 1)), (" 3/4 ", Shard(3, 4)), (None, None)])
def test_a_shard_is_read(text: str | None, shard: Shard | None) -> None:
    assert parse_shard(text) == shard


@pytest.mark.parametrize("text", ["", "4/4", "1", "-1/4", "1/0", "a/b", "0.5/2", "99999/99999"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match=r"--shard: .* write K/N, of 4 parts 0/4, 1/4, 2/4 and 3/4"):
        parse_shard(text)


def test_shards_look_one_after_another_and_all_before_the_time() -> None:
    assert [default_offset(Shard(number, 4)) for number in range(4)] == [0.0, 7.5, 15.0, 22.5]
    assert default_offset(None) == 0.0
