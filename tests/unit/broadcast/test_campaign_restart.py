"""A broadcast whose process ends in the middle, or that several processes have a part in: nobody is missed,
and nobody gets it twice. The store is a file; in virtual time.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tidegate.broadcast.progress import Progress
from tidegate.row_template import Row
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.virtual_time import VirtualClock
from unit.broadcast.office import WEATHER, arrived, is_accounted_for, office, people


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "tidegate.db"


@pytest.fixture
async def telegram(clock: VirtualClock) -> SimulatedTelegram:
    return SimulatedTelegram(clock, faults=WEATHER)


async def test_the_same_call_after_a_restart_goes_on_where_it_stopped(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram
) -> None:
    marked: Counter[object] = Counter()

    async def on_dead(row: Row, _: str) -> None:
        marked[row["chat_id"]] += 1

    async def live(seconds: float) -> Progress:
        async with office(clock, store, telegram) as here:
            here.blocks(range(1001, 1601, 30))
            async with here.gate.worker():
                terms = {"on_dead": on_dead}
                campaign = await here.broadcast("sale", people(600), "Hello {name}!", options=terms)
                with suppress(TimeoutError):
                    async with clock.timeout(seconds):
                        await campaign.finished()
        return campaign.progress

    stopped = [await live(seconds) for seconds in (3.0, 7.5, 0.4)]
    assert [report.state for report in stopped] == ["stopped"] * 3
    assert (stopped[0].earlier, stopped[1].earlier > 50) == (0, True)

    report = await live(60)
    assert (report.state, report.read, report.accepted, report.waiting) == ("finished", 600, 600, 0)
    assert (report.delivered, report.dead) == (580, 20)
    assert is_accounted_for(report)
    assert arrived(telegram) == Counter(chat for chat in range(1001, 1601) if (chat - 1001) % 30)
    assert telegram.report()["refused"] == 0
    assert set(marked) == set(range(1001, 1601, 30))  # told again after a restart, should it have been missed


async def test_a_broadcast_that_is_complete_sends_nothing_when_it_is_called_again(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram
) -> None:
    async def live() -> Progress:
        async with office(clock, store, telegram) as here, here.gate.worker():
            return await (await here.broadcast("sale", people(150), "Hello")).finished()

    await live()
    report = await live()
    assert (report.accepted, report.earlier, report.delivered) == (150, 150, 150)
    assert arrived(telegram).total() == 150


async def test_what_an_operator_takes_back_of_it_is_not_put_again(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram
) -> None:
    async with office(clock, store, telegram) as here:  # nobody sends
        await here.broadcast("sale", people(10), "Hello")
        await clock.sleep(1)
    async with office(clock, store, telegram) as here:
        campaign = await here.broadcast("sale", people(10), "Hello")
        await clock.sleep(1)
        [first, *_] = await here.gate.outbox.records()
        await here.gate.outbox.cancel([first.message.id])
        async with here.gate.worker():
            report = await campaign.finished()
    assert (report.earlier, report.delivered, report.cancelled) == (10, 9, 1)


async def test_after_its_memory_has_ended_the_name_is_a_new_one(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram
) -> None:
    async with office(clock, store, telegram) as here, here.gate.worker():
        await (await here.broadcast("sale", [1], "Hello", options={"remember": 60})).finished()
        await clock.sleep(58)
        again = await (await here.broadcast("sale", [1], "Hello", options={"remember": 60})).finished()
        await clock.sleep(2)
        anew = await (await here.broadcast("sale", [1], "Hello", options={"remember": 60})).finished()
    assert (again.earlier, anew.earlier) == (1, 0)
    assert arrived(telegram) == {1: 2}


async def test_another_process_may_do_the_sending(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram
) -> None:
    async with office(clock, store, telegram) as sender, office(clock, store, telegram) as here:
        sender.blocks([1001, 1050])
        marked: list[object] = []

        async def on_dead(row: Row, reason: str) -> None:
            marked.append((row["chat_id"], reason))

        async with sender.gate.worker():
            campaign = await here.broadcast("sale", people(300), "Hello", options={"on_dead": on_dead})
            report = await campaign.finished()
    assert (report.delivered, report.dead) == (298, 2)
    assert sorted(marked, key=str) == [(1001, "blocked"), (1050, "blocked")]
    assert clock.monotonic() < 300 / 28 + 3


async def test_two_processes_that_send_the_same_to_the_same_people_share_it(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram
) -> None:
    async with (
        office(clock, store, telegram) as one,
        office(clock, store, telegram) as other,
        one.gate.worker(),
    ):
        first = await one.broadcast("sale", people(300), "Hello")
        second = await other.broadcast("sale", reversed(people(300)), "Hello")
        reports = await asyncio.gather(first.finished(), second.finished())
    assert arrived(telegram) == Counter(range(1001, 1301))
    assert all(is_accounted_for(report) for report in reports)
    assert all(report.accepted + report.repeated == 300 for report in reports)


async def test_a_message_that_is_erased_from_the_store_is_not_waited_for(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram
) -> None:
    async with office(clock, store, telegram) as here:
        campaign = await here.broadcast("sale", people(20), "Hello")
        await clock.sleep(1)
        await here.gate.outbox.forget(1003)
        async with here.gate.worker():
            report = await campaign.finished()
    assert (report.delivered, report.forgotten) == (19, 1)
    assert is_accounted_for(report)
