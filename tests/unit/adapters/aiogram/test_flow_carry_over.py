"""Sessions that version 3 kept in aiogram's storage and as made-up subscriptions go on where they were."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from aiogram.fsm.storage.base import BaseStorage, DefaultKeyBuilder
from aiogram.fsm.storage.redis import RedisStorage
from redis.asyncio import Redis

from contract.inline_redis import InlineConnection
from contract.stores import redis_url
from tidegate.adapters.aiogram.flow_storage import StorageFlowSessions
from tidegate.adapters.aiogram.fsm_storage import SqliteStorage
from tidegate.clock import Clock
from tidegate.flows import Flow, FlowBuilder
from tidegate.flows.events import Command, Text
from tidegate.flows.executor import FlowRunner, SessionKey, WorkContext
from tidegate.flows.port import FlowSessionStore, OnDead
from tidegate.polling.poller import Poller
from tidegate.polling.subscriptions import Subscriptions
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.redis.flow_sessions import RedisFlowSessions
from tidegate.stores.redis.subscriptions import RedisSubscriptions
from tidegate.stores.sqlite.conversations import SqliteConversations
from tidegate.stores.sqlite.file import StoreFile
from tidegate.stores.sqlite.flow_sessions import SqliteFlowSessions
from tidegate.stores.sqlite.subscriptions import SqliteSubscriptions

SAMPLE = Path(__file__).parents[3] / "data" / "flows-v3.db"
ALICE, BOB, CAROL, DAN, EVE = (SessionKey(42, user, user) for user in range(1, 6))
MADE_UP = ("flow:shop:timers", "flow:shop:unfinished", "flow:shop:events", "flow:survey:timers")
EXPIRED = "This conversation has expired. Please start again."


def shop(*, timeout: float = 900) -> Flow:
    flow = FlowBuilder("shop", lifetime=7_200)
    flow.command("/start", to="start").command("/cancel", to="cancelled")
    flow.state("start", say="Welcome!").button("Order", to="ordering")
    flow.state("ordering").run("create_order", done="waiting", failed="cancelled", save=("order_id",))
    waiting = flow.state("waiting", say="Pay {order_id}, please.").timeout(timeout, say="Still there?")
    waiting.poll("payment", key="order_id", met="paid").on("signal:refund", to="cancelled")
    flow.final("paid", say="Paid: {order_id}.")
    flow.final("cancelled", say="Cancelled.")
    return flow.build()


def survey() -> Flow:
    flow = FlowBuilder("survey")
    flow.command("/survey", to="ask")
    flow.state("ask", say="Your name?").on("text", to="end", save="name")
    flow.final("end", say="Thanks, {name}.")
    return flow.build()


class Gate:
    """A gate on the store that holds the old sessions."""

    def __init__(
        self,
        clock: VirtualClock,
        subscriptions: Callable[[str], Subscriptions],
        sessions: Callable[[str], FlowSessionStore],
        storage: BaseStorage,
    ) -> None:
        self.clock: Clock = clock
        self.subscriptions = subscriptions
        self.flow_sessions = sessions
        self.storage = storage
        self.said: dict[str, tuple[int, str]] = {}  # by dedup key
        self.paid: set[str] = set()

    def poll(self, poller: Poller) -> None:
        """The flow runs it."""

    def on_dead(self, callback: OnDead) -> None:
        """Nothing dies here."""

    async def send(self, *, bot: int | None = None, **fields: Any) -> None:  # noqa: ANN401, ARG002
        self.said.setdefault(fields["dedup_key"], (fields["chat_id"], fields["text"]))

    async def call(self, method: str, params: dict[str, Any], *, bot: int | None = None) -> None:
        raise AssertionError(method, params, bot)

    def texts(self, key: SessionKey) -> list[str]:
        return [text for chat, text in self.said.values() if chat == key.chat]

    async def check(self, keys: Sequence[str]) -> Mapping[str, bool]:
        return {key: key in self.paid for key in keys}

    @asynccontextmanager
    async def running(self, flow: Flow) -> AsyncIterator[FlowRunner]:
        async def create_order(_: WorkContext) -> dict[str, str]:
            raise AssertionError("it was done before")

        polling = {"batch_check_fn": self.check, "interval": 60}
        options: dict[str, Any] = {"work": {"create_order": create_order}, "batch_polling": polling}
        runner = FlowRunner(flow, self, **(options if flow.name == "shop" else {}))
        await runner.start(StorageFlowSessions(self.flow_sessions(flow.name), self.storage, self.clock))
        yield runner
        await runner.stop()


class InlineClient:
    """The few calls that aiogram's storage makes, without an event loop."""

    def __init__(self, link: InlineConnection) -> None:
        self._link = link

    async def get(self, name: str) -> bytes | None:
        return cast("bytes | None", await self._link.command("GET", name))

    async def set(self, name: str, value: str, ex: object = None) -> None:  # noqa: ARG002
        await self._link.command("SET", name, value)

    async def delete(self, name: str) -> None:
        await self._link.command("DEL", name)


async def sqlite_gate(file: StoreFile, clock: VirtualClock) -> Gate:
    async def conversations() -> SqliteConversations:
        return SqliteConversations(file, clock)

    return Gate(
        clock,
        lambda name: SqliteSubscriptions(file, clock, name),
        lambda flow: SqliteFlowSessions(file, clock, flow),
        SqliteStorage(conversations),
    )


async def redis_gate(old: Gate, link: InlineConnection, clock: VirtualClock) -> Gate:
    """The same sessions, as version 3 kept them in Redis."""
    builder = DefaultKeyBuilder(
        prefix="tidegate-fsm", with_bot_id=True, with_business_connection_id=True, with_destiny=True
    )
    storage = RedisStorage(cast("Redis", InlineClient(link)), builder)
    for name in (*MADE_UP, "flow:shop:payment"):
        subscriptions = [one.subscription for one in await old.subscriptions(name).after(0)]
        await RedisSubscriptions(link, clock, name).add(subscriptions)
    for conversation in await cast("SqliteStorage", old.storage).each():
        await storage.set_data(conversation.key, conversation.data)
    return Gate(
        clock,
        lambda name: RedisSubscriptions(link, clock, name),
        lambda flow: RedisFlowSessions(link, clock, flow),
        storage,
    )


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    return Path(shutil.copy(SAMPLE, tmp_path / "bot.db"))


@pytest.fixture(scope="session")
def redis_address() -> str:
    return redis_url()


@pytest.fixture(params=["sqlite", "redis"])
async def gate(
    request: pytest.FixtureRequest, sample: Path, redis_address: str, clock: VirtualClock
) -> AsyncIterator[Gate]:
    async with AsyncExitStack() as stack:
        file = StoreFile(sample)
        await file.open()
        stack.push_async_callback(file.close)
        gate = await sqlite_gate(file, clock)
        if request.param == "redis":
            link = InlineConnection(redis_address, clock)
            stack.push_async_callback(link.close)
            gate = await redis_gate(gate, link, clock)
        yield gate


async def test_who_waited_is_nudged_at_the_same_time_and_told_of_the_payment_once(
    gate: Gate, clock: VirtualClock
) -> None:
    begun = clock.now()
    async with gate.running(shop()):
        await clock.sleep(895)
        assert gate.texts(ALICE) == []
        await clock.sleep(begun + 901 - clock.now())
        assert gate.texts(ALICE) == ["Still there?"]
        gate.paid.add("TG-1")
        await clock.sleep(125)
    assert gate.texts(ALICE) == ["Still there?", "Paid: TG-1."]


async def test_an_effect_that_was_decided_and_not_done_is_done_once(gate: Gate, clock: VirtualClock) -> None:
    for _ in range(2):
        async with gate.running(shop()):
            await clock.sleep(1)
    assert gate.texts(CAROL) == ["Cancelled."]


async def test_the_lifetime_ends_at_its_time(gate: Gate, clock: VirtualClock) -> None:
    async with gate.running(shop()):
        await clock.sleep(1)
    await clock.sleep(7_185)
    async with gate.running(shop()):
        await clock.sleep(5)
        assert gate.texts(BOB) == []
        await clock.sleep(10)
    assert gate.texts(BOB) == [EXPIRED]


async def test_an_event_that_was_heard_before_counts_once(gate: Gate, clock: VirtualClock) -> None:
    async with gate.running(shop()) as runner:
        await clock.sleep(1)
        await runner.begin(DAN, {}, event="campaign-7")
        assert gate.texts(DAN) == []
        await runner.begin(DAN, {}, event="campaign-8")
    assert gate.texts(DAN) == ["Welcome!"]


async def test_a_session_without_a_timer_is_found_at_the_next_message(
    gate: Gate, clock: VirtualClock
) -> None:
    async with gate.running(survey()) as runner:
        await clock.sleep(1)
        assert await runner.handle(EVE, Text("Eve", id="u30", at=clock.now()))
    assert gate.texts(EVE) == ["Thanks, Eve."]


async def test_a_session_that_has_ended_does_not_come_back(gate: Gate, clock: VirtualClock) -> None:
    async with gate.running(survey()) as runner:
        await runner.handle(EVE, Text("Eve", id="u30", at=clock.now()))
        assert not await runner.handle(EVE, Text("again", id="u31", at=clock.now()))
    async with gate.running(survey()) as runner:
        assert not await runner.handle(EVE, Text("again", id="u32", at=clock.now()))
    assert gate.texts(EVE) == ["Thanks, Eve."]


async def test_a_timeout_that_the_new_version_of_the_flow_changed_is_not_forgotten(
    gate: Gate, clock: VirtualClock
) -> None:
    async with gate.running(shop(timeout=60)):
        await clock.sleep(901)
    assert gate.texts(ALICE) == ["Still there?"]


async def test_nothing_is_left_of_the_old_layout(gate: Gate, clock: VirtualClock) -> None:
    async with gate.running(shop()) as runner, gate.running(survey()) as asking:
        await clock.sleep(1)
        for key in (ALICE, BOB):
            await runner.handle(key, Command("/cancel", id=f"u4{key.user}", at=clock.now()))
        await asking.handle(EVE, Text("Eve", id="u50", at=clock.now()))
    assert [await gate.subscriptions(name).count() for name in (*MADE_UP, "flow:shop:payment")] == [0] * 5
    keys = (ALICE, BOB, CAROL, DAN, EVE)
    for flow in ("shop", "survey"):
        store = StorageFlowSessions(gate.flow_sessions(flow), gate.storage, clock)
        assert [(await store.load(key)).session for key in keys] == [None] * 5


async def test_a_restart_in_the_middle_of_it_loses_nothing(gate: Gate, clock: VirtualClock) -> None:
    store, commits = gate.flow_sessions("shop"), 0
    commit = store.commit

    async def commit_once(*args: Any, **options: Any) -> int:  # noqa: ANN401
        nonlocal commits
        commits += 1
        if commits == 2:
            await asyncio.Event().wait()  # the process has died
        return await commit(*args, **options)

    store.commit = commit_once  # type: ignore[method-assign]
    first = FlowRunner(
        shop(), gate, work={"create_order": print_nothing}, batch_polling={"batch_check_fn": gate.check}
    )
    await first.start(StorageFlowSessions(store, gate.storage, clock))
    await clock.sleep(1)
    await first.stop()
    async with gate.running(shop()):
        await clock.sleep(902)
    assert (gate.texts(CAROL), gate.texts(ALICE)) == (["Cancelled."], ["Still there?"])


async def print_nothing(_: WorkContext) -> None:
    return None
