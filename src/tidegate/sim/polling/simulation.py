"""One run of a scenario in one mode: people pay, a bot polls, everything is counted."""

from collections.abc import Callable

import msgspec

from tidegate.clock import Clock
from tidegate.sim.polling.bots import in_background, running_bot
from tidegate.sim.polling.report import PaymentLog, PollingReport, with_flaws
from tidegate.sim.polling.scenario import Mode, PollingScenario, PollingWorld, http_world, virtual_world

TICK = 1.0  # seconds between two looks
Tick = Callable[[float], bool]
"""Called with the seconds simulated so far; False ends the run, and the report covers what was measured."""


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
