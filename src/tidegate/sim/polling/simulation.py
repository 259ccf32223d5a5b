"""One run of a scenario in one mode: people pay, a bot polls, and the report has the measured times."""

import math
from collections.abc import Callable, Sequence

import msgspec

from tidegate.clock import Clock
from tidegate.sim.polling.bots import in_background, running_bot
from tidegate.sim.polling.scenario import Mode, PollingScenario, PollingWorld, http_world, virtual_world

MOST_RPS = 1.0  # on average, of a batch poller
MOST_SHARE = 0.5  # of the limit, at most: the rest is for others
START_REQUESTS = 5  # not compared with asking for each: to read who waits, and what is in the table
TICK = 1.0  # seconds between two looks
# Called with the seconds simulated so far; False ends the run, and the report covers what was measured.
Tick = Callable[[float], bool]


class WaitTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Waits of the people who paid, in milliseconds from payment to notification; without one, until now."""

    paid: int
    told: int  # people, once or more often
    doubled: int  # told more than once
    early: int  # told without having paid
    missed: int  # not told, although an interval has passed
    waiting: int  # not told yet
    p50_ms: float
    p99_ms: float
    max_ms: float
    within_interval: float | None  # share of those who paid an interval ago or more; None if nobody did


class PaymentLog:
    """Times of payments and notifications, in seconds since the start."""

    def __init__(self) -> None:
        self.paid: dict[str, float] = {}
        self._told: dict[str, float] = {}
        self._doubled = 0

    def pays(self, key: str, at: float) -> None:
        self.paid[key] = at

    def tell(self, key: str, at: float) -> None:
        if key in self._told:
            self._doubled += 1
        self._told.setdefault(key, at)

    def waits(self, now: float, interval: float) -> WaitTimes:
        took = [self._told[key] - at for key, at in self.paid.items() if key in self._told]
        untold = [now - at for key, at in self.paid.items() if key not in self._told]
        missed = sum(age > interval for age in untold)
        waited = sorted(took + untold)
        return WaitTimes(
            paid=len(self.paid),
            told=len(self._told),
            doubled=self._doubled,
            early=len(self._told.keys() - self.paid.keys()),
            missed=missed,
            waiting=len(untold) - missed,
            p50_ms=quantile(waited, 0.5),
            p99_ms=quantile(waited, 0.99),
            max_ms=quantile(waited, 1.0),
            within_interval=self._in_time(now, interval),
        )

    def _in_time(self, now: float, interval: float) -> float | None:
        """Return the share told in time of all whose interval is over, whether told or not."""
        over = [(key, at) for key, at in self.paid.items() if now - at >= interval]
        in_time = sum(self._told.get(key, math.inf) - at <= interval for key, at in over)
        return round(in_time / len(over), 4) if over else None

    def needed(self, users: int, now: float, interval: float) -> float:
        """Return the requests of a bot that asks about each unpaid person once per interval."""
        waited = sum(self.paid.values()) + (users - len(self.paid)) * now
        return waited / interval


def quantile(rising: Sequence[float], share: float) -> float:
    """Return, in ms, the smallest of rising seconds that `share` of them do not exceed; 0 for none."""
    if not rising:
        return 0.0
    return round(1_000 * rising[max(0, math.ceil(share * len(rising)) - 1)], 1)


class PollingReport(msgspec.Struct, frozen=True, kw_only=True):
    """`reduction`: percent, against one request per person and interval. `flaws`: the missed targets."""

    mode: Mode
    users: int
    paid: int
    told: int
    doubled: int
    early: int
    missed: int
    waiting: int
    requests: int
    avg_rps: float
    peak_rps: int
    refused: int
    locked_seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    within_interval: float | None
    reduction: float
    virtual_seconds: float
    seconds: float
    flaws: tuple[str, ...] = ()
    seed: int = 0

    @property
    def passed(self) -> bool:
        return not self.flaws

    def as_dict(self) -> dict[str, object]:
        known: dict[str, object] = msgspec.to_builtins(self)
        return known | {"passed": self.passed}


def with_flaws(result: PollingReport, scenario: PollingScenario) -> PollingReport:
    """Add the missed targets. Every mode must keep the limit and tell nobody twice or early; batch and delta
    must also tell everybody within the interval, with few requests: batch below 1 a second; delta at most
    half of the limit, and after the start no more than asking for each.
    """
    met = {
        "refused": result.refused == 0,
        "doubled": result.doubled == 0,
        "early": result.early == 0,
    }
    if result.mode in {"batch", "delta"}:
        share = scenario.rate.count / scenario.rate.seconds * MOST_SHARE
        met["avg_rps"] = result.avg_rps <= share if result.mode == "delta" else result.avg_rps < MOST_RPS
        met["within_interval"] = result.within_interval in {None, 1} and result.missed == 0
    if result.mode == "delta":
        needed = result.requests / (1 - result.reduction / 100) if result.reduction < 0 else math.inf
        met["reduction"] = result.requests <= needed + START_REQUESTS
    return msgspec.structs.replace(result, flaws=tuple(name for name, good in met.items() if not good))


async def run_scenario(
    scenario: PollingScenario, mode: Mode, clock: Clock, *, tick: Tick | None = None, over_http: bool = False
) -> PollingReport:
    """Run a scenario on a `VirtualClock` without HTTP, or in real time over it, and count at the server."""
    world_for = http_world if over_http else virtual_world
    real = Clock()
    began = real.monotonic()
    async with world_for(scenario, clock) as world:
        play = PollingSimulation(scenario, mode, world, clock)
        async with running_bot(mode, scenario, world, clock, play.tell), in_background(play.pay()):
            await play.wait(tick or (lambda _: True))
            return play.result(seconds=real.monotonic() - began)


class PollingSimulation:
    """Times are seconds since the start."""

    def __init__(self, scenario: PollingScenario, mode: Mode, world: PollingWorld, clock: Clock) -> None:
        self._scenario, self._mode, self._world, self._clock = scenario, mode, world, clock
        self._log = PaymentLog()
        self._began = clock.monotonic()

    @property
    def now(self) -> float:
        return self._clock.monotonic() - self._began

    def tell(self, key: str) -> None:
        self._log.tell(key, self.now)

    async def pay(self) -> None:
        """Let people pay at their times, as another program would: without a request to the API."""
        for at, payer in self._scenario.payments():
            await self._clock.sleep(at - self.now)
            self._world.noco.pay(self._world.table, payer)
            self._log.pays(str(payer), self.now)

    async def wait(self, tick: Tick) -> None:
        """Wait until the end of the scenario, or until `tick` returns False."""
        while (left := self._scenario.duration - self.now) > 0 and tick(self.now):
            await self._clock.sleep(min(TICK, left))
        tick(self.now)

    def result(self, *, seconds: float) -> PollingReport:
        scenario, now, server = self._scenario, self.now, self._world.noco.report()
        waits = self._log.waits(now, scenario.interval)
        needed = self._log.needed(scenario.users, now, scenario.interval)
        result = PollingReport(
            mode=self._mode,
            users=scenario.users,
            **msgspec.structs.asdict(waits),
            requests=server["requests"],
            avg_rps=round(server["requests"] / max(now, TICK), 3),
            peak_rps=server["peak_rps"],
            refused=server["refused"],
            locked_seconds=round(server["blocked_seconds"], 1),
            reduction=round(100 * (1 - server["requests"] / max(1.0, needed)), 1),
            virtual_seconds=round(now, 1),
            seconds=round(seconds, 2),
            seed=scenario.seed,
        )
        return with_flaws(result, scenario)
