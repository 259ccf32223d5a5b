"""A restart while many wait: everybody at once, or in groups and within the limit."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.polling.nocodb import waiting
from tidegate.polling.per_user import UserPoller
from tidegate.polling.restorer import RestoreStep
from tidegate.sim.polling.bots import PerUserBot, ask_for_one, beside, table_of
from tidegate.sim.polling.scenario import WAITING, PollingScenario, PollingWorld, virtual_world
from tidegate.sim.polling.simulation import Tick
from tidegate.upstream.nocodb.where import eq

Start = Literal["at once", "staggered"]
SHORTEST = 300.0  # seconds


class RestartReport(msgspec.Struct, frozen=True, kw_only=True):
    """How long it took until everybody was restored, and until everybody had been asked for once; None: not
    in the time that it was watched. `per_second`: requests in each second since the first one;
    `restored_per_second`: people, since the start.
    """

    start: Start
    users: int
    groups: int
    restored_seconds: float | None
    asked_seconds: float | None
    requests: int
    avg_rps: float
    peak_rps: int
    refused: int
    locked_seconds: float
    per_second: list[int]
    restored_per_second: list[int]
    virtual_seconds: float
    seed: int

    @property
    def passed(self) -> bool:
        return self.refused == 0 and self.asked_seconds is not None

    def as_dict(self) -> dict[str, Any]:
        known: dict[str, Any] = msgspec.to_builtins(self)
        return known | {"passed": self.passed}


class RestoreGroups(msgspec.Struct, frozen=True):
    """So many at a time, so many seconds apart."""

    size: int = 10
    every: float = 1.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise BadInputError(f"--group {self.size} must be 1 or more")
        if not 0 < self.every <= SHORTEST:
            raise BadInputError(f"--every {self.every:g} must be above 0 and at most {SHORTEST:g} seconds")


class RestartProgress:
    """Who was asked for already, and how many groups began."""

    def __init__(self, users: int, clock: Clock) -> None:
        self._users = users
        self._keys: set[str] = set()
        self._clock, self._began = clock, clock.monotonic()
        self.restored_seconds: float | None = None
        self.asked_seconds: float | None = None
        self.groups = 1
        self.restored_per_second: list[int] = []

    @property
    def now(self) -> float:
        return self._clock.monotonic() - self._began

    @property
    def is_over(self) -> bool:
        return self.restored_seconds is not None and self.asked_seconds is not None

    def restore(self, many: int = 1) -> None:
        """So many are polled for from now on."""
        counts = self.restored_per_second
        counts += [0] * (int(self.now) + 1 - len(counts))
        counts[-1] += many

    def hear(self, key: str) -> None:
        """The API has answered for this person."""
        self._keys.add(key)
        if len(self._keys) == self._users and self.asked_seconds is None:
            self.asked_seconds = self.now


async def run_restart(
    scenario: PollingScenario, start: Start, groups: RestoreGroups, clock: Clock, *, tick: Tick | None = None
) -> RestartReport:
    """In virtual time, until everybody was asked for once. Nobody pays meanwhile."""
    async with virtual_world(scenario, clock) as place:
        asked = RestartProgress(scenario.users, clock)
        bot = _staggered(scenario, groups, place, asked, clock)
        async with bot if start == "staggered" else _at_once(scenario, place, asked, clock):
            await _watch(longest_run(scenario, start), asked, clock, tick or (lambda _: True))
            return _measured(scenario, start, place, asked)


async def _watch(longest: float, asked: RestartProgress, clock: Clock, tick: Tick) -> None:
    while tick(asked.now) and asked.now < longest and not asked.is_over:
        await clock.sleep(1.0)


def longest_run(scenario: PollingScenario, start: Start) -> float:
    """Seconds that it is watched at most. Who keeps the limit can ask for everybody at half of it by then;
    who does not is not waited for.
    """
    if start == "at once":
        return SHORTEST
    return SHORTEST + 2 * scenario.users * scenario.rate.seconds / scenario.rate.count


@asynccontextmanager
async def _at_once(
    scenario: PollingScenario, place: PollingWorld, asked: RestartProgress, clock: Clock
) -> AsyncIterator[None]:
    naive = PerUserBot(place.wire, place.table, interval=scenario.interval, clock=clock, seed=scenario.seed)
    asked.restore(scenario.users)
    asked.restored_seconds = 0.0
    async with beside(naive.poll(place.keys, tell=lambda _: None, heard=asked.hear)):
        yield


@asynccontextmanager
async def _staggered(
    scenario: PollingScenario,
    groups: RestoreGroups,
    place: PollingWorld,
    asked: RestartProgress,
    clock: Clock,
) -> AsyncIterator[None]:
    async with table_of(place, scenario, clock) as table:
        poller = UserPoller(
            ask_for_one(table, heard=asked.hear), scenario.interval, clock=clock, name="restored"
        )

        def progress(step: RestoreStep) -> None:
            if step.what == "restored":
                asked.restore()

        async def restore() -> None:
            source = waiting(table, eq("State", WAITING), key="Id")
            restored = await poller.restore(
                source, group=groups.size, every=groups.every, on_progress=progress
            )
            asked.groups, asked.restored_seconds = restored.groups, asked.now

        async with poller, beside(restore()):
            yield


def _measured(
    scenario: PollingScenario, start: Start, place: PollingWorld, asked: RestartProgress
) -> RestartReport:
    server = place.noco.report()
    return RestartReport(
        start=start,
        users=scenario.users,
        groups=asked.groups,
        restored_seconds=_rounded(asked.restored_seconds),
        asked_seconds=_rounded(asked.asked_seconds),
        requests=server["requests"],
        avg_rps=round(server["requests"] / max(1.0, asked.now), 3),
        peak_rps=server["peak_rps"],
        refused=server["refused"],
        locked_seconds=round(server["blocked_seconds"], 1),
        per_second=server["per_second"],
        restored_per_second=asked.restored_per_second,
        virtual_seconds=round(asked.now, 1),
        seed=scenario.seed,
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
