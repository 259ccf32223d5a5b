"""A shop whose bot may die at any moment: what it wrote stays, what it was about to write does not."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio.lowlevel

from tidegate.clock import Clock
from tidegate.errors import DeadError
from tidegate.flows import Flow, FlowBuilder
from tidegate.flows.events import Begin, ButtonPress, Command, FlowEvent, Text
from tidegate.flows.executor import FlowRunner, SessionKey, WorkContext
from tidegate.flows.port import LocalLocks, OnDead
from tidegate.flows.session import Session
from tidegate.polling.poller import Poller
from tidegate.polling.subscriptions import (
    AfterNews,
    MemorySubscriptions,
    News,
    StoredSubscription,
    Subscription,
)
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.flow_sessions import MemoryFlowSessions

ALICE = SessionKey(42, 1001, 1001)
BOB = SessionKey(42, 1002, 1002)
INTERVAL = 60.0


def shop(*, say_order: bool = True) -> Flow:
    flow = FlowBuilder("shop", lifetime=7_200)
    flow.command("/start", to="start").command("/cancel", to="cancelled")
    flow.state("start", say="Welcome!").button("Order", to="ordering").on("text", guard="fits", say="Ah.")
    ordering = flow.state("ordering", say="One moment." if say_order else None)
    ordering.run("create_order", done="waiting", failed="sorry", save=("order_id",))
    (
        flow.state("waiting", say="Pay {order_id}, please.")
        .button("Cancel", to="cancelled")
        .poll("payment", key="order_id", met="paid", gone="cancelled")
        .timeout(900, say="Still there?")
        .on("signal:refund", to="cancelled")
    )
    flow.final("paid", say="Paid: {order_id}.")
    flow.final("sorry", say="It did not work.")
    flow.final("cancelled", say="Cancelled.")
    flow.guard(fits)
    return flow.build()


def fits(data: Mapping[str, Any], event: FlowEvent) -> bool:  # noqa: ARG001  (a guard)
    if isinstance(event, Text) and event.text == "break":
        raise RuntimeError("a guard that breaks")
    return False


class Life:
    """Of one process. It ends at the write of that number, before or after it took place."""

    def __init__(self, writes: int | None = None, *, late: bool = False) -> None:
        self.left = writes
        self.late = late
        self.over = asyncio.Event()

    async def before(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self.left is not None:
            self.left -= 1
            if self.left == 0 and not self.late:
                self.over.set()
        await self._die()

    async def after(self) -> None:
        if self.left == 0:
            self.over.set()
        await self._die()

    async def _die(self) -> None:
        if self.over.is_set():
            await asyncio.Event().wait()  # nothing happens in it any more


class Disk:
    """What stays."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.sessions = MemoryFlowSessions("shop")
        self.subscriptions: dict[str, MemorySubscriptions] = {}
        self.said: dict[str, dict[str, Any]] = {}  # by dedup key
        self.puts = 0
        self.answers: list[str] = []
        self.orders: dict[str, str] = {}  # by the work's key
        self.paid: set[str] = set()
        self.asked: list[list[str]] = []
        self.life = Life()
        self.writes = 0

    def texts(self, place: SessionKey = ALICE) -> list[str]:
        return [said["text"] for said in self.said.values() if said["chat_id"] == place.chat]

    async def left(self) -> dict[str, int]:
        """What is not over, by kind."""
        counts = {name: await kept.count() for name, kept in self.subscriptions.items()}
        counts["sessions"] = len((await self.sessions.scan()).keys)
        counts["flow:shop:unfinished"] = len((await self.sessions.unfinished()).keys)
        counts["flow:shop:timers"], _ = await self.sessions.timers(self.clock.now())
        return {name: count for name, count in counts.items() if count and not name.endswith(":events")}


class Write:
    """Around whatever changes the disk."""

    def __init__(self, disk: Disk, life: Life) -> None:
        self._disk = disk
        self._life = life

    async def __aenter__(self) -> None:
        self._disk.writes += 1
        await self._life.before()

    async def __aexit__(self, *exc: object) -> None:
        await self._life.after()


class MortalSubscriptions(MemorySubscriptions):
    """As one process writes them."""

    def __init__(self, disk: Disk, life: Life, kept: MemorySubscriptions) -> None:
        super().__init__(disk.clock, kept.name)
        self._write = Write(disk, life)
        self._life = life
        self._shared = kept

    async def add(self, subscriptions: Sequence[Subscription], *, replace: bool = True) -> list[bool]:
        async with self._write:
            return await self._shared.add(subscriptions, replace=replace)

    async def remove(self, keys: Any) -> int:  # noqa: ANN401
        async with self._write:
            return await self._shared.remove(keys)

    async def after(self, number: int, limit: int = 1_000) -> list[StoredSubscription]:
        return await self._shared.after(number, limit)

    async def note_news(self, news: Sequence[News]) -> list[StoredSubscription]:
        async with self._write:
            return await self._shared.note_news(news)

    async def settle_news(self, keys: Any, then: AfterNews) -> None:  # noqa: ANN401
        async with self._write:
            await self._shared.settle_news(keys, then)

    async def count(self) -> int:
        return await self._shared.count()

    async def watermark(self) -> str | None:
        return await self._shared.watermark()

    async def save_watermark(self, mark: str) -> None:
        await self._shared.save_watermark(mark)


class MortalFlowSessions(MemoryFlowSessions):
    """As one process writes them."""

    def __init__(self, disk: Disk, life: Life) -> None:
        super().__init__("shop")
        vars(self).update(vars(disk.sessions))
        self._shared = disk.sessions
        self.locks = LocalLocks()
        self._write = Write(disk, life)

    async def commit(self, key: SessionKey, session: Session | None, **options: Any) -> int:  # noqa: ANN401
        async with self._write:
            return await self._shared.commit(key, session, **options)

    def hold(self, name: str) -> AbstractAsyncContextManager[None]:
        return self.locks.hold(name)

    async def fingerprint(self) -> str | None:
        return await self._shared.fingerprint()

    async def save_fingerprint(self, fingerprint: str) -> None:
        await self._shared.save_fingerprint(fingerprint)


class MortalGate:
    """A gate as one process has it: puts are known again by their keys."""

    def __init__(self, disk: Disk, life: Life) -> None:
        self.clock: Clock = disk.clock
        self.outbox = object()
        self._disk = disk
        self._life = life
        self.pollers: list[Poller] = []

    def subscriptions(self, name: str) -> MortalSubscriptions:
        kept = self._disk.subscriptions.setdefault(name, MemorySubscriptions(self.clock, name))
        return MortalSubscriptions(self._disk, self._life, kept)

    def poll(self, poller: Poller) -> None:
        self.pollers.append(poller)

    def on_dead(self, callback: OnDead) -> None:
        """Nothing dies here."""

    async def send(self, *, bot: int | None = None, **fields: Any) -> None:  # noqa: ANN401
        async with Write(self._disk, self._life):
            self._disk.puts += 1
            self._disk.said.setdefault(f"{bot}:{fields['dedup_key']}", fields)

    async def call(self, method: str, params: dict[str, Any], *, bot: int | None = None) -> None:  # noqa: ARG002
        await self.clock.sleep(0)
        if params["callback_query_id"] == "old":
            raise DeadError(method=method, chat_id=None, reason="bad_request", description="too old")
        self._disk.answers.append(params.get("text", ""))


class Bot:
    """One process: an executor, its pollers, and the inbox's habit of handling again what was cut short."""

    def __init__(self, disk: Disk, life: Life, **options: Any) -> None:  # noqa: ANN401  (of the executor)
        self.disk = disk
        self.life = life
        self.gate = MortalGate(disk, life)
        self.created = 0
        defaults = {
            "work": {"create_order": self.create_order},
            "batch_polling": {"batch_check_fn": self.check, "interval": INTERVAL},
        }
        self.executor = FlowRunner(options.pop("flow", None) or shop(), self.gate, **{**defaults, **options})

    async def create_order(self, context: WorkContext) -> dict[str, Any]:
        self.created += 1
        await self.disk.clock.sleep(2)
        async with Write(self.disk, self.life):
            order = self.disk.orders.setdefault(context.key, f"TG-{len(self.disk.orders) + 1}")
        return {"order_id": order}

    async def check(self, keys: Sequence[str]) -> dict[str, bool]:
        self.disk.asked.append(list(keys))
        await self.disk.clock.sleep(0)
        return {key: key in self.disk.paid for key in keys}

    async def start(self) -> None:
        for poller in self.gate.pollers:
            await poller.start()
        store = MortalFlowSessions(self.disk, self.life)
        self.locks = store.locks
        await self.executor.start(store)

    async def stop(self) -> None:
        await self.executor.stop()
        for poller in self.gate.pollers:
            await poller.stop()

    async def session(self, place: SessionKey = ALICE) -> Session | None:
        return (await self.disk.sessions.load(place)).session

    # What people do

    def cause(self, number: int) -> dict[str, Any]:
        return {"id": f"u{number}", "at": self.disk.clock.now()}

    async def command(self, number: int, name: str, place: SessionKey = ALICE) -> bool:
        return await self.executor.handle(place, Command(name, **self.cause(number)))

    async def write(self, number: int, text: str, place: SessionKey = ALICE) -> bool:
        return await self.executor.handle(place, Text(text, **self.cause(number)))

    async def press(
        self,
        number: int,
        text: str,
        place: SessionKey = ALICE,
        *,
        said: int = -1,
        below: tuple[int | None, bool] = (None, False),
    ) -> bool:
        """The button with this text, under what was said last, or before: in this message, which may be a
        photo.
        """
        shown = [one for one in self.disk.said.values() if one["chat_id"] == place.chat and _data(one, text)]
        press = ButtonPress(_data(shown[said], text) or "", "query", *below, **self.cause(number))
        return await self.executor.handle(place, press)

    async def begin(self, number: int, place: SessionKey = ALICE) -> bool:
        return await self.executor.handle(place, Begin({}, **self.cause(number)))

    async def order(self, place: SessionKey = ALICE, *, number: int = 1) -> None:
        """As far as waiting for the payment."""
        await self.command(number, "/start", place)
        await self.press(number + 1, "Order", place)
        await self.disk.clock.sleep(5)


def _data(said: Mapping[str, Any], text: str) -> str | None:
    rows = said.get("reply_markup", {}).get("inline_keyboard", [])
    return next((one["callback_data"] for row in rows for one in row if one["text"] == text), None)
