"""The bot dies between any two writes, and comes back: each is told each thing once, nobody waits in vain."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.flows import Flow, FlowBuilder
from tidegate.flows.events import FlowEvent, Text
from tidegate.flows.executor import SessionKey
from tidegate.flows.session import Session
from tidegate.sim import virtual_time
from tidegate.sim.virtual_time import VirtualClock
from unit.flows.executor.world import ALICE, BOB, INTERVAL, Bot, Disk, Life, shop

PAID = ["Welcome!", "One moment.", "Pay {}, please.", "Paid: {}."]
CANCELLED = [*PAID[:3], "Cancelled."]

Deed = Callable[[Bot], Awaitable[object]]
Death = tuple[int, bool]  # at which write of its life, and whether after it


class Days:
    """One process after the other on the same disk; each dies as it is told."""

    def __init__(self, disk: Disk, deaths: list[Death], **options: object) -> None:
        self.disk = disk
        self.deaths = deaths
        self.options = options
        self.bot = self._new()
        self._before = asyncio.all_tasks()

    def _new(self) -> Bot:
        writes, late = self.deaths.pop(0) if self.deaths else (None, False)
        return Bot(self.disk, Life(writes, late=late), **self.options)

    async def start(self) -> None:
        await self.survive(self.bot.start)

    async def do(self, deed: Deed) -> None:
        """Until it was done: what was cut short, the inbox hands out again."""
        while not await self.survive(lambda: deed(self.bot)):
            pass

    async def sleep(self, seconds: float) -> None:
        until = self.disk.clock.now() + seconds
        while (left := until - self.disk.clock.now()) > 0:
            await self.survive(lambda left=left: self.disk.clock.sleep(left))  # type: ignore[misc]

    async def stop(self) -> None:
        self.bot.life.left = None
        await self.bot.stop()

    async def survive(self, deed: Callable[[], Awaitable[object]]) -> bool:
        doing = asyncio.ensure_future(deed())
        dying = asyncio.ensure_future(self.bot.life.over.wait())
        await asyncio.wait([doing, dying], return_when=asyncio.FIRST_COMPLETED)
        if self.bot.life.over.is_set():
            await self._be_reborn()
            return False
        dying.cancel()
        await doing
        return True

    async def _be_reborn(self) -> None:
        tasks = asyncio.all_tasks() - self._before
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.bot = self._new()
        await self.start()


async def live(clock: VirtualClock, deaths: list[Death], **options: object) -> Disk:
    """Alice orders and pays, Bob orders and cancels, or is sent away by the application."""
    disk = Disk(clock)
    days = Days(disk, deaths, **options)
    await days.start()
    await days.do(lambda bot: bot.command(1, "/start", ALICE))
    await days.do(lambda bot: bot.press(2, "Order", ALICE))
    await days.sleep(60)
    await days.do(lambda bot: bot.executor.begin(BOB, {}, event="campaign"))
    await days.do(lambda bot: bot.press(11, "Order", BOB))
    await days.sleep(60)
    disk.paid.add("TG-1")
    await days.do(lambda bot: bot.executor.signal(BOB, "refund", event="refund"))
    await days.sleep(3 * INTERVAL)
    await days.stop()
    return disk


def told(order: str, texts: list[str]) -> list[str]:
    return [text.format(order) for text in texts]


async def check(disk: Disk) -> None:
    assert disk.texts(ALICE) == told("TG-1", PAID)
    assert disk.texts(BOB) == told("TG-2", CANCELLED)
    assert len(disk.orders) == 2
    assert await disk.left() == {}


async def test_a_life_without_death(clock: VirtualClock) -> None:
    await check(await live(clock, []))


def test_one_death_at_each_write() -> None:
    async def main(clock: VirtualClock) -> int:
        return (await live(clock, [])).writes

    writes = virtual_time.run(main)
    assert writes > 30
    for number in range(1, writes + 1):

        async def die(clock: VirtualClock, death: Death = (number, False)) -> None:
            await check(await live(clock, [death]))

        virtual_time.run(die)


@settings(max_examples=settings().max_examples // 2)
@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=8), st.booleans())
def test_many_deaths(deaths: list[Death], say_order: bool) -> None:  # noqa: FBT001
    async def main(clock: VirtualClock) -> None:
        disk = await live(clock, list(deaths), flow=shop(say_order=say_order))
        if say_order:
            await check(disk)
        assert await disk.left() == {}
        assert disk.texts(ALICE)[-1] == "Paid: TG-1."

    virtual_time.run(main)


def atlas() -> Flow:
    """A list that work returns, in place, with a photo, and a flow that is called."""
    called = FlowBuilder("sure")
    called.state("ask", say="Sure?").button("Yes", to="yes")
    called.final("yes", say="Good.")
    flow = FlowBuilder("shop", in_place=True)
    flow.command("/start", to="start")
    flow.state("start", say="Welcome!").button("Look", to="looking")
    flow.state("looking").run("create_order", done="list", failed="end", save=("places",))
    places = flow.state("list", say="Where?").photo(id="P")
    places.choose("places", to="sure", save="place", page=1)
    flow.state("sure").call(called.build(), to="end")
    flow.final("end", say="To {place}.", in_place=False)
    return flow.build()


async def look_places(_: object) -> dict[str, list[str]]:
    return {"places": ["Rome", "Oslo"]}


async def choose(clock: VirtualClock, deaths: list[Death]) -> Disk:
    disk = Disk(clock)
    days = Days(disk, deaths, flow=atlas(), work={"create_order": look_places})
    await days.start()
    await days.do(lambda bot: bot.command(1, "/start"))
    await days.do(lambda bot: bot.press(2, "Look", below=(5, False)))
    await days.sleep(40)
    for number, label in enumerate(("»", "Oslo"), 3):
        deed: Deed = partial(Bot.press, number=number, text=label, below=(5, True))
        await days.do(deed)
        await days.sleep(40)
    await days.do(lambda bot: bot.press(6, "Yes", below=(8, False)))
    await days.stop()
    return disk


def test_lists_changes_and_called_flows_survive_a_death_at_each_write() -> None:
    async def end_of(clock: VirtualClock, deaths: list[Death]) -> tuple[list[str], int]:
        disk = await choose(clock, deaths)
        assert await disk.left() == {}
        # Visits are in the data of buttons, and the time in visits.
        shown = [
            (
                said["method"],
                said.get("message_id"),
                said.get("text") or said.get("media", {}).get("caption", ""),
            )
            for said in disk.said.values()
        ]
        return list(map(str, shown)), disk.writes

    known, writes = virtual_time.run(lambda clock: end_of(clock, []))
    assert known == [
        "('sendMessage', None, 'Welcome!')",
        "('editMessageMedia', 5, 'Where?')",
        "('editMessageMedia', 5, 'Where?')",
        "('sendMessage', None, 'Sure?')",
        "('deleteMessage', 5, '')",
        "('editMessageText', 8, 'Good.')",
        "('sendMessage', None, 'To Oslo.')",
    ]
    for number in range(1, writes + 1):
        for late in (False, True):
            shown, _ = virtual_time.run(partial(end_of, deaths=[(number, late)]))
            assert shown == known


async def test_what_the_application_said_is_done_whole_or_not_at_all(clock: VirtualClock) -> None:
    """It does not say it again."""

    async def end_of(death: Death) -> tuple[str, bool, bool]:
        disk = Disk(clock)
        days = Days(disk, [])
        await days.start()
        await days.do(lambda bot: bot.order())
        days.bot.life.left, days.bot.life.late = death
        await days.survive(lambda: days.bot.executor.signal(ALICE, "refund"))
        await days.sleep(5)
        await days.stop()
        left = await disk.left()
        return disk.texts()[-1], "sessions" in left, "flow:shop:unfinished" in left

    ends = {await end_of((writes, late)) for writes in range(1, 9) for late in (False, True)}
    assert ends == {("Pay TG-1, please.", True, False), ("Cancelled.", False, False)}


Snapshot = tuple[str, list[str], list[str]]  # the state, the pending effects, what was said


async def snapshot(disk: Disk) -> Snapshot:
    session = (await disk.sessions.load(ALICE)).session
    assert session is not None
    return session.state, [type(one.effect).__name__ for one in session.pending], disk.texts()


async def test_at_a_death_between_the_writes_of_an_event_its_state_and_its_pending_effects_agree(
    clock: VirtualClock,
) -> None:
    """The event does not come again: what its first write promises is done in the next life."""
    welcomed, promised = ["Welcome!"], ["AnswerPress", "SayText", "RunWork"]
    said = [*welcomed, "One moment."]
    unmoved: Snapshot = ("start", [], welcomed)
    waits: Snapshot = ("waiting", [], [*said, "Pay TG-1, please."])

    async def die_at(death: Death) -> tuple[Snapshot, Snapshot]:
        disk = Disk(clock)
        days = Days(disk, [])
        await days.start()
        await days.do(lambda bot: bot.command(1, "/start"))
        days.bot.life.left, days.bot.life.late = death
        at_death = list[Snapshot]()

        async def watch() -> None:
            await days.bot.life.over.wait()
            at_death.append(await snapshot(disk))

        watching = asyncio.ensure_future(watch())
        assert not await days.survive(lambda: days.bot.press(2, "Order"))
        await days.sleep(5)
        await watching
        end = await snapshot(disk)
        await days.stop()
        return at_death[0], end

    found = [await die_at((write, late)) for write in (1, 2, 3) for late in (False, True)]

    assert found == [  # at the death, and after the next life
        (unmoved, unmoved),
        (("ordering", promised, welcomed), waits),
        (("ordering", promised, welcomed), waits),
        (("ordering", promised, said), waits),
        (("ordering", promised, said), waits),
        (("ordering", ["RunWork"], said), waits),
    ]


async def test_timers_and_polls_go_on_in_the_next_life(clock: VirtualClock) -> None:
    disk = Disk(clock)
    first = Bot(disk, Life())
    await first.start()
    await first.order(ALICE)
    await first.order(BOB, number=11)
    await first.stop()

    await clock.sleep(3_600)  # nobody runs; the nudge was due
    second = Bot(disk, Life())
    await second.start()
    disk.paid.add("TG-1")
    await clock.sleep(INTERVAL + 5)
    await second.stop()
    assert disk.texts(ALICE)[-2:] == ["Still there?", "Paid: TG-1."]
    assert disk.texts(BOB)[-1] == "Still there?"


async def test_many_timers_that_were_missed_ring_a_few_at_a_time(clock: VirtualClock) -> None:
    disk = Disk(clock)
    for user in range(1, 2_501):
        session = Session(flow="shop", state="start", visit=1, expires_at=1.0)
        await disk.sessions.commit(SessionKey(42, user, user), session, expected=0)
    bot = Bot(disk, Life())
    ringing = most = 0
    handle = bot.executor.handle

    async def look(key: SessionKey, event: FlowEvent) -> bool:
        nonlocal ringing, most
        ringing += 1
        most = max(most, ringing)
        await clock.sleep(0.01)
        ringing -= 1
        return await handle(key, event)

    bot.executor.handle = look  # type: ignore[method-assign,assignment]
    await bot.start()
    await clock.sleep(5)
    assert bot.executor.stats().timers == 0
    await bot.stop()
    assert most == 16


@pytest.mark.parametrize("awaited_only", [False, True])
async def test_in_a_group_only_what_is_awaited_is_heard(clock: VirtualClock, *, awaited_only: bool) -> None:
    bot = Bot(Disk(clock), Life())
    await bot.start()
    await bot.order()
    event = Text("chatter", **bot.cause(9))
    assert await bot.executor.handle(ALICE, event, awaited_only=awaited_only) is not awaited_only
    await bot.stop()


def impatient(kind: str) -> Flow:
    """Somebody who does nothing is told so: at its timeout, or at the end of its lifetime."""
    flow = FlowBuilder("shop", lifetime=60)
    flow.command("/start", to="start")
    start = flow.state("start", say="Welcome!").button("Order", to="end")
    if kind == "final":
        start.timeout(20, to="end")
    elif kind == "work":
        start.timeout(20, to="other")
        flow.state("other", say="Too late!").run("create_order", done="end", failed="end")
    flow.final("end", say="Over.")
    return flow.build()


SILENT = {
    "final": ["Welcome!", "Over."],
    "work": ["Welcome!", "Too late!", "Over."],
    "lifetime": ["Welcome!", "This conversation has expired. Please start again."],
}


@pytest.mark.parametrize("kind", SILENT)
def test_what_a_timer_caused_is_done_whatever_dies_after_the_timer_was_cleared(kind: str) -> None:
    async def live_and_wait(clock: VirtualClock, deaths: list[Death]) -> Disk:
        disk = Disk(clock)
        days = Days(disk, deaths, flow=impatient(kind), batch_polling=None)
        await days.start()
        await days.do(lambda bot: bot.command(1, "/start"))
        await days.sleep(75)
        await days.stop()
        return disk

    async def main(clock: VirtualClock) -> None:
        writes = (await live_and_wait(clock, [])).writes
        for death in ((number, late) for number in range(1, writes + 1) for late in (False, True)):
            disk = await live_and_wait(clock, [death])
            assert (disk.texts(), await disk.left()) == (SILENT[kind], {}), death

    virtual_time.run(main)
