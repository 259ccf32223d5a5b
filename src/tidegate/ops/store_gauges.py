"""Gauges of what all processes share: the queue, the limits of bots, whether store and database answer.

They are read from the store when somebody asks, and are the same whichever process is asked: dashboards take
one of them (`max by`, `min by`), and never their sum.
"""

import asyncio
import functools
import math
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING, Final

import msgspec
from prometheus_client.core import GaugeMetricFamily

from tidegate.errors import TidegateError
from tidegate.model import BotId, BotLimits, Rate
from tidegate.ops import metric_families as of
from tidegate.outbox.port import LimitState, OutboxStats
from tidegate.pacing.rules import own_rules
from tidegate.stores import is_redis

if TYPE_CHECKING:
    from tidegate.gate import Tidegate

READ_AT_MOST_EVERY: Final = 2.0  # seconds, however often somebody asks
READ_TIMEOUT: Final = 2.0  # seconds: a store that hangs must not keep the other metrics from being read


class StoreReading(msgspec.Struct, frozen=True):
    """The store at one moment. Without `stats` it did not answer."""

    at: float = 0.0
    stats: OutboxStats | None = None
    is_ready: bool = False
    bots: tuple[BotId, ...] = ()
    waiting: Mapping[BotId, int] = {}
    limits: tuple[LimitState, ...] = ()
    own_limits: Mapping[BotId, BotLimits] = {}
    database_answers: bool | None = None  # None: it is not used


class StoreGauges:
    """Reads the store of a gate, and makes metric families of it. `bot_label` bounds the number of bots."""

    def __init__(self, gate: "Tidegate", bot_label: Callable[[BotId], str]) -> None:
        self._gate = gate
        self._clock = gate.clock
        self._bot_label = bot_label
        self._lock = asyncio.Lock()
        self._reading = StoreReading()
        self._read_at = -math.inf  # monotonic

    async def read(self) -> None:
        """Read the store, unless that was done a moment ago. If it is away, the reading says so."""
        async with self._lock:  # those who ask meanwhile get the same reading
            if self._clock.monotonic() - self._read_at < READ_AT_MOST_EVERY:
                return
            found = StoreReading(at=self._clock.now())
            with suppress(TidegateError, OSError):  # a TimeoutError is an OSError
                async with self._clock.timeout(READ_TIMEOUT):
                    found = await self._read_store()
            answers = await self._gate.core.database_answers(READ_TIMEOUT)
            self._reading = msgspec.structs.replace(found, database_answers=answers)
            self._read_at = self._clock.monotonic()

    async def _read_store(self) -> StoreReading:
        gate = self._gate
        stats, by_bot = await gate.stats(), await gate.outbox.stats_by_bot()
        return StoreReading(
            at=self._clock.now(),
            stats=stats,
            is_ready=gate.outbox.health().ready,
            bots=tuple(bot.id for bot in gate.bots()),
            waiting={bot: its.waiting for bot, its in by_bot.items()},
            limits=tuple(await gate.outbox.limits(chats=False)),
            own_limits=await gate.outbox.own_limits(),
        )

    def families(self) -> Iterator[GaugeMetricFamily]:
        """The families of the last reading. May be called in any thread."""
        reading, stats = self._reading, self._reading.stats
        yield _gauge(of.BUILD, {_build(): 1})
        yield _gauge(of.STORE_UP, {(_kind_of(self._gate.core.store_name),): reading.is_ready})
        if reading.database_answers is not None:
            yield _gauge(of.DATABASE_UP, {(): reading.database_answers})
        if stats is not None:
            yield _gauge(of.QUEUE, _queue(stats))
            oldest = stats.oldest_at
            yield _gauge(of.OLDEST, {(): 0.0 if oldest is None else max(0.0, reading.at - oldest)})
            yield from self._bot_families(reading)

    def _bot_families(self, reading: StoreReading) -> Iterator[GaugeMetricFamily]:
        rules, own = self._gate.core.rules, reading.own_limits
        states = {state.bot: state for state in reading.limits if state.chat_id is None}
        waiting, limits, closed, unreachable = _Values(), _Values(), _Values(), _Values()
        for bot in {*reading.bots, *reading.waiting, *states, *own}:
            nominal = own_rules(rules, own.get(bot, BotLimits())).bot
            label, state = self._bot_label(bot), states.get(bot, LimitState(bot))
            waiting.add((label,), reading.waiting.get(bot, 0))
            # Of bots that share a label, the worst is told.
            limits.lower((label, "nominal"), _per_second(nominal))
            limits.lower((label, "learned"), _per_second(state.allowed or nominal))
            closed.raise_to((label,), 0.0 if state.obstacle else state.closed_for)
            unreachable.raise_to((label,), bool(state.obstacle))
        yield _gauge(of.BOT_WAITING, waiting)
        yield _gauge(of.BOT_LIMIT, limits)
        yield _gauge(of.BOT_CLOSED, closed)
        yield _gauge(of.BOT_UNREACHABLE, unreachable)


class _Values(dict[tuple[str, ...], float]):
    def add(self, labels: tuple[str, ...], value: float) -> None:
        self[labels] = self.get(labels, 0.0) + value

    def raise_to(self, labels: tuple[str, ...], value: float) -> None:
        self[labels] = max(self.get(labels, 0.0), value)

    def lower(self, labels: tuple[str, ...], value: float) -> None:
        self[labels] = min(self.get(labels, math.inf), value)


def _gauge(family: of.Family, values: Mapping[tuple[str, ...], float]) -> GaugeMetricFamily:
    made = GaugeMetricFamily(family.name, family.help, labels=family.labels)
    for labels, value in values.items():
        made.add_metric(labels, float(value))
    return made


@functools.cache
def _build() -> tuple[str, str]:
    return installed_version("tidegate"), platform.python_version()


def _queue(stats: OutboxStats) -> dict[tuple[str, ...], float]:
    queued = {("queued", name): getattr(stats, name) for name in ("high", "normal", "low")}
    return queued | {(name, ""): getattr(stats, name) for name in ("retry", "sending", "parked", "dead")}


def _per_second(rate: Rate) -> float:
    return rate.count / rate.seconds


def _kind_of(store: str) -> str:
    if store == "memory://":
        return "memory"
    return "redis" if is_redis(store) else "sqlite"
