"""The bots that are compared: one without Tidegate, and Tidegate's pollers after a restart."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, assert_never

import msgspec

from tidegate.clock import Clock
from tidegate.polling.batch import BatchPoller
from tidegate.polling.delta import DeltaPoller, delta_interval_for
from tidegate.polling.nocodb import changes, checks, waiting
from tidegate.polling.per_user import DEFAULT_INTERVAL, UserPoller
from tidegate.polling.poller import Poller
from tidegate.polling.subscriptions import News, Subscription
from tidegate.sim.polling.scenario import WAITING, Mode, PollingScenario, PollingWorld
from tidegate.upstream.client import Upstream
from tidegate.upstream.limiter import MemoryLimiter
from tidegate.upstream.nocodb.client import NocoDb
from tidegate.upstream.nocodb.table import Table
from tidegate.upstream.nocodb.values import truth
from tidegate.upstream.nocodb.where import checked, eq
from tidegate.upstream.transport import NoResponse, UpstreamRequest, UpstreamTransport

PAUSE_AFTER_ERROR = (5.0, 30.0)  # seconds, at random: NocoDB does not say when to retry
OK = 200
OnKey = Callable[[str], None]


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Run `work` while the body runs, and cancel it after that; its failure ends both."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        yield
        task.cancel()


class PerUserBot:
    """A bot without Tidegate, here to be measured: a task for each person, without a limiter.

    Each task asks at once, then every `interval` seconds.
    """

    def __init__(
        self, wire: UpstreamTransport, table: str, *, interval: float, clock: Clock, seed: int = 0
    ) -> None:
        self._wire, self._table = wire, table
        self._interval, self._clock = interval, clock
        self._draw = random.Random(seed)  # noqa: S311  (repeatable, not secret)

    async def poll(self, keys: Iterable[str], tell: OnKey, heard: OnKey = lambda _: None) -> None:
        """Poll until everybody has paid and was told. `heard` is called with the key of each answer."""
        async with asyncio.TaskGroup() as group:
            for key in keys:
                group.create_task(self._poll_one(key, tell, heard))

    async def _poll_one(self, key: str, tell: OnKey, heard: OnKey) -> None:
        while (paid := await self._has_paid(key)) is not True:
            if paid is not None:
                heard(key)
            await self._clock.sleep(
                self._draw.uniform(*PAUSE_AFTER_ERROR) if paid is None else self._interval
            )
        tell(key)

    async def _has_paid(self, key: str) -> bool | None:
        """Return None if the answer is unknown."""
        path = f"api/v2/tables/{self._table}/records/{key}"
        answer = await self._wire.send(UpstreamRequest(method="GET", path=path))
        if isinstance(answer, NoResponse) or answer.status != OK:
            return None
        return bool(msgspec.json.decode(answer.body)["Paid"])


@asynccontextmanager
async def running_bot(
    mode: Mode, scenario: PollingScenario, world: PollingWorld, clock: Clock, tell: OnKey
) -> AsyncIterator[None]:
    """Run the bot of a mode while the body runs, as after a restart: everybody waits already."""
    if mode == "per-user":
        naive = PerUserBot(
            world.wire, world.table, interval=scenario.interval, clock=clock, seed=scenario.seed
        )
        async with in_background(naive.poll(world.keys, tell)):
            yield
        return
    async with (
        table_of(world, scenario, clock) as table,
        make_poller(mode, scenario, table, clock, tell) as started,
    ):
        source = waiting(table, eq("State", WAITING), key="Id")
        async with in_background(started.restore(source)):
            yield


@asynccontextmanager
async def table_of(world: PollingWorld, scenario: PollingScenario, clock: Clock) -> AsyncIterator[Table]:
    """Yield the table, through a client that keeps the limit."""
    limiter = MemoryLimiter(scenario.rate, clock)
    async with Upstream(world.wire, name="NocoDB", limiter=limiter, clock=clock) as upstream:
        yield NocoDb(upstream).table(world.table)


def make_poller(mode: Mode, scenario: PollingScenario, table: Table, clock: Clock, tell: OnKey) -> Poller:
    """Return the poller of a mode, as a bot would create it; `tell` is its notification."""

    def notify(subscription: Subscription, _news: News) -> None:
        tell(subscription.key)

    match mode:
        case "paced":
            return UserPoller(ask_for_one(table), scenario.interval, notify=notify, clock=clock, name=mode)
        case "batch":
            fetch = checks(table, key="Id", condition=checked("Paid"))
            size = scenario.batch_size
            return BatchPoller(fetch, scenario.interval, size, notify=notify, clock=clock, name=mode)
        case "delta":
            source = changes(table, key="Id", condition=checked("Paid"))
            is_usual = scenario.interval == DEFAULT_INTERVAL
            interval = None if is_usual else delta_interval_for(scenario.users, scenario.interval)
            return DeltaPoller(source, interval=interval, notify=notify, clock=clock, name=mode)
        case "per-user":
            raise AssertionError("the per-user bot has no poller")
        case unknown:
            assert_never(unknown)


def ask_for_one(table: Table, heard: OnKey = lambda _: None) -> Callable[[str], Awaitable[Any]]:
    """Return a fetch for one person per request. `heard` is called with the key of each answer."""

    async def fetch_one(key: str) -> Any:  # noqa: ANN401  (a poller takes whatever JSON has)
        row = await table.read(key, background=True)
        heard(key)
        return row if row is not None and truth(row["Paid"]) else None

    return fetch_one
