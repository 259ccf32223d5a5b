"""One run of the habit bot in virtual time: users, the bot on a real gate, a simulated Telegram; measured."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import msgspec

from tidegate.clock import Clock
from tidegate.gate import Tidegate
from tidegate.outbox.port import OutboxStats
from tidegate.settings import Settings
from tidegate.sim import virtual_time
from tidegate.sim.habits.bot import HabitBot
from tidegate.sim.habits.scenario import START, Habit, HabitScenario
from tidegate.sim.habits.users import HabitUsers
from tidegate.sim.polling.simulation import quantile
from tidegate.sim.telegram.telegram import SimulatedTelegram, TelegramWire
from tidegate.sim.virtual_time import VirtualClock
from tidegate.tasks import BackgroundTasks

TOKEN: Final = "42:habits"  # noqa: S105  (of a bot that exists in the simulator only)
TICK: Final = 60.0  # seconds between two looks
ADDED_AT_ONCE: Final = 5_000  # habits between two looks
GRACE: Final = 600.0  # seconds after the end in which what is under way arrives
REPLIES_WITHIN: Final = 1_000.0  # milliseconds, for 99 of 100 answers
LATE_AT_MOST: Final = 900.0  # seconds, for any reminder

# Called with the habits whose reminders were added, and with the seconds simulated so far. False ends the
# run, and the report covers what was measured.
Tick = Callable[[int, float], bool]


class HabitReport(msgspec.Struct, frozen=True, kw_only=True):
    """`p50_ms` and so on: from pressing or asking to the answer. `late_…`: of reminders, after they were due.

    `messages` arrived at Telegram: those of the outbox, and replies that were sent at once. `flaws`: the
    targets that were missed.
    """

    users: int
    habits: int
    hours: float
    seed: int
    faults: dict[str, float]  # shares of the requests
    accepted: int
    delivered: int
    dead: int
    parked: int
    expired: int
    cancelled: int
    waiting: int
    lost: int
    doubled: int
    out_of_order: int
    refused: int
    messages: int
    requests: int
    avg_rps: float
    peak_rps: int
    peak_messages: int  # in a second, of which 30 are allowed
    p50_ms: float
    p99_ms: float
    max_ms: float
    reminders: int
    late_p50_ms: float
    late_p99_ms: float
    late_max_ms: float
    pressed: int
    snoozed: int
    asked: int
    blocked: int
    per_hour: list[int]  # messages that arrived
    virtual_seconds: float
    seconds: float
    flaws: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def passed(self) -> bool:
        return not self.flaws and not self.interrupted

    def as_dict(self) -> dict[str, Any]:
        known: dict[str, Any] = msgspec.to_builtins(self)
        return known | {"passed": self.passed}


def simulate_habits(scenario: HabitScenario, tick: Tick = lambda _added, _played: True) -> HabitReport:
    """Run a scenario in virtual time. The same scenario gives the same report, apart from `seconds`."""

    async def main(clock: VirtualClock) -> HabitReport:
        clock.epoch = START
        return await HabitSimulation(scenario, clock, tick).run()

    with _few_collections():
        return virtual_time.run(main, scenario.seed)


class HabitSimulation:
    def __init__(self, scenario: HabitScenario, clock: VirtualClock, tick: Tick) -> None:
        self._scenario = scenario
        self._clock = clock
        self._tick = tick
        self._real = Clock()
        self._began = self._real.monotonic()
        self._telegram = SimulatedTelegram(clock, faults=scenario.network, seed=scenario.seed)
        wire = TelegramWire(self._telegram, clock)
        # The limits of the environment are for real bots.
        settings = Settings.model_construct()
        self._gate = Tidegate("memory://", clock=clock, wire=wire, settings=settings, seed=scenario.seed)
        self._gate.add_bot(TOKEN)
        self._habits = list(scenario.habits())
        self._bot = HabitBot(self._gate, self._habits)
        known = self._telegram.world.bot(TOKEN)
        assert known is not None  # noqa: S101  (an open world takes any well-formed token)
        self._users = HabitUsers(scenario, self._habits, self._telegram, known)

    async def run(self) -> HabitReport:
        async with self._gate as gate:
            goes_on = await self._add_reminders()
            tasks = BackgroundTasks()
            async with gate.worker():
                tasks.start(self._bot.answer(), "answers")
                goes_on = goes_on and await self._play()
                self._users.fall_asleep()
                ended = self._clock.now()
                with suppress(TimeoutError):
                    async with self._clock.timeout(GRACE):
                        await gate.drained()
                report = self._report(await gate.stats(), ended, interrupted=not goes_on)
                await tasks.stop()
        return report

    async def _add_reminders(self) -> bool:
        """Return whether all were added; False if that was stopped."""
        due: list[float] = []
        for habits in _chunks(self._habits, ADDED_AT_ONCE):
            if not self._tick(len(due), 0.0):
                return False
            due += await self._bot.add_reminders(habits)
        self._users.expect(due)
        return True

    async def _play(self) -> bool:
        """Let time pass. Return whether it was played to the end."""
        length = self._scenario.hours * 3600
        while (left := length - self._clock.monotonic()) > 0:
            if not self._tick(len(self._habits), self._clock.monotonic()):
                return False
            await self._clock.sleep(min(TICK, left))
        self._tick(len(self._habits), length)
        return True

    def _report(self, stats: OutboxStats, ended: float, *, interrupted: bool) -> HabitReport:
        scenario, users, seen = self._scenario, self._users, self._telegram.report()
        waiting = stats.waiting + stats.sending
        settled = stats.delivered + stats.dead + stats.parked + stats.expired + stats.cancelled
        known_missing = waiting + stats.parked + stats.expired + self._bot.dead_otherwise
        waits, lateness = sorted(users.waits), sorted(users.lateness)
        report = HabitReport(
            users=scenario.users,
            habits=len(self._habits),
            hours=scenario.hours,
            seed=scenario.seed,
            faults=scenario.faults.shares(),
            accepted=settled + waiting,
            delivered=stats.delivered,
            dead=stats.dead,
            parked=stats.parked,
            expired=stats.expired,
            cancelled=stats.cancelled,
            waiting=waiting,
            lost=max(0, users.missing(ended) - known_missing),
            doubled=users.doubled + seen["doubled"],
            out_of_order=seen["out_of_order"],
            refused=seen["refused"],
            messages=seen["accepted"],
            requests=seen["requests"],
            avg_rps=round(seen["requests"] / max(TICK, self._clock.monotonic()), 3),
            peak_rps=seen["peak_rps"],
            peak_messages=seen["peaks"].get("bot", 0),
            p50_ms=quantile(waits, 0.5),
            p99_ms=quantile(waits, 0.99),
            max_ms=quantile(waits, 1.0),
            reminders=len(lateness),
            late_p50_ms=quantile(lateness, 0.5),
            late_p99_ms=quantile(lateness, 0.99),
            late_max_ms=quantile(lateness, 1.0),
            pressed=users.pressed,
            snoozed=users.snoozed,
            asked=users.asked,
            blocked=users.blocked,
            per_hour=users.per_hour,
            virtual_seconds=round(self._clock.monotonic(), 1),
            seconds=round(self._real.monotonic() - self._began, 1),
            interrupted=interrupted,
        )
        unheard = sum(seen["faults"].get(fault, 0) for fault in ("lost_answer", "silent", "malformed"))
        return msgspec.structs.replace(report, flaws=_flaws(report, self._bot.dead_otherwise, unheard))


def _flaws(report: HabitReport, dead_otherwise: int, unheard: int) -> tuple[str, ...]:
    """Return the missed targets. `unheard`: calls that Telegram carried out, and whose answer was lost."""
    in_time = report.p99_ms <= REPLIES_WITHIN and report.late_max_ms <= 1000 * LATE_AT_MOST
    met = {
        "lost": report.lost == 0,
        "doubled": report.doubled <= unheard,  # such a message is sent again: it may have come twice
        "refused": report.refused == 0,
        "out_of_order": report.out_of_order == 0,
        "dead": dead_otherwise == 0,  # but for users who have blocked the bot
        "parked": report.parked == 0,
        "expired": report.expired == 0,
        "slow": bool(report.faults) or in_time,
        "nothing_sent": report.requests > 0 and (report.accepted == 0 or report.delivered > 0),
    }
    return tuple(name for name, good in met.items() if not good)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Collect garbage less often: of 20,000 users, it takes a seventh of the time otherwise."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _chunks(habits: Sequence[Habit], size: int) -> Iterator[Sequence[Habit]]:
    for start in range(0, len(habits), size):
        yield habits[start : start + size]
