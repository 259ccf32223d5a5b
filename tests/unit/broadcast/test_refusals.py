"""429s in the progress of a broadcast: counted by the store, which may be slow to say so, or away."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from tidegate.broadcast.campaign import Campaign
from tidegate.errors import StoreError
from tidegate.outbox.port import OutboxStats
from unit.broadcast.office import Office, people

Answer = Callable[[], Awaitable[OutboxStats]]


class Counter:
    """A store that has heard `refused` 429s; `answer`, if there is one, answers instead."""

    def __init__(self, refused: int) -> None:
        self.refused, self.asked = refused, 0
        self.answer: Answer | None = None

    async def stats(self) -> OutboxStats:
        self.asked += 1
        return await self.answer() if self.answer is not None else OutboxStats(refused=self.refused)


async def away() -> OutboxStats:
    raise StoreError("the server is away")


async def hangs() -> OutboxStats:
    await asyncio.Event().wait()
    return OutboxStats()


@pytest.fixture
def counter(here: Office) -> Iterator[Counter]:
    counter = Counter(refused=5)
    with pytest.MonkeyPatch.context() as patch:  # undone before the office closes
        patch.setattr(here.gate.outbox, "stats", counter.stats)
        yield counter


async def test_those_heard_since_it_began_are_counted_within_a_second(here: Office, counter: Counter) -> None:
    async with here.gate.worker():
        campaign = await here.broadcast("sale", people(300), "Hello")
        assert campaign.progress.refused == 0
        counter.refused += 2
        await here.clock.sleep(1.1)
        assert campaign.progress.refused == 2
        counter.refused += 1
        assert (await campaign.finished()).refused == 3


async def test_the_store_is_asked_once_a_second_however_often_one_looks(
    here: Office, counter: Counter
) -> None:
    async with here.gate.worker():
        campaign = await here.broadcast("sale", people(600), "Hello")
        started = here.clock.monotonic()
        while not campaign.has_ended:
            assert campaign.progress.refused == 0
            await here.clock.sleep(0.01)
        assert counter.asked <= here.clock.monotonic() - started + 2
        asked = counter.asked
        await here.clock.sleep(60)
        assert counter.asked == asked


@pytest.mark.parametrize("answer", [away, hangs])
async def test_a_store_that_cannot_say_holds_up_nothing(
    here: Office, counter: Counter, answer: Answer
) -> None:
    async with here.gate.worker():
        campaign = await here.broadcast("sale", people(300), "Hello")
        counter.refused += 2
        await here.clock.sleep(3)
        counter.answer = answer
        report = await campaign.finished()
    assert (report.state, report.delivered, report.refused, report.trouble) == ("finished", 300, 2, None)


@pytest.mark.parametrize("answer", [away, hangs])
async def test_what_was_heard_before_the_first_answer_is_not_this_ones(
    here: Office, counter: Counter, answer: Answer
) -> None:
    counter.answer = answer
    async with here.gate.worker():
        campaign = await here.broadcast("sale", people(300), "Hello")
        counter.refused, counter.answer = 7, None
        await here.clock.sleep(4)  # a look that began before it may go on
        assert campaign.progress.refused == 0
        counter.refused += 1
        assert (await campaign.finished()).refused == 1


@pytest.mark.parametrize("leave", [Campaign.cancel, Campaign.close])
async def test_what_comes_during_the_last_look_does_not_change_how_it_ended(
    here: Office, counter: Counter, leave: Callable[[Campaign], Awaitable[None]]
) -> None:
    async with here.gate.worker():
        campaign = await here.broadcast("sale", people(10), "Hello")
        counter.answer = hangs
        while campaign.progress.delivered < 10:
            await here.clock.sleep(0.01)
        assert not campaign.has_ended
        await leave(campaign)
        report = await campaign.finished()
    assert (report.state, report.delivered) == ("finished", 10)


async def test_who_gives_up_before_the_first_look_has_started_nothing(here: Office, counter: Counter) -> None:
    counter.answer = hangs
    with pytest.raises(TimeoutError):
        async with here.clock.timeout(0.5):
            await here.broadcast("sale", people(10), "Hello")
    counter.answer = None
    async with here.gate.worker():
        assert (await (await here.broadcast("sale", people(10), "Hello")).finished()).earlier == 0
