"""The simulated users: they get reminders and answers, press buttons, ask, and note what came when."""

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.sim.habits.bot import SNOOZE, STATS
from tidegate.sim.habits.scenario import FIRST_USER, Habit, HabitScenario
from tidegate.sim.telegram.entities import Json, SimulatedBot
from tidegate.sim.telegram.telegram import SimulatedTelegram

HOUR, DAY = 3600.0, 86_400.0
THINKS: Final = (2.0, 1800.0)  # seconds from a reminder to what the user does


class HabitUsers:
    """All users of the bot. They know when each reminder should come, whatever the bot does.

    `lateness` and `waits` are in seconds: of reminders after they were due, and for answers.
    """

    def __init__(
        self,
        scenario: HabitScenario,
        habits: Sequence[Habit],
        telegram: SimulatedTelegram,
        bot: SimulatedBot,
    ) -> None:
        self._scenario = scenario
        self._habits = habits
        self._clock: Clock = telegram.clock
        self._world = telegram.world
        self._bot = bot
        self._draw = random.Random(f"{scenario.seed} users")  # noqa: S311  (repeatable, not secret)
        self._due: list[
            float
        ] = []  # of each habit: when the next reminder should come; empty before `expect`
        self._due_after_snooze: dict[int, float] = {}
        self._asked: dict[str, float] = {}  # when what was asked that is not answered yet
        self._blocked: set[int] = set()
        self._are_asleep = False
        self.lateness: list[float] = []
        self.waits: list[float] = []
        self.doubled = 0  # reminders that came before they were due, or again
        self.pressed = self.snoozed = self.asked = 0
        self.per_hour: list[int] = []  # messages that came

    def expect(self, due: Sequence[float]) -> None:
        """Wait for reminders, of each habit the first at this time, then daily."""
        self._due = list(due)
        for user in range(FIRST_USER, FIRST_USER + self._scenario.users):
            self._world.add_private(self._bot, user).watchers.append(self._hear)

    def fall_asleep(self) -> None:
        """Press and write nothing more; what comes is noted."""
        hours = math.ceil(self._clock.monotonic() / HOUR)
        self.per_hour += [0] * (hours - len(self.per_hour))  # hours in which nothing came
        self._are_asleep = True

    @property
    def blocked(self) -> int:
        return len(self._blocked)

    def missing(self, by: float) -> int:
        """Count the reminders that were due by then, and the answers, that did not come."""
        reminders = sum(
            due <= by and habit.user not in self._blocked
            for habit, due in zip(self._habits, self._due, strict=False)
        )
        return reminders + len(self._asked)

    def _hear(self, message: Json) -> None:
        # What comes after the end is part of the last hour.
        hour = min(int(self._clock.monotonic() // HOUR), math.ceil(self._scenario.hours) - 1)
        self.per_hour += [0] * (hour + 1 - len(self.per_hour))
        self.per_hour[hour] += 1
        if (markup := message.get("reply_markup")) is not None:
            number = int(markup["inline_keyboard"][0][0]["callback_data"].partition(":")[2])
            self._get_reminder(self._habits[number], message)
            return
        text, user = message["text"], message["chat"]["id"]
        tag = text.rpartition("#")[2] if "#" in text else ""
        asked = self._asked.pop(f"done {tag.partition(':')[0]}" if tag else f"stats {user}", None)
        if asked is not None:  # else it came a second time
            self.waits.append(self._clock.monotonic() - asked)

    def _get_reminder(self, habit: Habit, message: Json) -> None:
        number, now = habit.number, self._clock.now()
        due = self._due[number]
        if now < due:
            self.doubled += 1
            return
        self.lateness.append(now - due)
        self._due[number] = self._due_after_snooze.pop(number, due + DAY)
        if not self._are_asleep:
            self._react(habit, message)

    def _react(self, habit: Habit, message: Json) -> None:
        scenario, share = self._scenario, self._draw.random()
        choices: tuple[tuple[float, Callable[[Habit, Json], Any]], ...] = (
            (scenario.done, self._press_done),
            (scenario.snooze, self._press_snooze),
            (scenario.ask, self._ask),
            (scenario.block, self._block),
        )
        for part, act in choices:
            if share < part:
                self._clock.call_later(self._draw.uniform(*THINKS), partial(self._act, act, habit, message))
                return
            share -= part

    def _act(self, act: Callable[[Habit, Json], Any], habit: Habit, message: Json) -> None:
        if not self._are_asleep and habit.user not in self._blocked:
            act(habit, message)

    def _press_done(self, habit: Habit, message: Json) -> None:
        self.pressed += 1
        self._asked[f"done {habit.number}"] = self._clock.monotonic()
        self._world.user_presses(self._bot, habit.user, message, f"done:{habit.number}")

    def _press_snooze(self, habit: Habit, message: Json) -> None:
        self.snoozed += 1
        self._due_after_snooze[habit.number] = self._due[habit.number]
        self._due[habit.number] = self._clock.now() + SNOOZE.total_seconds()
        self._world.user_presses(self._bot, habit.user, message, f"snooze:{habit.number}")

    def _ask(self, habit: Habit, _: Json) -> None:
        if f"stats {habit.user}" not in self._asked:
            self.asked += 1
            self._asked[f"stats {habit.user}"] = self._clock.monotonic()
            self._world.user_says(self._bot, habit.user, STATS, self._clock.now())

    def _block(self, habit: Habit, _: Json) -> None:
        self._blocked.add(habit.user)
        self._world.user_blocks(self._bot, habit.user, self._clock.now())
