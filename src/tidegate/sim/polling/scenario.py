"""A scenario of people who wait for payments, and the simulated NocoDB that it runs against."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal, get_args

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.sim.faults import Latency
from tidegate.sim.nocodb import Faults, NocoLimits, SimulatedNocoDb
from tidegate.sim.nocodb.http import NocoDbServer
from tidegate.sim.nocodb.nocodb import NocoWire
from tidegate.upstream.http_transport import HttpTransport
from tidegate.upstream.transport import UpstreamTransport

Mode = Literal["per-user", "paced", "batch", "delta"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
OURS: Final[tuple[Mode, ...]] = MODES[1:]  # "per-user" is the bot that they are compared with
MOST_USERS = 100_000
MOST_SECONDS = 86_400.0
TOKEN = "demo"  # noqa: S105  (of a simulated server)
TIMEOUT = 10.0  # seconds
WAITING = "awaiting_payment"


class PollingScenario(msgspec.Struct, frozen=True, kw_only=True):
    """The same seed gives the same people, payments and delays, for every mode."""

    users: int = 300
    duration: float = 300.0  # seconds
    interval: float = 60.0  # target of every notification; a per-user bot asks once per interval
    batch_size: int | None = None  # None: the poller chooses
    seed: int = 0
    paying: float = 0.5  # share of people who pay; the others are polled until the end
    rate: Rate = Rate(5, 1)
    block: float = 30.0  # seconds that a 429 blocks the token
    latency: tuple[float, float] = (50, 250)  # ms of a round trip, evenly between

    def __post_init__(self) -> None:
        _whole("users", self.users, MOST_USERS)
        _seconds("duration", self.duration)
        _seconds("interval", self.interval)
        if self.batch_size is not None:
            _whole("batch-size", self.batch_size, MOST_USERS)
        if self.duration <= self.interval:
            raise BadInputError(
                f"--duration {self.duration:g} must be above --interval {self.interval:g}: "
                "nobody pays in the last interval, as the notification could come after the end"
            )

    @property
    def limits(self) -> NocoLimits:
        return NocoLimits(rate=self.rate, block=self.block, retry_after="missing")

    def payments(self) -> list[tuple[float, int]]:
        """Return (time, person) in order: evenly at random, but nobody pays in the last interval."""
        draw = random.Random(f"payments {self.seed}")  # noqa: S311  (repeatable, not secret)
        payers = draw.sample(range(1, self.users + 1), max(1, round(self.paying * self.users)))
        return sorted((draw.uniform(0, self.duration - self.interval), payer) for payer in payers)


def _whole(option: str, number: int, most: int) -> None:
    if not 1 <= number <= most:
        raise BadInputError(f"--{option} {number} must be from 1 to {most:,}")


def _seconds(option: str, seconds: float) -> None:
    if not 0 < seconds <= MOST_SECONDS:  # false for NaN too
        raise BadInputError(f"--{option} {seconds:g} must be above 0 and at most {MOST_SECONDS:,.0f} seconds")


class PollingWorld:
    """A NocoDB with a row for each person, numbered from 1; the number as text is the person's key."""

    def __init__(self, noco: SimulatedNocoDb, wire: UpstreamTransport, users: int) -> None:
        self.noco, self.wire = noco, wire
        self.table = noco.create_table("orders", key="Id")
        self.keys = [str(number) for number in range(1, users + 1)]
        noco.insert(
            self.table, [{"Order": f"order-{key}", "State": WAITING, "Paid": False} for key in self.keys]
        )


@asynccontextmanager
async def virtual_world(scenario: PollingScenario, clock: Clock) -> AsyncIterator[PollingWorld]:
    """Yield a world in this process, without HTTP."""
    noco = SimulatedNocoDb(clock, limits=scenario.limits, faults=_faults(scenario), seed=scenario.seed)
    yield PollingWorld(noco, NocoWire(noco, token=TOKEN, timeout=TIMEOUT), scenario.users)


@asynccontextmanager
async def http_world(scenario: PollingScenario, clock: Clock) -> AsyncIterator[PollingWorld]:
    """Yield a world behind real HTTP on the loopback interface."""
    async with NocoDbServer(limits=scenario.limits, faults=_faults(scenario), seed=scenario.seed) as server:
        wire = HttpTransport(server.url, headers={"xc-token": TOKEN}, clock=clock, timeout=TIMEOUT)
        try:
            yield PollingWorld(server.noco, wire, scenario.users)
        finally:
            await wire.close()


def _faults(scenario: PollingScenario) -> Faults:
    low, high = scenario.latency
    each_way = Latency(low / 2, high / 2)
    return Faults(latency_in=each_way, latency_out=each_way)
