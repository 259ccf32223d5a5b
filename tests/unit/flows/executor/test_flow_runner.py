"""A conversation from its beginning to its end, in one life of the bot."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from tidegate.errors import BadInputError, StoreAwayError
from tidegate.flows import FlowBuilder, FlowError, Poll, Transition
from tidegate.flows.events import Polled
from tidegate.flows.executor import SessionKey, WorkContext
from tidegate.sim.virtual_time import VirtualClock
from unit.flows.executor.world import ALICE, BOB, INTERVAL, Bot, Disk, Life, shop

ORDERED = ["Welcome!", "One moment.", "Pay TG-1, please."]


@pytest.fixture
async def disk(clock: VirtualClock) -> Disk:
    return Disk(clock)


@pytest.fixture
async def bot(disk: Disk) -> AsyncIterator[Bot]:
    bot = Bot(disk, Life())
    await bot.start()
    yield bot
    await bot.stop()


async def test_who_pays_is_told_once_and_leaves_nothing_behind(bot: Bot, disk: Disk) -> None:
    await bot.order()
    disk.paid.add("TG-1")
    await disk.clock.sleep(INTERVAL + 1)

    assert disk.texts() == [*ORDERED, "Paid: TG-1."]
    assert await disk.left() == {}
    assert disk.answers == [""]
    assert len(bot.executor.stats().polls) == 1
    assert not bot.locks.held


async def test_an_update_that_comes_again_changes_nothing(bot: Bot, disk: Disk) -> None:
    for _ in range(2):
        assert await bot.command(1, "/start")
    assert (disk.texts(), disk.puts) == (["Welcome!"], 1)


async def test_a_double_click_is_answered_and_orders_once(bot: Bot, disk: Disk) -> None:
    await bot.command(1, "/start")
    await asyncio.gather(bot.press(2, "Order"), bot.press(3, "Order"))
    await disk.clock.sleep(5)

    assert disk.texts() == ORDERED
    assert bot.created == 1
    assert disk.answers == ["", "That button is no longer in use."]


async def test_a_button_of_a_session_that_is_over_is_answered(bot: Bot, disk: Disk) -> None:
    await bot.order()
    await bot.command(3, "/cancel")
    assert await bot.press(4, "Cancel")
    await disk.clock.sleep(0.1)

    assert disk.answers[-1] == "That button is no longer in use."
    assert disk.texts()[-1] == "Cancelled."
    assert await disk.left() == {}


async def test_what_is_out_of_place_is_answered_and_what_is_nobodys_is_left_to_others(
    bot: Bot, disk: Disk
) -> None:
    assert not await bot.write(1, "hello")
    assert not await bot.command(2, "/cancel")
    await bot.command(3, "/start")
    assert await bot.write(4, "hello")
    assert disk.texts() == ["Welcome!", "Please use the buttons."]


async def test_a_flow_that_fails_leaves_the_session_where_it_was(bot: Bot, disk: Disk) -> None:
    await bot.command(1, "/start")
    with pytest.raises(FlowError, match="a guard that breaks"):
        await bot.write(2, "break")
    await bot.press(3, "Order")
    await disk.clock.sleep(5)
    assert disk.texts() == ORDERED
    assert bot.executor.stats().errors == 1


async def test_news_that_the_flow_fails_on_are_told_again_until_it_does_not(disk: Disk) -> None:
    flow = shop()
    waiting = flow.by_name["waiting"]
    guarded = replace(waiting, on=(*waiting.on, Transition("met:payment", to="paid", guard="mended")))
    mended: list[bool] = []

    def is_mended(_: object, __: object) -> bool:
        return mended[0]  # at first an IndexError

    states = tuple(guarded if state is waiting else state for state in flow.states)
    flow = replace(flow, states=states, guards={**flow.guards, "mended": is_mended})
    bot = Bot(disk, Life(), flow=flow)
    await bot.start()
    await bot.order()
    disk.paid.add("TG-1")
    await disk.clock.sleep(INTERVAL + 1)
    assert disk.texts() == ORDERED
    mended.append(True)
    await disk.clock.sleep(INTERVAL)
    await bot.stop()
    assert disk.texts() == [*ORDERED, "Paid: TG-1."]


async def test_a_payment_that_is_taken_back_ends_the_subscription_too(disk: Disk) -> None:
    flow = shop()
    waiting = flow.by_name["waiting"]
    poll = Poll("payment", "order_id", met="paid", reversed="cancelled")
    states = (replace(state, poll=poll) if state is waiting else state for state in flow.states)
    bot = Bot(disk, Life(), flow=replace(flow, states=tuple(states)))
    await bot.start()
    await bot.order()
    taken_back = Polled("payment", "TG-1", "reversed", None, id="p1", at=disk.clock.now())
    assert await bot.executor.handle(ALICE, taken_back)
    await bot.stop()
    assert disk.texts() == [*ORDERED, "Cancelled."]
    assert await disk.left() == {}


async def test_a_timeout_that_the_flow_fails_on_leaves_the_end_of_the_lifetime(disk: Disk) -> None:
    flow = FlowBuilder("short", lifetime=100)
    flow.command("/start", to="start")
    flow.state("start", say="Welcome!").timeout(10, to="end").on("timeout", to="end", guard="breaks")
    flow.final("end", say="Over.")

    @flow.guard
    def breaks(_: object, __: object) -> bool:
        raise RuntimeError("always")

    bot = Bot(disk, Life(), flow=flow.build(), work={}, batch_polling=None)
    await bot.start()
    await bot.command(1, "/start")
    await disk.clock.sleep(50)
    assert disk.texts() == ["Welcome!"]
    await disk.clock.sleep(60)
    await bot.stop()
    assert disk.texts()[1:] == ["This conversation has expired. Please start again."]
    assert await disk.left() == {}


async def test_who_cancels_is_asked_about_no_more(bot: Bot, disk: Disk) -> None:
    await bot.order()
    await bot.press(3, "Cancel")
    disk.asked.clear()
    disk.paid.add("TG-1")
    await disk.clock.sleep(3 * INTERVAL)
    assert (disk.asked, disk.texts()[-1]) == ([], "Cancelled.")


async def test_who_does_not_pay_is_nudged_once_and_forgotten_at_the_end_of_his_lifetime(
    bot: Bot, disk: Disk
) -> None:
    await bot.order()
    await disk.clock.sleep(900)
    assert disk.texts() == [*ORDERED, "Still there?"]
    await disk.clock.sleep(7_200)
    expired = "This conversation has expired. Please start again."
    assert disk.texts() == [*ORDERED, "Still there?", expired]
    assert await disk.left() == {}
    assert bot.executor.stats().expired == 1
    priorities = {said["text"]: said["priority"] for said in disk.said.values()}
    assert (priorities["Welcome!"], priorities["Still there?"]) == ("high", "normal")


async def test_work_that_fails_is_tried_again_and_then_given_up(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    keys = []

    async def fail(context: WorkContext) -> None:
        keys.append(context.key)
        raise ValueError("a secret of the shop")

    bot = Bot(disk, Life(), work={"create_order": fail}, tries=2)
    await bot.start()
    await bot.order()
    await bot.stop()

    assert disk.texts() == ["Welcome!", "One moment.", "It did not work."]
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert "a secret of the shop" in caplog.text
    assert await disk.left() == {}


async def test_work_whose_result_the_flow_cannot_use_has_failed(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async def forget(_: WorkContext) -> dict[str, str]:
        return {"another": "field"}

    bot = Bot(disk, Life(), work={"create_order": forget})
    await bot.start()
    await bot.order()
    await bot.stop()
    assert disk.texts()[-1] == "It did not work."
    assert "order_id is to be saved" in caplog.text


async def test_a_session_can_be_left_while_work_goes_on_for_it(bot: Bot, disk: Disk) -> None:
    await bot.command(1, "/start")
    await bot.press(2, "Order")
    await bot.command(3, "/cancel")
    await disk.clock.sleep(60)
    assert disk.texts() == ["Welcome!", "One moment.", "Cancelled."]
    assert await disk.left() == {}


async def test_the_application_begins_sessions_and_tells_them_what_happened(bot: Bot, disk: Disk) -> None:
    for _ in range(2):
        await bot.executor.begin(ALICE, {}, event="campaign-7")
    await bot.press(1, "Order")
    await disk.clock.sleep(5)
    assert await bot.executor.signal(ALICE, "refund")
    assert not await bot.executor.signal(ALICE, "refund")
    assert disk.texts() == [*ORDERED, "Cancelled."]
    assert await disk.left() == {}


async def test_whoever_subscribes_to_a_key_later_takes_it_over(disk: Disk) -> None:
    async def same(_: WorkContext) -> dict[str, str]:
        return {"order_id": "shared"}

    bot = Bot(disk, Life(), work={"create_order": same})
    await bot.start()
    await bot.order(ALICE)
    await bot.order(BOB, number=11)
    await disk.clock.sleep(INTERVAL)
    await bot.press(3, "Cancel", ALICE)
    disk.paid.add("shared")
    await disk.clock.sleep(INTERVAL + 1)
    await bot.stop()
    assert disk.texts(BOB)[-1] == "Paid: shared."


async def test_without_batches_each_is_asked_about_alone(disk: Disk) -> None:
    bot = Bot(disk, Life(), in_batches=False)
    await bot.start()
    await bot.order(ALICE)
    await bot.order(BOB, number=11)
    disk.paid.update(("TG-1", "TG-2"))
    await disk.clock.sleep(INTERVAL + 1)
    await bot.stop()
    assert {len(keys) for keys in disk.asked} == {1}
    assert (disk.texts(ALICE)[-1], disk.texts(BOB)[-1]) == ("Paid: TG-1.", "Paid: TG-2.")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"batch_polling": {"batch_chek_fn": print}}, "batch_polling_config has no batch_chek_fn"),
        ({"batch_polling": {"interval": 60}}, "needs batch_check_fn"),
        ({"batch_polling": {"batch_check_fn": print, "batch_size": 0}}, "asks for nothing"),
        ({"batch_polling": {"batch_check_fn": print, "interval": 0}}, "seconds above 0"),
        ({"batch_polling": None}, "payment"),
        ({"work": {}}, "create_order"),
        ({"work": {"create_order": print}}, "give an async function"),
        ({"tries": 0}, "give 1 or more"),
    ],
)
async def test_what_cannot_work_is_refused_at_once(
    disk: Disk, options: dict[str, object], complaint: str
) -> None:
    with pytest.raises(BadInputError, match=complaint):
        Bot(disk, Life(), **options)


async def test_a_message_that_telegram_would_not_take_holds_up_nothing(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    bot = Bot(disk, Life())
    caplog.set_level(logging.ERROR)

    async def refuse(**_: object) -> None:
        raise BadInputError("text is empty")

    await bot.start()
    bot.gate.send = refuse  # type: ignore[method-assign]
    await bot.command(1, "/start")
    session = await bot.session()
    await bot.stop()
    assert session is not None
    assert session.pending == ()
    assert "text is empty" in caplog.text


async def test_what_a_store_that_was_away_did_not_take_is_done_when_it_is_back(disk: Disk) -> None:
    bot = Bot(disk, Life())
    put = bot.gate.send

    async def refuse(**_: object) -> None:
        raise StoreAwayError("no disk")

    await bot.start()
    bot.gate.send = refuse  # type: ignore[method-assign]
    with pytest.raises(StoreAwayError):
        await bot.command(1, "/start")
    bot.gate.send = put  # type: ignore[method-assign]
    await disk.clock.sleep(31)
    await bot.stop()
    assert disk.texts() == ["Welcome!"]


async def test_a_session_in_a_topic_of_a_forum_is_answered_there(bot: Bot, disk: Disk) -> None:
    place = SessionKey(42, -100_500, 7, 5)
    await bot.order(place)
    await disk.clock.sleep(900)
    assert disk.texts(place)[-1] == "Still there?"
    assert {said["message_thread_id"] for said in disk.said.values()} == {5}


async def test_a_flow_needs_no_words_for_its_work_to_survive(disk: Disk) -> None:
    bot = Bot(disk, Life(), flow=shop(say_order=False))
    await bot.start()
    await bot.order()
    await bot.stop()
    assert disk.texts() == ["Welcome!", "Pay TG-1, please."]
