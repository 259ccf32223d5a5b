"""A broadcast by code, from the first row to the last end: with real parts, in virtual time."""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Any

import pytest

from tidegate.broadcast.progress import Progress
from tidegate.errors import BadInputError, ClosedError, StoreError
from tidegate.model import State
from tidegate.row_template import Row
from tidegate.sim.virtual_time import VirtualClock
from unit.broadcast.office import BOT, ROUND_TRIP, Marks, Office, is_accounted_for, office, people

LOGGER = "tidegate.broadcast"


async def test_everybody_is_accounted_for_and_those_who_blocked_the_bot_are_told_of(here: Office) -> None:
    blocked = range(1001, 6001, 33)
    here.blocks(blocked)
    marks = Marks()
    async with here.gate.worker():
        campaign = await here.broadcast(
            "sale", people(5_000), "Hello {name}!", options={"on_dead": marks.mark}
        )
        report = await campaign.finished()
    assert (report.state, report.read, report.accepted) == ("finished", 5_000, 5_000)
    assert (report.delivered, report.dead) == (5_000 - len(blocked), len(blocked))
    assert report.reasons == {"blocked": len(blocked)}
    assert is_accounted_for(report)
    assert marks.gone == Counter((chat, "blocked") for chat in blocked)
    assert set(here.arrived().values()) == {1}
    assert (here.telegram.report()["refused"], report.refused) == (0, 0)
    ideal = 5_000 / (30 / (1 + ROUND_TRIP))
    assert ideal / here.clock.monotonic() > 0.97


async def test_a_reply_is_quick_while_it_runs(here: Office) -> None:
    async with here.gate.worker():
        campaign = await here.broadcast("sale", people(600), "Hello")
        await here.clock.sleep(3)
        waits = []
        for i in range(20):
            started = here.clock.monotonic()
            await here.gate.call("sendMessage", {"chat_id": 90_000 + i, "text": "reply"})
            waits.append(here.clock.monotonic() - started)
        assert max(waits) < 0.3
        await campaign.finished()


async def test_others_of_low_priority_are_not_stuck_behind_everybody(here: Office) -> None:
    async with here.gate.worker():
        await here.broadcast("sale", people(3_000), "Hello")
        await here.clock.sleep(3)
        started = here.clock.monotonic()
        await (await here.gate.send(chat_id=7, text="mine", priority="low")).delivered()
        assert here.clock.monotonic() - started < 7


@pytest.mark.parametrize("ahead", [1, 7, 130])
async def test_at_most_as_many_wait_as_may(here: Office, ahead: int) -> None:
    most = 0
    async with here.gate.worker():
        campaign = await here.broadcast("sale", people(300), "Hello", options={"ahead": ahead})
        while not campaign.has_ended:
            stats = await here.gate.stats()
            most = max(most, stats.waiting + stats.sending)
            assert campaign.progress.waiting <= ahead
            await here.clock.sleep(0.01)
    assert ahead // 2 <= most <= ahead
    assert (await campaign.finished()).delivered == 300


async def test_an_hour_of_people_takes_no_more_than_the_line(here: Office) -> None:
    read = 0

    def everybody() -> Iterator[int]:
        nonlocal read
        for chat in range(1, 100_001):
            read += 1
            yield chat

    async with here.gate.worker():
        campaign = await here.broadcast("sale", everybody(), "Hello", options={"total": 100_000})
        await here.clock.sleep(60)
        assert read < 60 * 30 + 300
        progress = campaign.progress
        assert progress.eta_seconds == pytest.approx((100_000 - 60 * 28.7) / 28.7, rel=0.05)
        await campaign.cancel()


async def test_a_pause_takes_effect_within_seconds_and_it_goes_on_after_it(here: Office) -> None:
    async with here.gate.worker():
        campaign = await here.broadcast("sale", people(600), "Hello")
        await here.clock.sleep(5)
        await campaign.pause()
        at_pause = campaign.progress
        assert (at_pause.state, at_pause.eta_seconds) == ("paused", None)
        await here.clock.sleep(10)
        after = campaign.progress
        assert (after.accepted, after.waiting) == (at_pause.accepted, 0)
        assert after.delivered == at_pause.delivered + at_pause.waiting <= 400
        await here.clock.sleep(3_600)
        assert (campaign.progress.delivered, campaign.progress.rate) == (after.delivered, 0)
        await campaign.resume()
        report = await campaign.finished()
    assert (report.state, report.delivered) == ("finished", 600)
    assert set(here.arrived().values()) == {1}


async def test_nothing_is_put_once_a_pause_has_begun_not_even_what_is_being_written(here: Office) -> None:
    async def letter(_: Row) -> str:
        await here.clock.sleep(1)
        return "Hello"

    async with here.gate.worker():
        campaign = await here.broadcast("sale", people(20), letter, options={"ahead": 30})
        assert here.clock.monotonic() == pytest.approx(1)  # the first row is enough to know that it can begin
        await here.clock.sleep(5.5)
        await campaign.pause()
        accepted = campaign.progress.accepted
        await here.clock.sleep(60)
        assert campaign.progress.accepted == accepted
        await campaign.resume()
        await campaign.pause()  # somebody has thought better of it
        await here.clock.sleep(60)
        assert campaign.progress.accepted == accepted
        await campaign.resume()
        assert (await campaign.finished()).delivered == 20


async def test_what_is_written_for_somebody_is_written_when_it_is_about_to_go(here: Office) -> None:
    price = 10

    def letter(_: Row) -> str:
        return f"It costs {price}"

    async with here.gate.worker():
        campaign = await here.broadcast("sale", people(300), letter, options={"ahead": 50})
        await here.clock.sleep(2)
        await campaign.pause()
        before, price = campaign.progress.accepted, 20
        await here.clock.sleep(60)
        await campaign.resume()
        await campaign.finished()
    assert Counter(here.texts()) == {"It costs 10": before, "It costs 20": 300 - before}


async def test_who_cancels_it_takes_back_what_waits_and_the_same_name_goes_on(here: Office) -> None:
    async with here.gate.worker():
        campaign = await here.broadcast("sale", people(500), "Hello")
        await here.clock.sleep(3)
        await campaign.cancel()
        await campaign.cancel()
        first = await campaign.finished()
        assert (first.state, first.waiting) == ("cancelled", 0)
        assert first.cancelled > 50
        assert is_accounted_for(first)
        assert (await here.gate.stats()).waiting == 0
        await here.clock.sleep(60)
        assert here.arrived().total() == first.delivered

        second = await (await here.broadcast("sale", people(500), "Hello")).finished()
    assert (second.delivered, second.cancelled, second.earlier) == (500, 0, first.delivered)
    assert is_accounted_for(second)
    assert here.arrived() == Counter(range(1001, 1501))


async def test_a_cancelled_one_that_is_cancelled_again_is_over(here: Office) -> None:
    for _ in range(3):  # nobody sends
        campaign = await here.broadcast("sale", people(150), "Hello")
        await here.clock.sleep(1)
        await campaign.pause()
        await campaign.cancel()
        report = await campaign.finished()
        assert (report.state, report.cancelled, report.waiting) == ("cancelled", 150, 0)
    async with here.gate.worker():
        assert (await (await here.broadcast("sale", people(150), "Hello")).finished()).delivered == 150


async def test_one_that_is_paused_can_be_cancelled(here: Office) -> None:
    async with here.gate.worker():
        campaign = await here.broadcast("sale", people(500), "Hello")
        await campaign.pause()
        await campaign.cancel()
        report = await campaign.finished()
    assert report.state == "cancelled"
    assert report.accepted < 500


async def test_a_progress_is_seen_each_second_until_the_end(here: Office) -> None:
    seen: list[Progress] = []
    times: list[float] = []
    async with here.gate.worker():
        campaign = await here.broadcast("sale", people(300), "Hello")
        async for progress in campaign.watch():
            seen.append(progress)
            times.append(here.clock.monotonic())
    assert 10 <= len(seen) <= 14
    assert min(after - before for before, after in pairwise(times[:-1])) >= 1
    assert [seen[0].state, seen[-1].state] == ["running", "finished"]
    assert all(before.ended <= after.ended for before, after in pairwise(seen))
    assert seen[5].rate == pytest.approx(29, abs=2)
    assert (seen[-1].ended, seen[-1].total) == (300, 300)
    assert [progress async for progress in campaign.watch()] == [await campaign.finished()]


async def test_two_of_one_name_at_once_are_refused(here: Office) -> None:
    async with here.gate.worker():
        campaign = await here.broadcast("sale", people(100), "Hello")
        with pytest.raises(BadInputError, match="broadcast 'sale' already runs"):
            await here.broadcast("sale", people(100), "Hello")
        await (await here.broadcast("sale-2", people(100), "Hello")).finished()
        await campaign.finished()
        assert (await (await here.broadcast("sale", people(100), "Hello")).finished()).earlier == 100


async def test_a_gate_that_closes_ends_it(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    told = 0

    async def on_dead(_: Row, __: str) -> None:
        nonlocal told
        await clock.sleep(2)
        told += 1

    async with office(clock) as here:
        here.blocks([1001])
        async with here.gate.worker():
            campaign = await here.broadcast("sale", people(600), "Hello", options={"on_dead": on_dead})
            await clock.sleep(1)
    assert campaign.progress.state == "stopped"
    assert told == 1
    with pytest.raises(ClosedError, match="closed while broadcast 'sale' ran: call it again"):
        await campaign.finished()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_who_does_not_wait_for_the_first_row_has_started_nothing(here: Office) -> None:
    async def audience() -> AsyncIterator[int]:
        await here.clock.sleep(3_600)
        yield 1

    with pytest.raises(TimeoutError):
        async with here.clock.timeout(1):
            await here.broadcast("sale", audience(), "Hello")
    async with here.gate.worker():
        assert (await (await here.broadcast("sale", [1], "Hello")).finished()).delivered == 1


async def test_a_store_that_is_in_trouble_is_waited_for(
    here: Office, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put = here.gate.send_many
    until = 20.0

    async def put_later(*items: Any, **shared: Any) -> object:  # noqa: ANN401
        if 2 < here.clock.monotonic() < until:
            raise StoreError("the disk is full")
        return await put(*items, **shared)

    monkeypatch.setattr(here.gate, "send_many", put_later)
    async with here.gate.worker():
        campaign = await here.broadcast("sale", people(400), "Hello")
        await here.clock.sleep(15)
        assert campaign.progress.trouble == "the disk is full"
        report = await campaign.finished()
    assert (report.delivered, report.trouble) == (400, None)
    assert len([record for record in caplog.records if record.name == LOGGER]) == 1


async def test_what_somebody_else_cancels_or_forgets_holds_up_nothing(here: Office) -> None:
    campaign = await here.broadcast("sale", people(20), "Hello")
    await here.clock.sleep(1)
    waiting = await here.gate.outbox.records(bot=BOT, states=frozenset({State.QUEUED}))
    await here.gate.outbox.cancel([record.message.id for record in waiting[:5]])
    await here.gate.outbox.forget(1020)
    async with here.gate.worker():
        report = await campaign.finished()
    assert (report.delivered, report.cancelled) == (14, 6)
