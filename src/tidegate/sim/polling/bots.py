"""The bots that are compared: one without Tidegate, and Tidegate's pollers, restored as after a restart."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, assert_never

from tidegate.clock import Clock
from tidegate.polling.batch import BatchPoller
from tidegate.polling.delta import RESTORE_EVERY, RESTORE_GROUP, DeltaPoller
from tidegate.polling.each import UserPoller
from tidegate.polling.nocodb import changes, checks, waiting
from tidegate.polling.poller import Poller
from tidegate.polling.subscriptions import News, Subscription
from tidegate.sim.polling.beside import beside
from tidegate.sim.polling.naive import NaiveBot, Tell
from tidegate.sim.polling.place import WAITING, Place
from tidegate.sim.polling.scenario import Mode, Scenario
from tidegate.upstream.client import Upstream
from tidegate.upstream.limiter.memory import MemoryLimiter
from tidegate.upstream.nocodb import NocoDb
from tidegate.upstream.nocodb.table import Table
from tidegate.upstream.nocodb.values import truth
from tidegate.upstream.nocodb.where import checked, eq

DELTA_SHARE = 0.48  # of the limit: with what a restart costs, it stays below half


@asynccontextmanager
async def bot(mode: Mode, scenario: Scenario, place: Place, clock: Clock, tell: Tell) -> AsyncIterator[None]:
    """At work while the body runs; it has just been started, and everybody waits already."""
    if mode == "per-user":
        naive = NaiveBot(place.wire, place.table, interval=scenario.interval, clock=clock, seed=scenario.seed)
        async with beside(naive.poll(place.keys, tell)):
            yield
        return
    async with (
        table_of(place, scenario, clock) as table,
        poller(mode, scenario, table, clock, tell) as started,
    ):
        source = waiting(table, eq("State", WAITING), key="Id")
        group, every = (RESTORE_GROUP, RESTORE_EVERY) if mode == "delta" else (scenario.group, 1.0)
        async with beside(started.restore(source, group=group, every=every)):
            yield


@asynccontextmanager
async def table_of(place: Place, scenario: Scenario, clock: Clock) -> AsyncIterator[Table]:
    """Through a client that keeps the limit."""
    limiter = MemoryLimiter(scenario.rate, clock)
    async with Upstream(place.wire, name="NocoDB", limiter=limiter, clock=clock) as upstream:
        yield NocoDb(upstream).table(place.table)


def poller(mode: Mode, scenario: Scenario, table: Table, clock: Clock, tell: Tell) -> Poller:
    """As a bot would make it; `tell` is what the bot does with the news."""

    def notify(subscription: Subscription, _news: News) -> None:
        tell(subscription.key)

    match mode:
        case "paced":
            return UserPoller(ask_for_one(table), scenario.interval, notify=notify, clock=clock, name=mode)
        case "batch":
            fetch = checks(table, key="Id", condition=checked("Paid"))
            size = scenario.batch_size
            return BatchPoller(fetch, scenario.period, size, notify=notify, clock=clock, name=mode)
        case "delta":
            source = changes(table, key="Id", condition=checked("Paid"))
            return DeltaPoller(source, share=DELTA_SHARE, notify=notify, clock=clock, name=mode)
        case "per-user":
            raise AssertionError("it has no poller")
        case unknown:
            assert_never(unknown)


def ask_for_one(table: Table, heard: Tell = lambda _: None) -> Callable[[str], Awaitable[Any]]:
    """Asks for one person, as polling was before there were batches. `heard`: for whom the API answered."""

    async def fetch_one(key: str) -> Any:  # noqa: ANN401  (a poller takes whatever JSON has)
        row = await table.read(key, background=True)
        heard(key)
        return row if row is not None and truth(row["Paid"]) else None

    return fetch_one
