"""The bot comes back with another declaration: who waits, waits for what the flow says by now."""

import pytest

from tidegate.flows import Flow, FlowBuilder
from tidegate.flows.events import Polled
from tidegate.sim.virtual_time import VirtualClock
from unit.flows.executor.world import ALICE, INTERVAL, Bot, Disk, Life

EXPIRED = "This conversation has expired. Please start again."


def flow(
    *, state: str = "waiting", key: str = "order_id", poll: str = "payment", timeout: float | None = None
) -> Flow:
    flow = FlowBuilder("shop", lifetime=7_200, given=("invoice",))
    flow.command("/start", to="start").command("/cancel", to="cancelled")
    flow.state("start", say="Number?").on("text", to=state, save="order_id")
    waiting = flow.state(state, say="Pay {order_id}.").poll(poll, key=key, met="paid")
    if timeout is not None:
        waiting.timeout(timeout, say="Still there?")
    flow.final("paid", say="Paid: {order_id}.")
    flow.final("cancelled", say="Cancelled.")
    return flow.build()


async def return_with(disk: Disk, declared: Flow) -> Bot:
    """Alice waits for A1 when the bot is replaced."""
    before = Bot(disk, Life(), flow=flow(), work={})
    await before.start()
    await before.command(1, "/start")
    await before.write(2, "A1")
    await disk.clock.sleep(INTERVAL + 1)
    await before.stop()
    bot = Bot(disk, Life(), flow=declared, work={})
    await bot.start()
    await disk.clock.sleep(1)
    return bot


@pytest.fixture
async def disk(clock: VirtualClock) -> Disk:
    return Disk(clock)


@pytest.mark.parametrize("declared", [flow(key="invoice"), flow(poll="bill"), flow()])
async def test_a_payment_is_noticed_though_the_poll_has_another_key_or_name(
    disk: Disk, declared: Flow
) -> None:
    bot = await return_with(disk, declared)
    disk.paid.add("A1")
    await disk.clock.sleep(2 * INTERVAL)
    await bot.stop()
    assert disk.texts()[-1] == "Paid: A1."
    assert await disk.left() == {}


async def test_who_cancels_is_asked_about_no_more_though_the_poll_has_another_key(disk: Disk) -> None:
    bot = await return_with(disk, flow(key="invoice"))
    await bot.command(3, "/cancel")
    await bot.stop()
    assert await disk.left() == {}


async def test_a_timeout_that_was_added_rings(disk: Disk) -> None:
    bot = await return_with(disk, flow(timeout=100))
    await disk.clock.sleep(102)
    await bot.stop()
    assert disk.texts()[-1] == "Still there?"


async def test_whose_state_is_gone_hears_of_it_when_he_writes_and_is_asked_about_no_more(disk: Disk) -> None:
    bot = await return_with(disk, flow(state="another"))
    await disk.clock.sleep(INTERVAL)
    assert disk.texts()[-1] == "Pay A1."
    await bot.write(3, "hello?")
    await bot.stop()
    assert disk.texts()[-1] == EXPIRED
    assert await disk.left() == {}


async def test_news_of_what_is_held_count_though_the_data_says_another_key(disk: Disk) -> None:
    bot = await return_with(disk, flow())
    session = await bot.session()
    assert session is not None
    session.data["order_id"] = "B2"
    stored = await disk.sessions.load(ALICE)
    await disk.sessions.commit(ALICE, session, expected=stored.version)
    await bot.executor.handle(ALICE, Polled("payment", "A1", "met", True, **bot.cause(3)))  # noqa: FBT003
    await bot.stop()
    assert disk.texts()[-1] == "Paid: B2."
