"""Who is gone is told of, whatever the hook does; nobody else is. In virtual time."""

import pytest

from simulated import TOKEN
from tidegate.errors import TidegateError
from tidegate.row_template import Row
from tidegate.sim.telegram import Faults, SimulatedTelegram, World
from tidegate.sim.virtual_time import VirtualClock
from unit.broadcast.office import Marks, Office, office, people

LOGGER = "tidegate.broadcast"


async def test_an_on_dead_that_fails_stops_nothing(here: Office, caplog: pytest.LogCaptureFixture) -> None:
    here.blocks(range(1001, 1101))

    async def on_dead(row: Row, _: str) -> None:
        raise RuntimeError(f"no {row['chat_id']} in the database")

    async with here.gate.worker():
        campaign = await here.broadcast("sale", people(200), "Hello", options={"on_dead": on_dead})
        report = await campaign.finished()
    assert (report.delivered, report.dead, report.unmarked) == (100, 100, 100)
    assert len([record for record in caplog.records if record.name == LOGGER]) == 1


async def test_a_slow_on_dead_is_called_for_several_at_a_time_and_waited_for(here: Office) -> None:
    here.blocks(range(1001, 1201))
    at_once = most = 0

    async def on_dead(_: Row, __: str) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await here.clock.sleep(5)
        at_once -= 1

    async with here.gate.worker():
        campaign = await here.broadcast("sale", people(200), "Hello", options={"on_dead": on_dead})
        await campaign.finished()
    assert (at_once, most) == (0, 20)


async def test_nobody_is_marked_for_what_is_not_their_doing(here: Office) -> None:
    marks = Marks()
    here.blocks([1001])
    here.telegram.world.user(1002).deactivated = True
    here.telegram.faults = Faults(server_error=0.4)
    async with here.gate.worker():
        campaign = await here.broadcast(
            "sale", people(100), "Hello", max_attempts=1, options={"on_dead": marks.mark}
        )
        report = await campaign.finished()
    assert report.reasons["attempts"] > 5  # a failure counts if others passed since the one before
    assert marks.gone.keys() <= {(1001, "blocked"), (1002, "deactivated")}
    assert marks.gone


async def test_who_is_gone_and_in_the_audience_twice_is_told_of_once(here: Office) -> None:
    marks = Marks()
    here.blocks([1003])
    rows = [*people(200), *people(200)]
    async with here.gate.worker():
        campaign = await here.broadcast("sale", rows, "Hello", options={"on_dead": marks.mark})
        report = await campaign.finished()
    assert (report.delivered, report.dead, report.repeated) == (199, 1, 200)
    assert marks.gone == {(1003, "blocked"): 1}


async def test_a_broadcast_that_copies_from_a_channel_that_is_gone_marks_nobody_and_stops_early(
    clock: VirtualClock,
) -> None:
    marks, world = Marks(), World(tokens={TOKEN}, open_world=False)
    bot = world.bot(TOKEN)
    assert bot is not None
    for person in people(500):
        world.add_private(bot, person["chat_id"])
    source = {"from_chat_id": -100, "message_id": 7}
    async with office(clock, telegram=SimulatedTelegram(clock, world=world)) as here, here.gate.worker():
        campaign = await here.broadcast(
            "sale", people(500), source, method="copyMessage", options={"on_dead": marks.mark}
        )
        with pytest.raises(TidegateError, match=r"the first 100 messages have all died.*chat not found"):
            await campaign.finished()
    assert campaign.progress.dead == 100
    assert not marks.gone
