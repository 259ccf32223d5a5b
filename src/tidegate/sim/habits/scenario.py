"""The users of a simulated habit bot: their time zones, their habits, and what they do with a reminder."""

import datetime as dt
import random
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.errors import BadInputError
from tidegate.sim.faults import PERFECT, Faults, Latency

MOST_USERS: Final = 300_000
MOST_HOURS: Final = 168.0
FIRST_USER: Final = 1_000_001
# Midnight in Helsinki, on a Monday: in none of the zones below does a time of reminders include this instant.
START: Final = dt.datetime(2026, 1, 4, 22, tzinfo=dt.UTC).timestamp()
EACH_WAY: Final = Latency(5, 40)

ZONES: Final = {  # with their shares of the users, in percent
    "Europe/Moscow": 30,
    "Europe/Berlin": 14,
    "Europe/Helsinki": 10,
    "America/New_York": 9,
    "Asia/Yekaterinburg": 8,
    "Asia/Almaty": 7,
    "Asia/Novosibirsk": 6,
    "America/Sao_Paulo": 5,
    "Europe/London": 4,
    "Asia/Kolkata": 4,
    "Asia/Tokyo": 2,
    "America/Los_Angeles": 1,
}
# The times of a user's first, second and third habit; each is spread over an hour.
WINDOWS: Final = ("08:30-09:30", "20:00-21:00", "13:00-14:00")
SHARP: Final = "09:00"
NAMES: Final = ("Read", "Run", "Meditate", "Drink water", "Learn words", "Stretch", "Write", "Sleep early")


class HabitScenario(msgspec.Struct, frozen=True, kw_only=True):
    """The same seed gives the same users, who do the same; and so the same run."""

    users: int = 100_000
    hours: float = 24.0
    seed: int = 0
    faults: Faults = PERFECT  # beside the delays of the network, which there always are
    # Shares of the users.
    sharp: float = 0.2  # want their first reminder at 09:00, not some time around
    two_habits: float = 0.35
    three_habits: float = 0.1
    # Shares of the reminders, by what the user does within half an hour.
    done: float = 0.25
    snooze: float = 0.02
    ask: float = 0.03  # writes /stats
    block: float = 0.002

    def __post_init__(self) -> None:
        if not 1 <= self.users <= MOST_USERS:
            raise BadInputError(f"--users {self.users} must be between 1 and {MOST_USERS:,}")
        if not 0 < self.hours <= MOST_HOURS:
            raise BadInputError(f"--hours {self.hours:g} must be above 0 and at most {MOST_HOURS:g}")

    @property
    def network(self) -> Faults:
        """The faults, with the delays of the network."""
        return msgspec.structs.replace(self.faults, latency_in=EACH_WAY, latency_out=EACH_WAY)

    def habits(self) -> Iterator["Habit"]:
        """Yield the habits of all users, those of one user in a row."""
        draw = random.Random(f"{self.seed} habits")  # noqa: S311  (repeatable, not secret)
        zones = draw.choices(list(ZONES), list(ZONES.values()), k=self.users)
        number = 0
        for user, zone in enumerate(zones, FIRST_USER):
            share = draw.random()
            how_many = 1 + (share < self.two_habits + self.three_habits) + (share < self.three_habits)
            for window, name in zip(WINDOWS, draw.sample(NAMES, how_many), strict=False):
                is_sharp = window == WINDOWS[0] and draw.random() < self.sharp
                times = int(draw.expovariate(1 / 14))
                yield Habit(number, user, zone, name, SHARP if is_sharp else window, times)
                number += 1


class Habit(NamedTuple):
    number: int
    user: int
    zone: str
    name: str
    at: str  # a time, or a window
    times: int  # that it was done before the run

    def reminder(self) -> dict[str, Any]:
        """The arguments of `gate.reminders.add_many`."""
        when = {"spread": self.at} if "-" in self.at else {"at": self.at}
        buttons = [
            {"text": "Done", "callback_data": f"done:{self.number}"},
            {"text": "In half an hour", "callback_data": f"snooze:{self.number}"},
        ]
        return {
            "chat_id": self.user,
            "text": f"{self.name}: done today?",
            "reply_markup": {"inline_keyboard": [buttons]},
            "every": "day",
            "zone": self.zone,
            "key": f"habit:{self.number}",
            **when,
        }
