"""A flow as a bot on aiogram: updates in, messages out, in virtual time against the simulator."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio.lowlevel
import pytest
from aiogram.filters import Command
from aiogram.fsm.storage.base import DefaultKeyBuilder
from aiogram.fsm.storage.memory import MemoryStorage
from aiogram.fsm.storage.redis import RedisStorage
from aiogram.types import CallbackQuery, Message, Update
from redis.asyncio import Redis

from tidegate.adapters.aiogram.flow_storage import StorageFlowSessions
from tidegate.adapters.aiogram.flows import FlowExecutor
from tidegate.errors import BadInputError, ClosedError
from tidegate.flows import Flow, FlowBuilder
from tidegate.flows.events import FlowEvent
from tidegate.flows.executor import WorkContext
from tidegate.outbox.effect_keys import effect_keys_for
from tidegate.polling.batch import BatchPoller
from tidegate.polling.restorer import RestoreStep
from tidegate.polling.subscriptions import Subscription, Subscriptions
from tidegate.sim.telegram.people import Person
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.flow_sessions import MemoryFlowSessions
from tidegate.stores.redis.conversations import RedisConversationLocks
from unit.adapters.aiogram.stage import TOKEN, Stage
from unit.flows.executor.world import shop

ALICE, BOB, GROUP = 1001, 1002, -100_500
PAID: set[str] = set()


async def create_order(context: WorkContext) -> dict[str, Any]:
    return {"order_id": f"TG-{context.user}"}


async def batch_check_payment_status(keys: Sequence[str]) -> dict[str, bool]:
    await anyio.lowlevel.checkpoint()
    return {key: key in PAID for key in keys}


CONFIG = {"batch_size": 20, "interval": 60, "batch_check_fn": batch_check_payment_status}


@pytest.fixture(autouse=True)
def nobody_has_paid() -> None:
    PAID.clear()


def executor_on(stage: Stage, flow: Flow | None = None, **options: Any) -> FlowExecutor:  # noqa: ANN401
    shared: dict[str, Any] = {"gate": stage.gate, "bot": stage.bot, "work": {"create_order": create_order}}
    executor = FlowExecutor(flow or shop(), TOKEN, True, CONFIG, **{**shared, **options})  # noqa: FBT003
    executor.attach(stage.dispatcher)
    return executor


@asynccontextmanager
async def running(stage: Stage, executor: FlowExecutor) -> AsyncIterator[None]:
    bot = asyncio.create_task(executor.start_polling(handle_signals=False, close_bot_session=False))
    await stage.clock.sleep(0.1)
    yield
    await stage.clock.sleep(0.1)
    await stage.dispatcher.stop_polling()
    await bot


def person(stage: Stage, user: int, chat: int | None = None) -> Person:
    bot = stage.telegram.world.bot(TOKEN)
    assert bot is not None
    return Person(stage.telegram, bot, user, chat=chat)


def texts(someone: Person) -> list[str]:
    return [message["text"] for message in someone.heard]


async def order(stage: Stage, someone: Person) -> None:
    someone.says("/start")
    await stage.clock.sleep(1)
    someone.presses()
    await stage.clock.sleep(5)


ORDERED = ["Welcome!", "One moment.", f"Pay TG-{ALICE}, please."]


async def test_somebody_orders_pays_and_is_told(stage: Stage) -> None:
    executor, alice = executor_on(stage), person(stage, ALICE)
    async with running(stage, executor):
        await order(stage, alice)
        PAID.add(f"TG-{ALICE}")
        await stage.clock.sleep(61)

    assert texts(alice) == [*ORDERED, f"Paid: TG-{ALICE}."]
    assert stage.refused == 0
    stats = executor.stats()
    assert (stats.begun, stats.ended, stats.polls["payment"].told) == (1, 1, 1)
    assert stats.as_dict()["polls"]["payment"]["told"] == 1
    assert len(stage.arrivals("answerCallbackQuery")) == 1


@pytest.mark.parametrize("kind", ["file", "memory", "own"])
async def test_a_restart_in_the_middle_loses_nothing_that_the_store_holds(
    clock: VirtualClock, tmp_path: Path, kind: str
) -> None:
    store = "memory://" if kind == "memory" else str(tmp_path / "bot.db")
    own: dict[str, Any] = {"storage": MemoryStorage()} if kind == "own" else {}
    first = Stage(clock, store=store)
    alice = person(first, ALICE)
    async with running(first, executor_on(first, **own)):
        await order(first, alice)
    PAID.add(f"TG-{ALICE}")
    second = Stage(clock, store=store, telegram=first.telegram)
    executor = executor_on(second, **own)
    async with running(second, executor):
        await clock.sleep(62)

    assert texts(alice) == ([*ORDERED] if kind == "memory" else [*ORDERED, f"Paid: TG-{ALICE}."])


async def test_the_same_executor_can_run_again(clock: VirtualClock, tmp_path: Path) -> None:
    stage = Stage(clock, store=str(tmp_path / "bot.db"))
    executor, alice = executor_on(stage), person(stage, ALICE)
    async with running(stage, executor):
        await order(stage, alice)
    PAID.add(f"TG-{ALICE}")
    async with running(stage, executor):
        await clock.sleep(62)
    assert texts(alice)[-1] == f"Paid: TG-{ALICE}."


async def test_what_is_not_of_the_flow_goes_to_other_routers(stage: Stage) -> None:
    stage.dispatcher.callback_query.register(_others_press)
    heard: list[str] = []

    @stage.dispatcher.message(Command("stats"))
    async def stats(message: Message) -> None:
        heard.append(message.text or "")

    executor, alice = executor_on(stage), person(stage, ALICE)

    async def chat(message: Message) -> None:
        heard.append(message.text or "")

    late = executor.router.__class__(name="late")
    late.message.register(chat)
    stage.dispatcher.include_router(late)
    async with running(stage, executor):
        for text in ("hello", "/help", "/cancel@somebody_else_bot", "/Start", "/stats", "hello again"):
            alice.says(text)
            await stage.clock.sleep(2)

    assert heard == ["hello", "/help", "/cancel@somebody_else_bot", "/stats"]
    assert texts(alice) == ["Welcome!", "Please use the buttons."]


async def _others_press(query: CallbackQuery) -> None:
    await query.answer("another's")


async def test_a_press_of_another_flow_or_of_none_is_left_to_others(stage: Stage) -> None:
    executor, pressed = executor_on(stage), list[str]()

    @stage.dispatcher.callback_query()
    async def other(query: CallbackQuery) -> None:
        pressed.append(query.data or "")

    async with running(stage, executor):
        for number, data in enumerate(("buy", "f:another:1:abc")):
            await stage.dispatcher.feed_update(stage.bot, _press(number, data))
    assert pressed == ["buy", "f:another:1:abc"]


def _press(update: int, data: str) -> Update:
    who = {"id": ALICE, "is_bot": False, "first_name": "Alice"}
    chat = {"id": ALICE, "type": "private"}
    message = {"message_id": 1, "date": 1, "chat": chat, "text": "?"}
    query = {"id": "7", "from": who, "chat_instance": "1", "data": data, "message": message}
    return Update.model_validate({"update_id": update, "callback_query": query})


async def test_a_flow_that_fails_says_sorry_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    executor, alice = executor_on(stage, sorry="Oops."), person(stage, ALICE)
    async with running(stage, executor):
        alice.says("/start")
        await stage.clock.sleep(1)
        alice.says("break")
        await stage.clock.sleep(2)
    assert texts(alice) == ["Welcome!", "Oops."]
    assert "a guard that breaks" in caplog.text


async def test_a_press_that_the_flow_fails_on_is_answered(stage: Stage) -> None:
    flow = FlowBuilder("broken")
    flow.command("/start", to="start")
    flow.state("start", say="Welcome!").button("Go", to="end", guard="breaks")
    flow.final("end", say="Over.")

    @flow.guard
    def breaks(data: Mapping[str, Any], event: FlowEvent) -> bool:  # noqa: ARG001
        raise RuntimeError("a secret")

    executor, alice = executor_on(stage, flow.build(), work={}, sorry="Oops."), person(stage, ALICE)
    async with running(stage, executor):
        alice.says("/start")
        await stage.clock.sleep(1)
        query = alice.presses()
        await stage.clock.sleep(2)
    bot = stage.telegram.world.bot(TOKEN)
    assert bot is not None
    assert texts(alice) == ["Welcome!"]
    assert len(stage.arrivals("answerCallbackQuery")) == 1
    assert query


async def test_with_redis_a_session_is_held_in_all_processes(clock: VirtualClock) -> None:
    holders: dict[str, object] = {}

    class Lock:
        def __init__(self, name: str, timeout: float) -> None:
            self.name, self.timeout = name, timeout

        async def acquire(self) -> None:
            while self.name in holders:
                await clock.sleep(0.1)
            holders[self.name] = self

        async def release(self) -> None:
            del holders[self.name]

    class FakeRedis:
        def lock(self, name: str, timeout: float) -> Lock:
            return Lock(name, timeout)

    keys = DefaultKeyBuilder(with_bot_id=True, with_destiny=True)
    storage = RedisStorage(cast("Redis", FakeRedis()), keys)
    here, there = (StorageFlowSessions(MemoryFlowSessions("shop"), storage, clock) for _ in range(2))
    order: list[str] = []

    async def say(turns: StorageFlowSessions, what: str, seconds: float) -> None:
        async with turns.hold("42:1:1"):
            order.append(f"{what} begins")
            await clock.sleep(seconds)
            order.append(f"{what} ends")

    with effect_keys_for("an update"):  # a poller's news are in hand too, and must wait all the same
        await asyncio.gather(say(here, "update", 1), say(there, "news", 0.1), say(here, "timer", 0.1))
    begins = [what.split()[0] for what in order if what.endswith("begins")]
    assert order == [f"{what} {how}" for what in begins for how in ("begins", "ends")]
    assert len(begins) == 3
    assert isinstance(here.locks, RedisConversationLocks)
    assert (holders, len(here.locks.in_use)) == ({}, 0)


async def test_people_in_a_group_have_a_session_each_and_may_talk_to_each_other(stage: Stage) -> None:
    executor = executor_on(stage)
    alice, bob = person(stage, ALICE, GROUP), person(stage, BOB, GROUP)
    async with running(stage, executor):
        alice.says("/start")
        await stage.clock.sleep(4)
        bob.says("what is that?")
        alice.says("a bot")
        await stage.clock.sleep(4)
        bob.presses()
        alice.presses()
        await stage.clock.sleep(15)
    assert [text for text in texts(alice) if text.startswith("Pay")] == [f"Pay TG-{ALICE}, please."]
    assert "Please use the buttons." not in texts(alice)


async def test_what_people_send_is_known_by_its_kind(stage: Stage) -> None:
    flow = FlowBuilder("contacts", given=("first_name",))
    flow.command("/start", to="ask")
    flow.state("ask", say="Your number, {first_name}?").on("contact", to="where", save=("phone_number",))
    flow.state("where", say="{phone_number}. Where?").on("location", to="look", save=("latitude",))
    flow.state("look", say="{latitude}. A photo?").on("photo", to="thrown", save=("file_id",))
    flow.state("thrown", say="Luck?").on("other", to="done", save=("kind",))
    flow.final("done", say="A {kind}.")
    executor, alice = executor_on(stage, flow.build(), work={}), person(stage, ALICE)
    async with running(stage, executor):
        alice.says("/start deep-link")
        await stage.clock.sleep(1)
        alice.shares_contact("+100")
        await stage.clock.sleep(1)
        alice.shares_location(1.5, 2)
        await stage.clock.sleep(1)
        alice.sends_photo(b"photo")
        await stage.clock.sleep(1)
        alice.sends(dice={"emoji": "🎲", "value": 6})
        await stage.clock.sleep(2)
    assert texts(alice)[1:] == ["+100. Where?", "1.5. A photo?", "Luck?", "A dice."]


async def test_who_waited_is_restored_from_the_store_in_groups(clock: VirtualClock, tmp_path: Path) -> None:
    store = str(tmp_path / "bot.db")
    first = Stage(clock, store=store)
    alice = person(first, ALICE)
    async with running(first, executor_on(first)):
        await order(first, alice)
        for user in range(1, 15):
            await executor_subscribes(first, user)
    second = Stage(clock, store=store, telegram=first.telegram)
    executor, steps = executor_on(second, restore=False), list[RestoreStep]()
    async with running(second, executor):
        PAID.add(f"TG-{ALICE}")
        await clock.sleep(61)
        assert executor.stats().polls["payment"].active_subscriptions == 0
        restored = await executor.restore("waiting", on_progress=steps.append)
        await clock.sleep(62)
    assert (restored.restored, restored.groups) == (15, 2)
    assert restored.seconds == pytest.approx(1.0, abs=0.1)
    assert [step.what for step in steps].count("restored") == 15
    assert texts(alice)[-1] == f"Paid: TG-{ALICE}."


async def executor_subscribes(stage: Stage, user: int) -> None:
    await stage.gate.subscriptions("flow:shop:payment").add(
        [Subscription(f"o{user}", {"bot_id": 42, "user_id": user, "chat_id": user}, 1.0)]
    )


async def test_who_waited_is_restored_from_the_data_source(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    executor, alice, bob = executor_on(stage), person(stage, ALICE), person(stage, BOB)
    source = [
        Subscription("A-1", {"user_id": ALICE, "username": "alice"}),
        Subscription("B-1", {"user_id": BOB}),
    ]
    async with running(stage, executor):
        bob.says("/start")
        await stage.clock.sleep(1)
        restored = await executor.restore("waiting", source)
        again = await executor.restore("waiting", source)
        PAID.update(("A-1", "B-1"))
        await stage.clock.sleep(62)
    assert (restored.restored, restored.already, again.restored, again.already) == (1, 1, 0, 2)
    assert texts(alice) == ["Paid: A-1."]
    assert texts(bob) == ["Welcome!"]
    printed = capsys.readouterr().out
    assert "🔄 Restoring 2 users in state 'waiting':" in printed
    assert f"   ✓ User {ALICE} (@alice) - record A-1" in printed


async def test_the_application_begins_and_signals(stage: Stage) -> None:
    executor, alice = executor_on(stage), person(stage, ALICE)
    with pytest.raises(ClosedError, match="does not run yet"):
        await executor.begin(ALICE)
    async with running(stage, executor):
        await executor.begin(ALICE, data={"first_name": "Alice"})
        await stage.clock.sleep(1)
        alice.presses()
        await stage.clock.sleep(5)
        assert await executor.signal(ALICE, ALICE, "refund")
        await stage.clock.sleep(2)
    assert texts(alice)[-1] == "Cancelled."


async def test_a_poller_is_made_or_taken_over(clock: VirtualClock, tmp_path: Path) -> None:
    stage = Stage(clock, store=str(tmp_path / "bot.db"))
    kept: Subscriptions = stage.gate.subscriptions("mine")
    make = partial(BatchPoller, batch_check_payment_status, 5.0)
    for poller in (make, make(clock=clock, subscriptions=kept)):
        executor = FlowExecutor(
            shop(), TOKEN, gate=stage.gate, work={"create_order": create_order}, pollers={"payment": poller}
        )
        assert executor.stats().polls["payment"].active_subscriptions == 0
    for wrong, complaint in (
        (make(clock=clock), "would forget who waits"),
        (make(clock=clock, subscriptions=kept, notify=print), "a notify of its own"),
    ):
        with pytest.raises(BadInputError, match=complaint):
            FlowExecutor(
                shop(),
                TOKEN,
                gate=stage.gate,
                work={"create_order": create_order},
                pollers={"payment": wrong},
            )


async def test_what_cannot_work_is_refused(stage: Stage) -> None:
    with pytest.raises(BadInputError, match="no bot token") as refused:
        FlowExecutor(shop(), "secret token", gate=stage.gate)
    assert "secret" not in str(refused.value)
    storage = RedisStorage.from_url("redis://127.0.0.1:1")
    executor = executor_on(stage, storage=storage)
    with pytest.raises(BadInputError, match="with_destiny=True"):
        await executor.start_polling(handle_signals=False, close_bot_session=False)
    await storage.close()


async def test_a_router_alone_needs_a_gate_that_runs(stage: Stage) -> None:
    executor = FlowExecutor(
        shop(),
        TOKEN,
        batch_polling_config=CONFIG,
        gate=stage.gate,
        work={"create_order": create_order},
        bot=stage.bot,
    )
    stage.dispatcher.include_router(executor.router)
    with pytest.raises(ClosedError, match=r"executor\.attach"):
        await stage.dispatcher.emit_startup(dispatcher=stage.dispatcher)
    alice = person(stage, ALICE)
    async with stage.gate, stage.gate.worker():
        await stage.dispatcher.emit_startup(dispatcher=stage.dispatcher)
        update = {"update_id": 1, "message": alice.says("/start")}
        await stage.dispatcher.feed_raw_update(stage.bot, update)
        await stage.clock.sleep(1)
        await stage.dispatcher.emit_shutdown()
    assert texts(alice) == ["Welcome!"]


async def test_a_gate_that_runs_before_the_flow_is_made_polls_for_it(stage: Stage) -> None:
    stage.gate.attach(None, stage.bot)
    alice = person(stage, ALICE)
    async with stage.gate, stage.gate.worker():
        executor = FlowExecutor(
            shop(),
            TOKEN,
            batch_polling_config=CONFIG,
            gate=stage.gate,
            work={"create_order": create_order},
            bot=stage.bot,
        )
        stage.dispatcher.include_router(executor.router)
        await stage.dispatcher.emit_startup(dispatcher=stage.dispatcher)
        await executor.restore("waiting", [Subscription("A-1", {"user_id": ALICE})])
        with pytest.raises(BadInputError, match="does not say whose it is"):
            await executor.restore("waiting", [Subscription("A-2", {})])
        with pytest.raises(BadInputError, match="choose from waiting"):
            await executor.restore("start")
        PAID.add("A-1")
        await stage.clock.sleep(62)
        await stage.dispatcher.emit_shutdown()
    assert texts(alice) == ["Paid: A-1."]


def test_a_bot_has_an_api_of_its_own() -> None:
    executor = FlowExecutor(
        shop(),
        TOKEN,
        batch_polling_config=CONFIG,
        work={"create_order": create_order},
        api_url="http://127.0.0.1:8081",
        lifetime=60,
    )
    assert executor.bot.session.api.api_url(TOKEN, "getMe") == f"http://127.0.0.1:8081/bot{TOKEN}/getMe"
    assert executor.flow.lifetime == 60
    assert executor.bot.id == 42
    assert not executor.dispatcher.sub_routers, "it is attached when it starts"


def two_flows(stage: Stage) -> FlowExecutor:
    shop, support = FlowBuilder("shop"), FlowBuilder("support")
    for flow, command in ((shop, "/start"), (support, "/support")):
        name = "shop" if flow is shop else "support"
        flow.command(command, to="start").command("/cancel", to="end")
        flow.state("start", say=f"{name} begins").button("Go", to="end")
        flow.final("end", say=f"{name} ends")
    first = executor_on(stage, shop.build(), work={})
    second = FlowExecutor(support.build(), TOKEN, gate=stage.gate, bot=stage.bot)
    stage.dispatcher.include_router(second.router)
    return first


@pytest.mark.parametrize("chat", [None, GROUP])
async def test_a_command_of_another_flow_or_handler_is_passed_on_in_the_middle_of_a_session(
    stage: Stage, chat: int | None
) -> None:
    executor, alice = two_flows(stage), person(stage, ALICE, chat)
    async with running(stage, executor):
        for text in ("/start", "/support", "/play music", "/cancel", "/cancel"):
            alice.says(text)
            await stage.clock.sleep(4)
    said = [text for text in texts(alice) if text != "Please use the buttons."]
    assert said == ["shop begins", "support begins", "shop ends", "support ends"]
    assert len(texts(alice)) - len(said) == (1 if chat is None else 0), "what nobody takes is out of place"


def fields_of(stage: Stage, name: str) -> list[Any]:
    """Of each message that is put into the gate from now on."""
    found, send = list[Any](), stage.gate.send

    async def look(**fields: Any) -> object:  # noqa: ANN401  (Telegram's)
        found.append(fields.get(name))
        return await send(**fields)

    stage.gate.send = look  # type: ignore[method-assign,assignment]
    return found


async def test_the_apology_is_plain_whatever_formatting_the_flow_has(stage: Stage) -> None:
    flow = FlowBuilder("broken", parse_mode="MarkdownV2")
    flow.command("/start", to="start")
    flow.state("start", say="*Hi*").on("text", to="end", guard="breaks")
    flow.final("end")

    @flow.guard
    def breaks(data: Mapping[str, Any], event: FlowEvent) -> bool:  # noqa: ARG001
        raise RuntimeError("always")

    executor, alice = executor_on(stage, flow.build(), work={}), person(stage, ALICE)
    formats = fields_of(stage, "parse_mode")
    async with running(stage, executor):
        alice.says("/start")
        await stage.clock.sleep(1)
        alice.says("x")
        await stage.clock.sleep(2)
    assert formats == ["MarkdownV2", None]
    assert texts(alice)[-1] == "Sorry, something went wrong. Please try again later."


async def test_the_application_begins_and_signals_in_a_topic(stage: Stage) -> None:
    executor = executor_on(stage)
    threads = fields_of(stage, "message_thread_id")
    async with running(stage, executor):
        await executor.begin(GROUP, ALICE, thread=5, event="once")
        await executor.begin(GROUP, ALICE, thread=5, event="once")
        assert not await executor.signal(GROUP, ALICE, "refund")
        assert await executor.signal(GROUP, ALICE, "cheer", thread=5)
        await stage.clock.sleep(4)
    assert threads == [5]
