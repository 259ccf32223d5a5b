"""One scenario, one mode, from beginning to end: people pay, a bot polls, and everything is counted."""

from collections.abc import Callable

from tidegate.clock import Clock
from tidegate.sim.polling.bots import beside, running_bot
from tidegate.sim.polling.report import PaymentLog, PollingReport, with_flaws
from tidegate.sim.polling.scenario import Mode, PollingScenario, PollingWorld, http_world, virtual_world

TICK = 1.0  # seconds between two looks
Tick = Callable[[float], bool]
"""Called with the seconds played; false ends the run, and what was measured so far is the result."""


async def run_scenario(
    scenario: PollingScenario, mode: Mode, clock: Clock, *, tick: Tick | None = None, over_http: bool = False
) -> PollingReport:
    """On a `VirtualClock` without HTTP, or in real time over it. What is counted is counted at the server."""
    place_for = http_world if over_http else virtual_world
    real = Clock()
    began = real.monotonic()
    async with place_for(scenario, clock) as place:
        play = PollingSimulation(scenario, mode, place, clock)
        async with running_bot(mode, scenario, place, clock, play.tell), beside(play.pay()):
            await play.last(tick or (lambda _: True))
            return play.result(seconds=real.monotonic() - began)


class PollingSimulation:
    """Its times are seconds since it was made."""

    def __init__(self, scenario: PollingScenario, mode: Mode, place: PollingWorld, clock: Clock) -> None:
        self._scenario, self._mode, self._place, self._clock = scenario, mode, place, clock
        self._ledger = PaymentLog()
        self._began = clock.monotonic()

    @property
    def now(self) -> float:
        return self._clock.monotonic() - self._began

    def tell(self, key: str) -> None:
        self._ledger.tell(key, self.now)

    async def pay(self) -> None:
        """Everybody whose turn comes, as somebody else's program does: without a request of ours."""
        for at, payer in self._scenario.payments():
            await self._clock.sleep(at - self.now)
            self._place.noco.pay(self._place.table, payer)
            self._ledger.pays(str(payer), self.now)

    async def last(self, tick: Tick) -> None:
        """Until the end, or until `tick` has had enough."""
        while (left := self._scenario.duration - self.now) > 0 and tick(self.now):
            await self._clock.sleep(min(TICK, left))
        tick(self.now)

    def result(self, *, seconds: float) -> PollingReport:
        scenario, now, server = self._scenario, self.now, self._place.noco.report()
        waits = self._ledger.waits(now, scenario.interval)
        needed = self._ledger.needed(scenario.users, now, scenario.interval)
        result = PollingReport(
            mode=self._mode,
            users=scenario.users,
            paid=waits.paid,
            told=waits.told,
            doubled=waits.doubled,
            early=waits.early,
            missed=waits.missed,
            waiting=waits.waiting,
            requests=server["requests"],
            avg_rps=round(server["requests"] / max(now, TICK), 3),
            peak_rps=server["peak_rps"],
            refused=server["refused"],
            locked_seconds=round(server["blocked_seconds"], 1),
            p50_ms=waits.p50_ms,
            p99_ms=waits.p99_ms,
            max_ms=waits.max_ms,
            within_interval=waits.within_interval,
            reduction=round(100 * (1 - server["requests"] / max(1.0, needed)), 1),
            virtual_seconds=round(now, 1),
            seconds=round(seconds, 2),
            seed=scenario.seed,
        )
        return with_flaws(result, scenario)
