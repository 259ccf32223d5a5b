"""A crowd: many simulated people who write to a bot at once, repeatable by a seed."""

import asyncio
import math
import random
from collections import deque
from typing import Any, NamedTuple

import msgspec

from tidegate.errors import BadInputError
from tidegate.sim.faults import Latency
from tidegate.sim.telegram.entities import SimulatedBot
from tidegate.sim.telegram.people import Person
from tidegate.sim.telegram.telegram import SimulatedTelegram

REPLIES_KEPT = 10_000  # the latest; sorted for each report


class HeardReply(NamedTuple):
    at: float  # seconds since the Unix epoch
    waited: float  # seconds since the person wrote


class Habits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The behaviour of a crowd's people. Each writes, waits for an answer, pauses, and repeats."""

    think: Latency = Latency(1_000, 5_000)  # ms between an answer and the next message
    patience: float = 30.0  # seconds until an answer counts as missing
    texts: tuple[str, ...] = ("/start", "hello", "what does it cost?", "thanks")
    press: float = 0.3  # share of turns that press a button, where there is one
    block: float = 0.0  # share of turns that end in blocking the bot

    def __post_init__(self) -> None:
        if not (0 <= self.press <= 1 and 0 <= self.block <= 1):
            raise BadInputError("press and block are shares: they must be between 0 and 1")
        if not 0 < self.patience < math.inf:
            raise BadInputError("patience is in seconds: it must be above 0")
        if not self.texts:
            raise BadInputError("texts must hold at least one text")


class Crowd:
    """Many people at once, repeatable under a seed."""

    def __init__(
        self,
        telegram: SimulatedTelegram,
        bot: SimulatedBot,
        *,
        users: int,
        habits: Habits | None = None,
        first_id: int = 1_000_001,
        seed: int = 0,
    ) -> None:
        self._telegram = telegram
        self._bot = bot
        self._ids = range(first_id, first_id + users)
        self._habits = habits or Habits()
        self._seed = seed
        self.replies: deque[HeardReply] = deque(maxlen=REPLIES_KEPT)
        self.said = 0
        self.answered = 0
        self.unanswered = 0
        self.blocked = 0

    async def run(self, seconds: float) -> None:
        """Let everybody write for `seconds` and then finish the current turn."""
        until = self._telegram.clock.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for user_id in self._ids:
                group.create_task(self._live(user_id, until), name=f"user {user_id}")

    def report(self) -> dict[str, Any]:
        """Return the counts; the percentiles are those of the latest answers."""
        ordered = sorted(reply.waited for reply in self.replies)
        return {
            "users": len(self._ids),
            "said": self.said,
            "answered": self.answered,
            "unanswered": self.unanswered,
            "blocked": self.blocked,
            "p50_ms": _percentile(ordered, 0.50),
            "p99_ms": _percentile(ordered, 0.99),
        }

    async def _live(self, user_id: int, until: float) -> None:
        clock, habits = self._telegram.clock, self._habits
        draw = random.Random(f"{self._seed}:{user_id}")  # noqa: S311  (repeatable, not secret)
        person = Person(self._telegram, self._bot, user_id)
        try:
            await clock.sleep(draw.random() * habits.think.seconds(draw))
            while clock.monotonic() < until:
                if draw.random() < habits.block:
                    person.blocks()
                    self.blocked += 1
                    return
                await self._turn(person, draw)
                await clock.sleep(habits.think.seconds(draw))
        finally:
            person.leaves()

    async def _turn(self, person: Person, draw: random.Random) -> None:
        clock, habits = self._telegram.clock, self._habits
        person.heard.clear()
        buttons = person.buttons() if draw.random() < habits.press else []
        started = clock.monotonic()
        if buttons:
            person.presses(draw.choice(buttons))
        else:
            person.says(draw.choice(habits.texts))
        self.said += 1
        try:
            await person.hears(habits.patience)
        except TimeoutError:
            self.unanswered += 1
        else:
            self.answered += 1
            self.replies.append(HeardReply(clock.now(), clock.monotonic() - started))


def _percentile(ordered: list[float], share: float) -> float:
    """Return milliseconds; 0 if nothing was measured."""
    return round(1000 * ordered[min(int(share * len(ordered)), len(ordered) - 1)], 2) if ordered else 0.0
