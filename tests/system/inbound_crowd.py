"""A crowd that writes to one bot, and knows what must come back; in real time or in virtual time.

Everybody says `say 1`, `say 2` and so on, when they like, not when the last answer came, and is to be
answered `echo 1`, `echo 2`, each once and in this order. One more user may flood the bot, for a
while on and for as long off, so that one run shows how the others are served with and without a flood.
"""

import asyncio
import math
import random
from array import array
from collections.abc import Iterable
from typing import Any

import msgspec

from system.inbound_vitals import percentile
from tidegate.clock import Clock
from tidegate.model import Rate
from tidegate.pacing.rules import Rules
from tidegate.sim.telegram import Limits, SimulatedTelegram
from tidegate.sim.telegram.entities import Json, SimulatedBot

TOKEN = "42:crowd"
FIRST = 1_000_001
SPAMMER = 999
TWICE = 0.1  # share of the times that somebody says two things at once
CHAT = Rate(3, 3)  # so that two at once need not wait for each other
WINDOW = 60.0  # seconds: of the throttle
GRACE = 30.0  # seconds for the last answers; what has not come then is lost
SLOWEST_LOOP = 50.0  # ms, p99
SLOWEST_MEDIAN = 1_000.0  # ms: more is no conversation
MOST_MOVED = 10.0  # percent
BOTH = (False, True)  # without a flood, and with one


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    users: int
    seconds: float
    every: float = 5.0  # seconds between two times that somebody writes, on average
    spammer: float = 0.0  # messages a second of one user more; 0: there is none
    seed: int = 0

    @property
    def bot_rate(self) -> Rate:
        """Telegram's, or what these people need: twice what they say."""
        return Rate(max(30, math.ceil(2 * (1 + TWICE) * self.users / self.every)), 1)

    @property
    def phase(self) -> float:
        """Seconds for which there is a flood, or none."""
        return max(1.0, min(15.0, self.seconds / 6))

    def limits(self) -> Limits:
        return Limits(bot=self.bot_rate, private=CHAT)

    def rules(self) -> Rules:
        return Rules(bot=self.bot_rate, private=CHAT)


class Spammer:
    """A user who writes in floods, and notes what the bot says besides echoes."""

    def __init__(self, telegram: SimulatedTelegram, bot: SimulatedBot, scene: Scene) -> None:
        self._telegram, self._bot, self._scene = telegram, bot, scene
        self.floods = False
        self.said = self.echoes = 0
        self.friendly = array("d")  # when
        if scene.spammer:
            telegram.world.add_private(bot, SPAMMER).watchers.append(self._hear)

    async def live(self) -> None:
        """The first phase is a quiet one."""
        clock, scene = self._telegram.clock, self._scene
        while scene.spammer:
            await clock.sleep(scene.phase)
            self.floods = True
            until = clock.monotonic() + scene.phase
            while clock.monotonic() < until:
                self._say(math.ceil(scene.spammer / 10))
                await clock.sleep(math.ceil(scene.spammer / 10) / scene.spammer)
            self.floods = False

    def _say(self, times: int) -> None:
        for _ in range(times):
            self.said += 1
            now = self._telegram.clock.now()
            self._telegram.world.user_says(self._bot, SPAMMER, f"say {self.said}", now)

    def _hear(self, message: Json) -> None:
        if message["text"].startswith("echo "):
            self.echoes += 1
        else:
            self.friendly.append(self._telegram.clock.monotonic())

    def most_friendly(self) -> int:
        """Friendly answers in any window."""
        times = list(self.friendly)
        return max((sum(at <= later < at + WINDOW for later in times) for at in times), default=0)


class Talker:
    """One user of the crowd."""

    def __init__(
        self, telegram: SimulatedTelegram, bot: SimulatedBot, user: int, scene: Scene, spammer: Spammer
    ) -> None:
        self._telegram, self._bot, self._id, self._spammer = telegram, bot, user, spammer
        self._every = scene.every
        self._draw = random.Random(f"{scene.seed}:{user}")
        self._latest = 0  # number of an answer
        self.said = self.doubled = self.out_of_order = 0
        self.open: dict[int, tuple[float, bool]] = {}  # when it was said, and whether there was a flood
        self.waits = {flood: array("d") for flood in BOTH}  # milliseconds
        telegram.world.add_private(bot, user).watchers.append(self._hear)

    async def live(self) -> None:
        clock, draw = self._telegram.clock, self._draw
        await clock.sleep(draw.uniform(0, self._every))
        while True:
            for _ in range(2 if draw.random() < TWICE else 1):
                self._say()
            await clock.sleep(draw.uniform(0.5 * self._every, 1.5 * self._every))

    def _say(self) -> None:
        self.said += 1
        clock = self._telegram.clock
        self.open[self.said] = (clock.monotonic(), self._spammer.floods)
        self._telegram.world.user_says(self._bot, self._id, f"say {self.said}", clock.now())

    def _hear(self, message: Json) -> None:
        number = int(message["text"].partition(" ")[2])
        said = self.open.pop(number, None)
        if said is None:
            self.doubled += 1
            return
        self.out_of_order += number < self._latest
        self._latest = max(self._latest, number)
        at, flood = said
        self.waits[flood].append(1000 * (self._telegram.clock.monotonic() - at))


class Gathering:
    """All users of a scene."""

    def __init__(self, telegram: SimulatedTelegram, scene: Scene) -> None:
        bot = telegram.world.bot(TOKEN)
        assert bot is not None
        self._telegram, self._scene = telegram, scene
        self.spammer = Spammer(telegram, bot, scene)
        self.talkers = [
            Talker(telegram, bot, FIRST + number, scene, self.spammer) for number in range(scene.users)
        ]
        self._seconds = 0.0

    async def live(self) -> None:
        """Until the time is over; then wait for the last answers."""
        clock = self._telegram.clock
        started = clock.monotonic()
        everybody: list[Spammer | Talker] = [self.spammer, *self.talkers]
        lives = [asyncio.create_task(one.live()) for one in everybody]
        await clock.sleep(self._scene.seconds)
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)
        self._seconds = clock.monotonic() - started
        await self._wait_for_the_rest(clock)

    async def _wait_for_the_rest(self, clock: Clock) -> None:
        over = clock.monotonic() + GRACE
        while self._owed() and clock.monotonic() < over:
            await clock.sleep(0.05)

    def _owed(self) -> int:
        return sum(len(talker.open) for talker in self.talkers)

    def report(self) -> dict[str, Any]:
        """In the vocabulary of all reports. `lost`: said, and not answered in time."""
        waits = sorted(self._waits(*BOTH))
        seen = self._telegram.report()
        return {
            "users": self._scene.users,
            "sent": sum(talker.said for talker in self.talkers),
            "answered": len(waits),
            "lost": self._owed(),
            **{name: sum(getattr(one, name) for one in self.talkers) for name in ("out_of_order", "doubled")},
            "p50_ms": percentile(waits, 0.5),
            "p99_ms": percentile(waits, 0.99),
            **{name: seen[name] for name in ("requests", "refused", "avg_rps", "peak_rps")},
            "bot_limit": str(self._scene.bot_rate),
            "chat_limit": str(CHAT),
            "seconds": round(self._seconds, 1),
            "seed": self._scene.seed,
            **(self._beside_the_spammer() if self._scene.spammer else {}),
        }

    def _beside_the_spammer(self) -> dict[str, Any]:
        quiet, flood = (percentile(sorted(self._waits(which)), 0.5) for which in BOTH)
        moved = 100 * (flood - quiet) / quiet if quiet and flood else None
        return {
            "spammer_sent": self.spammer.said,
            "spammer_echoes": self.spammer.echoes,
            "friendly_answers": len(self.spammer.friendly),
            "friendly_per_window": self.spammer.most_friendly(),
            "p50_ms_without_spammer": quiet,
            "p50_ms_with_spammer": flood,
            "moved_percent": None if moved is None else round(moved, 1),
        }

    def _waits(self, *which: bool) -> Iterable[float]:
        return (wait for talker in self.talkers for flood in which for wait in talker.waits[flood])


def judge(found: dict[str, Any]) -> dict[str, Any]:
    """`passed`: everybody was answered, once and in order, by a process that stayed quick."""
    flaws = ("lost", "out_of_order", "doubled", "refused")
    late, moved = found.get("loop_p99_ms"), found.get("moved_percent")
    quick = (late is None or late < SLOWEST_LOOP) and (found["p50_ms"] or 0) < SLOWEST_MEDIAN
    calm = moved is None or moved < MOST_MOVED
    polite = found.get("friendly_per_window", 0) <= 1
    sound = found["answered"] > 0 and not any(found[flaw] for flaw in flaws)
    return found | {"passed": sound and quick and calm and polite}
