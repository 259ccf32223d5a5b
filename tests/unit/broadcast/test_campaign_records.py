"""Broadcasts are recorded in the store: other processes list, pause, resume and cancel them."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from simulated import TOKEN
from tidegate import Tidegate, sql
from tidegate.errors import BadInputError, StoreError, UnknownNameError
from tidegate.model import BotId, State
from tidegate.outbox.campaigns import CampaignRecord
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock
from unit.broadcast.office import WEATHER, arrived, people


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "tidegate.db"


@pytest.fixture
async def telegram(clock: VirtualClock) -> SimulatedTelegram:
    return SimulatedTelegram(clock, faults=WEATHER)


@pytest.fixture
def audience(tmp_path: Path) -> str:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE users (id INTEGER, name TEXT)")
        rows = [(row["chat_id"], row["name"]) for row in people(300)]
        connection.executemany("INSERT INTO users VALUES (?, ?)", rows)
    return f"sqlite:///{path}"


QUERY = "SELECT id AS chat_id, name FROM users WHERE id > :first ORDER BY id"


def gate_at(clock: VirtualClock, store: Path, telegram: SimulatedTelegram) -> Tidegate:
    gate = Tidegate(store, clock=clock, wire=TelegramWire(telegram, clock))
    gate.add_bot(TOKEN)
    return gate


async def only(gate: Tidegate) -> CampaignRecord:
    [record] = await gate.campaigns()
    return record


async def test_a_broadcast_is_listed_while_it_runs_and_after_its_end(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram
) -> None:
    async with gate_at(clock, store, telegram) as gate, gate.worker():
        assert await gate.campaigns() == []
        campaign = await gate.broadcast("sale", people(200), "Hello {name}!")
        await clock.sleep(4)
        running = await only(gate)
        await campaign.finished()
        await clock.sleep(1)
        ended = await only(gate)

    assert (running.state, running.audience, running.total) == ("running", "list of 200", 200)
    assert 0 < running.counts["delivered"] < 200
    assert (ended.state, ended.counts["delivered"]) == ("finished", 200)
    assert ended.ended_at is not None
    assert not ended.is_resumable


async def test_another_process_pauses_resumes_and_cancels(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram
) -> None:
    async with (
        gate_at(clock, store, telegram) as gate,
        gate.worker(),
        Tidegate(store, clock=clock) as other,
    ):
        campaign = await gate.broadcast("sale", people(3000), "Hello {name}!")

        assert (await other.pause_campaign("sale")).state == "paused"
        await clock.sleep(10)  # what was in the outbox is sent
        held = arrived(telegram).total()
        await clock.sleep(30)
        assert arrived(telegram).total() == held < 1000

        assert (await other.resume_campaign("sale")).state == "running"
        await clock.sleep(10)
        assert arrived(telegram).total() > held

        assert (await other.cancel_campaign("sale")).state == "cancelled"
        assert (await campaign.finished()).state == "cancelled"
        with pytest.raises(BadInputError, match="sale is cancelled"):
            await other.pause_campaign("sale")


async def test_a_pause_survives_a_restart(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram
) -> None:
    async with gate_at(clock, store, telegram) as gate, gate.worker():
        campaign = await gate.broadcast("sale", people(600), "Hello {name}!")
        await campaign.pause()
        await clock.sleep(10)
        assert (await only(gate)).state == "paused"
    async with gate_at(clock, store, telegram) as gate, gate.worker():
        again = await gate.broadcast("sale", people(600), "Hello {name}!")
        assert again.progress.state == "paused"
        assert (await gate.resume_campaign("sale")).state == "running"
        assert (await again.finished()).delivered == 600
    assert arrived(telegram) == Counter(range(1001, 1601))


async def test_a_query_with_a_template_goes_on_without_the_application(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram, audience: str
) -> None:
    async with gate_at(clock, store, telegram) as gate, gate.worker():
        letter = "Hello {name}!"
        await gate.broadcast("sale", sql(audience, QUERY, first=0), letter, disable_notification=True)
        await clock.sleep(3)
    async with gate_at(clock, store, telegram) as gate:
        stopped = await only(gate)
        assert (stopped.state, stopped.is_resumable) == ("stopped", True)
        assert "SELECT id AS chat_id" in stopped.audience

    async with gate_at(clock, store, telegram) as gate, gate.worker():
        [resumed] = await gate.campaigns(resume=True)
        assert resumed.state == "running"
        await clock.sleep(60)
        assert (await only(gate)).state == "finished"
        assert [one.state for one in await gate.campaigns(resume=True)] == ["finished"]
    assert arrived(telegram) == Counter(range(1001, 1301))


async def test_what_needs_the_application_is_not_resumed_by_itself(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram
) -> None:
    async with gate_at(clock, store, telegram) as gate, gate.worker():
        await gate.broadcast("sale", people(600), "Hello {name}!")
        await clock.sleep(3)
    async with gate_at(clock, store, telegram) as gate:
        [record] = await gate.campaigns(resume=True)
        assert (record.state, record.is_resumable) == ("stopped", False)


async def test_a_broadcast_that_another_process_runs_is_not_taken_over(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram, audience: str
) -> None:
    async with (
        gate_at(clock, store, telegram) as gate,
        gate.worker(),
        gate_at(clock, store, telegram) as other,
    ):
        await gate.broadcast("sale", sql(audience, QUERY, first=0), "Hello {name}!", ahead=1)
        await other.campaigns(resume=True)

        assert not other.core.campaigns.is_running((await only(other)).bot, "sale")


async def test_one_whose_process_has_ended_is_cancelled_with_what_waits(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram
) -> None:
    async with gate_at(clock, store, telegram) as gate:
        await gate.broadcast("sale", people(600), "Hello {name}!")  # nobody sends
        await clock.sleep(3)
    async with gate_at(clock, store, telegram) as gate:
        cancelled = await gate.cancel_campaign("sale")
        assert cancelled.state == "cancelled"
        assert (cancelled.counts["waiting"], cancelled.counts["cancelled"] > 0) == (0, True)
        assert (await gate.stats()).waiting == 0


async def test_a_call_that_sent_nothing_leaves_no_record(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram
) -> None:
    async with gate_at(clock, store, telegram) as gate:
        with pytest.raises(BadInputError):
            await gate.broadcast("sale", [{"id": 1}], "Hello!")

        assert await gate.campaigns() == []
        with pytest.raises(UnknownNameError, match="no broadcast sale is known here"):
            await gate.campaign("sale")


async def test_a_name_that_two_bots_use_needs_the_bot(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram
) -> None:
    async with gate_at(clock, store, telegram) as gate:
        other = gate.add_bot("43:other-token-of-a-bot")
        await gate.broadcast("sale", people(10), "Hello!", bot=42)
        await gate.broadcast("sale", people(10), "Hello!", bot=other)

        with pytest.raises(
            BadInputError, match="several bots have a broadcast sale: say which bot, one of 42, 43"
        ):
            await gate.campaign("sale")
        assert (await gate.campaign("sale", bot=other)).bot == other.id


class SlowCounts:
    """Lets every count of an outbox take so long."""

    def __init__(self, gate: Tidegate, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds, self.started = 3.0, 0
        count = gate.outbox.tally

        async def slowly(bot: BotId, prefix: str) -> dict[tuple[State, str | None], int]:
            self.started += 1
            await clock.sleep(self.seconds)
            return await count(bot, prefix)

        monkeypatch.setattr(gate.outbox, "tally", slowly)


async def test_who_has_no_patience_gets_the_latest_counts_while_they_are_counted_anew(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gate_at(clock, store, telegram) as gate:
        await gate.broadcast("sale", people(90), "Hello {name}!")
        await clock.sleep(5)
    async with gate_at(clock, store, telegram) as gate:
        counting = SlowCounts(gate, clock, monkeypatch)
        async with gate.worker():
            await clock.sleep(5)
        began = clock.monotonic()
        first = await gate.campaigns(patience=0.1)
        again = await gate.campaign("sale", patience=0.1)
        assert clock.monotonic() - began == pytest.approx(0.2)
        assert [one.counts["waiting"] for one in (*first, again)] == [90, 90]  # as its process said last

        await clock.sleep(counting.seconds)
        counted = await gate.campaign("sale", patience=0.1)
        assert (counted.counts["waiting"], counted.counts["delivered"]) == (0, 90)
        assert clock.monotonic() - began < counting.seconds + 0.3
        await clock.sleep(30)
        await gate.campaign("sale", patience=0.1)
        assert counting.started == 1  # it took 3 s: a minute long, it is good enough
        assert (await gate.campaign("sale")).counts["delivered"] == 90
        assert counting.started == 2


async def test_a_cancellation_that_was_interrupted_can_be_repeated(
    clock: VirtualClock, store: Path, telegram: SimulatedTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gate_at(clock, store, telegram) as gate:
        await gate.broadcast("sale", people(90), "Hello {name}!")
        await clock.sleep(5)
    async with gate_at(clock, store, telegram) as gate:
        with monkeypatch.context() as broken:

            async def fail(_: object) -> int:
                raise StoreError("the disk is full")

            broken.setattr(gate.outbox, "cancel", fail)
            with pytest.raises(StoreError):
                await gate.cancel_campaign("sale")
        partly = await gate.campaign("sale")
        assert (partly.state, partly.counts["waiting"]) == ("cancelled", 90)  # nobody resumes it

        ended = await gate.cancel_campaign("sale")
        assert (ended.state, ended.counts["waiting"], ended.counts["cancelled"]) == ("cancelled", 0, 90)
        with pytest.raises(BadInputError, match="sale is cancelled: nothing of it is left to send"):
            await gate.cancel_campaign("sale")
