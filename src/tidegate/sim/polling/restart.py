"""A restart while many people wait: all polled at once, or restored in groups within the limit."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.polling.nocodb import waiting
from tidegate.polling.per_user import UserPoller
from tidegate.polling.restorer import RestoreStep
from tidegate.sim.polling.bots import PerUserBot, ask_for_one, in_background, table_of
from tidegate.sim.polling.scenario import WAITING, PollingScenario, PollingWorld, virtual_world
from tidegate.sim.polling.simulation import Tick
from tidegate.upstream.nocodb.where import eq

Start = Literal["at once", "staggered"]
SHORTEST = 300.0  # seconds


class RestartReport(msgspec.Struct, frozen=True, kw_only=True):
    """`restored_seconds`, `asked_seconds`: until everybody was restored, and asked about once; None if never.
    `per_second`: requests in each second since the first; `restored_per_second`: people.
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
    """Restore `size` people at a time, `every` so many seconds."""

    size: int = 10
    every: float = 1.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise BadInputError(f"--group {self.size} must be 1 or more")
        if not 0 < self.every <= SHORTEST:
            raise BadInputError(f"--every {self.every:g} must be above 0 and at most {SHORTEST:g} seconds")


class RestartProgress:
    """Counts who was restored and asked about, and the groups."""

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
        """Count people that are polled for from now on."""
        counts = self.restored_per_second
        counts += [0] * (int(self.now) + 1 - len(counts))
        counts[-1] += many

    def hear(self, key: str) -> None:
        """Count a person that the API has answered for."""
        self._keys.add(key)
        if len(self._keys) == self._users and self.asked_seconds is None:
            self.asked_seconds = self.now


async def run_restart(
    scenario: PollingScenario, start: Start, groups: RestoreGroups, clock: Clock, *, tick: Tick | None = None
) -> RestartReport:
    """Simulate a restart in virtual time, until everybody was asked about once. Nobody pays meanwhile."""
    async with virtual_world(scenario, clock) as world:
        progress = RestartProgress(scenario.users, clock)
        bot = _staggered(scenario, groups, world, progress, clock)
        async with bot if start == "staggered" else _at_once(scenario, world, progress, clock):
            await _watch(longest_run(scenario, start), progress, clock, tick or (lambda _: True))
            return _measured(scenario, start, world, progress)


async def _watch(longest: float, progress: RestartProgress, clock: Clock, tick: Tick) -> None:
    while tick(progress.now) and progress.now < longest and not progress.is_over:
        await clock.sleep(1.0)


def longest_run(scenario: PollingScenario, start: Start) -> float:
    """Return the longest simulated seconds: enough to ask about everybody at half the limit."""
    if start == "at once":
        return SHORTEST
    return SHORTEST + 2 * scenario.users * scenario.rate.seconds / scenario.rate.count


@asynccontextmanager
async def _at_once(
    scenario: PollingScenario, world: PollingWorld, progress: RestartProgress, clock: Clock
) -> AsyncIterator[None]:
    naive = PerUserBot(world.wire, world.table, interval=scenario.interval, clock=clock, seed=scenario.seed)
    progress.restore(scenario.users)
    progress.restored_seconds = 0.0
    async with in_background(naive.poll(world.keys, tell=lambda _: None, heard=progress.hear)):
        yield


@asynccontextmanager
async def _staggered(
    scenario: PollingScenario,
    groups: RestoreGroups,
    world: PollingWorld,
    progress: RestartProgress,
    clock: Clock,
) -> AsyncIterator[None]:
    async with table_of(world, scenario, clock) as table:
        poller = UserPoller(
            ask_for_one(table, heard=progress.hear), scenario.interval, clock=clock, name="restored"
        )

        def on_progress(step: RestoreStep) -> None:
            if step.what == "restored":
                progress.restore()

        async def restore() -> None:
            source = waiting(table, eq("State", WAITING), key="Id")
            restored = await poller.restore(
                source, group=groups.size, every=groups.every, on_progress=on_progress
            )
            progress.groups, progress.restored_seconds = restored.groups, progress.now

        async with poller, in_background(restore()):
            yield


def _measured(
    scenario: PollingScenario, start: Start, world: PollingWorld, progress: RestartProgress
) -> RestartReport:
    server = world.noco.report()
    return RestartReport(
        start=start,
        users=scenario.users,
        groups=progress.groups,
        restored_seconds=_rounded(progress.restored_seconds),
        asked_seconds=_rounded(progress.asked_seconds),
        requests=server["requests"],
        avg_rps=round(server["requests"] / max(1.0, progress.now), 3),
        peak_rps=server["peak_rps"],
        refused=server["refused"],
        locked_seconds=round(server["blocked_seconds"], 1),
        per_second=server["per_second"],
        restored_per_second=progress.restored_per_second,
        virtual_seconds=round(progress.now, 1),
        seed=scenario.seed,
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
