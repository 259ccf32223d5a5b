"""What a worker tells: how much it did since its start, as a picture, as lines, as a report."""

import asyncio
from typing import Any

import pytest
from rich.console import Console

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.cli.worker import WorkerRun, WorkerView, print_lines, summary
from tidegate.errors import StoreError
from tidegate.outbox.port import OutboxStats
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.virtual_time import VirtualClock


def drawn(view: WorkerView) -> str:
    console = Console(width=80, height=24)
    with console.capture() as capture:
        console.print(view.picture())
    return capture.get()


async def put(gate: Tidegate, count: int, **fields: Any) -> None:  # noqa: ANN401
    await gate.send_many({"chat_id": 1 + i, "text": f"#{i}", **fields} for i in range(count))


async def test_a_run_counts_from_its_start(gate: Tidegate, clock: VirtualClock) -> None:
    await put(gate, 60)
    async with gate.worker():
        await gate.drained()
        run = WorkerRun(gate, clock)
        await run.start()
        assert run.report() == {
            "delivered": 0,
            "parked": 0,
            "expired": 0,
            "refused": 0,
            "dead": 0,
            "waiting": 0,
            "seconds": 0.0,
            "avg_rps": 0.0,
        }
        await put(gate, 30)
        await clock.sleep(3)
    await put(gate, 5)
    await run.end()
    await clock.sleep(100)

    report = run.report()
    assert (report["delivered"], report["waiting"], report["seconds"]) == (30, 5, 3.0)
    assert report["avg_rps"] == 10.0
    assert summary(report) == (
        "Delivered 30 in 3.0 s (10.0/s): 0 dead, 0 parked, 0 expired, 0 refused (429); 5 still wait"
    )


async def test_what_died_is_counted_though_its_letter_is_dropped(
    gate: Tidegate, telegram: SimulatedTelegram, clock: VirtualClock
) -> None:
    run = WorkerRun(gate, clock)
    await run.start()
    bot = telegram.world.bot(TOKEN)
    assert bot is not None
    telegram.world.add_private(bot, 1).blocked = True
    await put(gate, 2)
    async with gate.worker():
        await gate.drained()
        await clock.sleep(1)
        letters = await gate.outbox.dead()
        await gate.outbox.drop([letter.message.id for letter in letters])

    await run.look()
    assert run.report()["dead"] == 1
    assert run.line() == "1 delivered, 0 waiting, 1 dead"


async def test_a_pipe_is_told_now_and_then_and_only_what_is_new(
    gate: Tidegate, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    run, stop = WorkerRun(gate, clock), asyncio.Event()
    await run.start()
    async with gate.worker(), asyncio.TaskGroup() as group:
        group.create_task(print_lines(run, stop))
        await clock.sleep(25)
        await put(gate, 2)
        await clock.sleep(60)
        await put(gate, 1, not_before=clock.now() + 1_000)
        await clock.sleep(10)
        stop.set()

    assert capsys.readouterr().out == "2 delivered, 0 waiting\n2 delivered, 1 waiting\n"


async def test_the_picture_fits_a_small_terminal_and_names_what_waits(
    gate: Tidegate, clock: VirtualClock
) -> None:
    await put(gate, 400, priority="low")
    await put(gate, 3, priority="high")
    run = WorkerRun(gate, clock)
    view = WorkerView(run, "tidegate.db")
    await run.start()
    shown = drawn(view)
    assert "403  high 3 · normal 0 · low 400 · retry 0" in shown

    async with gate.worker():
        for _ in range(20):
            await clock.sleep(0.25)
            await run.look()
            shown = drawn(view)

    lines = shown.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "Delivering from tidegate.db" in shown
    assert "/s" in next(line for line in lines if "now" in line)
    assert f"waiting    {403 - (await gate.stats()).delivered}" in shown
    assert any(mark in shown for mark in "▆▇█")


async def test_a_long_name_of_a_store_does_not_break_the_picture(gate: Tidegate, clock: VirtualClock) -> None:
    run = WorkerRun(gate, clock)
    await run.start()

    assert max(map(len, drawn(WorkerView(run, "/very" * 40 + "/tidegate.db")).splitlines())) <= 80


async def test_a_store_that_cannot_be_asked_leaves_the_last_counts(
    gate: Tidegate, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails() -> OutboxStats:
        raise StoreError("the server is away")

    run = WorkerRun(gate, clock)
    await run.start()
    await put(gate, 3)
    await run.look()
    monkeypatch.setattr(gate, "stats", fails)
    await clock.sleep(5)
    await run.look()
    await run.end()

    assert (run.report()["waiting"], run.report()["seconds"]) == (3, 5.0)


async def test_a_store_that_is_away_at_the_start_is_counted_from_when_it_is_back(
    gate: Tidegate, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tidegate up` ended when Redis was away at its start, which is to spool meanwhile."""

    async def fails() -> OutboxStats:
        raise StoreError("the server is away")

    async with gate.worker():
        await put(gate, 2)
        await gate.drained()
        run = WorkerRun(gate, clock)
        with monkeypatch.context() as away:
            away.setattr(gate, "stats", fails)
            await run.start()
        assert run.line() == "0 delivered, 0 waiting"

        await run.look()
        await put(gate, 1)
        await gate.drained()
        await run.look()
    assert run.line() == "1 delivered, 0 waiting"
