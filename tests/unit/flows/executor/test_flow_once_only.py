"""Each thing once: what the application repeats, work of another session, a key that two wait for."""

from typing import Any

import pytest

from tidegate.flows import Flow, FlowBuilder
from tidegate.flows.executor import SessionKey, WorkContext
from tidegate.flows.executor.recovery import SEEN_SECONDS, SEEN_SWEEP_INTERVAL
from tidegate.flows.session import Session
from tidegate.sim.virtual_time import VirtualClock
from unit.flows.executor.world import ALICE, BOB, INTERVAL, Bot, Disk, Life


@pytest.fixture
async def disk(clock: VirtualClock) -> Disk:
    return Disk(clock)


def numbers() -> Flow:
    """Somebody says himself what he waits for, and may think better of it."""
    flow = FlowBuilder("shop", lifetime=7_200)
    flow.command("/start", to="start").command("/cancel", to="cancelled")
    flow.state("start", say="Number?").on("text", to="waiting", save="order_id")
    waiting = flow.state("waiting", say="Pay {order_id}.").poll("payment", key="order_id", met="paid")
    waiting.on("text", save="order_id", say="Rather {order_id}.")
    flow.final("paid", say="Paid: {order_id}.")
    flow.final("cancelled", say="Cancelled.")
    return flow.build()


async def number_bot(disk: Disk) -> Bot:
    bot = Bot(disk, Life(), flow=numbers(), work={})
    await bot.start()
    return bot


async def test_work_of_a_session_that_follows_many_quick_visits_has_a_key_of_its_own(disk: Disk) -> None:
    keys: list[str] = []

    async def work(context: WorkContext) -> dict[str, str]:
        keys.append(context.key)
        return {"order_id": "TG-1"}

    bot = Bot(disk, Life(), work={"create_order": work})
    await bot.start()
    for number in range(0, 60, 3):  # ever faster than one visit a second
        await bot.command(number, "/start")
        await bot.press(number + 1, "Order")
        await disk.clock.sleep(0.2)
        await bot.press(number + 2, "Cancel")
    await bot.stop()
    assert len(keys) == len(set(keys)) == 20
    assert disk.texts().count("Welcome!") == 20


async def test_what_the_application_repeats_counts_once_also_after_the_session_has_ended(disk: Disk) -> None:
    bot = Bot(disk, Life())
    await bot.start()
    await bot.executor.begin(ALICE, {}, event="order-7")
    await bot.command(1, "/cancel")
    await bot.executor.begin(ALICE, {}, event="order-7")
    await bot.stop()
    later = Bot(disk, Life())
    await later.start()
    await later.executor.begin(ALICE, {}, event="order-7")
    assert (await later.session(), disk.texts()) == (None, ["Welcome!", "Cancelled."])
    await later.executor.begin(ALICE, {}, event="order-8")
    await later.executor.begin(BOB, {}, event="order-7")
    await later.stop()
    assert (disk.texts()[2:], disk.texts(BOB)) == (["Welcome!"], ["Welcome!"])


async def test_what_the_application_repeats_counts_once_also_after_many_other_events(disk: Disk) -> None:
    bot = Bot(disk, Life())
    await bot.start()
    await bot.executor.begin(ALICE, {}, event="campaign")
    for number in range(9):
        await bot.write(number, "hm")
    await bot.press(20, "Order")
    await disk.clock.sleep(5)
    await bot.executor.begin(ALICE, {}, event="campaign")
    session = await bot.session()
    await bot.stop()
    assert session is not None
    assert session.state == "waiting"


async def test_a_signal_that_nobody_heard_may_be_said_again(disk: Disk) -> None:
    bot = Bot(disk, Life())
    await bot.start()
    assert not await bot.executor.signal(ALICE, "refund", event="refund-1")
    await bot.order()
    assert await bot.executor.signal(ALICE, "refund", event="refund-1")
    await bot.stop()
    assert disk.texts()[-1] == "Cancelled."


async def test_what_was_heard_is_forgotten_after_a_week(disk: Disk) -> None:
    bot = Bot(disk, Life())
    await bot.start()
    await bot.executor.begin(ALICE, {}, event="order-7")
    await bot.command(1, "/cancel")
    await bot.stop()
    for wait, is_known in ((SEEN_SECONDS - SEEN_SWEEP_INTERVAL, True), (2 * SEEN_SWEEP_INTERVAL, False)):
        await disk.clock.sleep(wait)
        later = Bot(disk, Life())
        await later.start()
        await disk.clock.sleep(1)
        await later.executor.begin(ALICE, {}, event="order-7")
        assert (await later.session() is None) is is_known
        await later.stop()
    assert await disk.sessions.forget_seen(disk.clock.now() - SEEN_SECONDS) == 0


@pytest.mark.parametrize("wait", [0.0, 10.0, INTERVAL + 1])
async def test_who_leaves_does_not_take_the_subscription_of_another(disk: Disk, wait: float) -> None:
    bot = await number_bot(disk)
    for number, place in ((1, ALICE), (3, BOB)):
        await bot.command(number, "/start", place)
        await bot.write(number + 1, "A1", place)
        await disk.clock.sleep(INTERVAL + 1 if place == ALICE else wait)
    await bot.command(5, "/cancel", ALICE)
    disk.paid.add("A1")
    await disk.clock.sleep(2 * INTERVAL)
    await bot.stop()
    assert disk.texts(BOB)[-1] == "Paid: A1."


async def test_who_leaves_after_a_restart_does_not_take_the_subscription_of_another(disk: Disk) -> None:
    bot = await number_bot(disk)
    for number, place in ((1, ALICE), (3, BOB)):
        await bot.command(number, "/start", place)
        await bot.write(number + 1, "A1", place)
    await bot.stop()
    later = Bot(disk, Life(), flow=numbers(), work={}, restore=False)
    await later.start()
    await disk.clock.sleep(1)
    await later.command(5, "/cancel", ALICE)
    left = await disk.left()
    await later.stop()
    assert left["flow:shop:payment"] == 1


async def test_who_changes_what_he_waits_for_is_told_of_that(disk: Disk) -> None:
    bot = await number_bot(disk)
    await bot.command(1, "/start")
    await bot.write(2, "A1")
    await disk.clock.sleep(INTERVAL + 1)
    await bot.write(3, "B2")
    disk.asked.clear()
    disk.paid.update(("A1", "B2"))
    await disk.clock.sleep(2 * INTERVAL)
    await bot.stop()
    assert disk.texts()[-2:] == ["Rather B2.", "Paid: B2."]
    assert disk.asked == [["B2"]]
    assert await disk.left() == {}


async def test_what_was_said_is_known_for_longer_than_a_session_lasts(disk: Disk) -> None:
    bot = Bot(disk, Life(), flow=numbers(), work={}, on_unknown="park")
    await bot.start()
    await bot.command(1, "/start")
    await bot.stop()
    (said,) = disk.said.values()
    assert said["dedup_for"] >= 7_200 + 7 * 86_400
    assert said["on_unknown"] == "park"


async def test_a_flow_that_no_command_begins_says_so_when_it_starts(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    flow = FlowBuilder("shop")
    flow.state("start", say="Welcome!").on("text", to="end")
    flow.final("end")
    bot = Bot(disk, Life(), flow=flow.build(), work={}, batch_polling=None)
    await bot.start()
    await bot.stop()
    assert "no command begins flow shop" in caplog.text


async def test_an_event_is_handled_again_if_another_process_was_faster(disk: Disk) -> None:
    """A process may lose the lock of a session without noticing."""
    bot = Bot(disk, Life())
    await bot.start()
    await bot.command(1, "/start")
    commit, meddled = disk.sessions.commit, list[str]()

    async def meddle(key: SessionKey, session: Session | None, **options: Any) -> int:  # noqa: ANN401
        if not meddled:
            meddled.append("once")
            stored = await disk.sessions.load(key)
            await commit(key, stored.session, expected=stored.version)
        return await commit(key, session, **options)

    disk.sessions.commit = meddle  # type: ignore[method-assign]
    await bot.write(2, "hm")
    session = await bot.session()
    await bot.stop()
    assert disk.texts() == ["Welcome!", "Please use the buttons."]
    assert session is not None
    assert session.recent == ("u1", "u2")
