"""When reminders leave that are due at about the same time: how long they wait, and what shortens that.

Pure arithmetic on the real parts: due times come from the spread and from the schedules, and departures
follow the rules of the outbox: n slots, each free again W seconds after the answer, and calls spaced by
W/n. Each message is assumed to go to a private chat of its own, beside no other traffic.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from tidegate.model import Rate
from tidegate.pacing.departures import ROUND_TRIP
from tidegate.pacing.rules import Rules
from tidegate.reminders.firing import fire, first_state
from tidegate.reminders.reminder import NewReminder, Spread
from tidegate.reminders.spread import ENGAGEMENT_BANDS, due_time, spread_offset

MINUTE: Final = 60.0
FREE_PER_SECOND: Final = 30  # messages; with allow_paid_broadcast, each above costs a tenth of a Star
STARS_PER_MESSAGE: Final = 0.1
SHORT_WAIT: Final = 60.0  # seconds that nobody minds
FULLEST_WINDOW: Final = 0.8  # of the rate: the rest is for replies
WINDOWS: Final = tuple(minutes * MINUTE for minutes in (15, 30, 60, 90, 120, 180, 240, 360, 480, 720, 1_440))


class MinuteCount(NamedTuple):
    """One minute of the plan."""

    start: float  # seconds, as the due times are
    due: int
    leave: int
    waiting: int  # at its end


class DeparturePlan(NamedTuple):
    """Times are seconds from wherever the due times count."""

    due: list[float]  # rising
    leaves: list[float]  # the departure of each of these
    rate: Rate
    round_trip: float

    @property
    def seconds(self) -> float:
        """From the first due time to the last departure."""
        return self.leaves[-1] - self.due[0]

    @property
    def longest_wait(self) -> float:
        return max(left - due for due, left in zip(self.due, self.leaves, strict=True))

    def wait_of(self, share: float) -> float:
        """Return the wait that so large a share of the messages does not exceed."""
        waits = sorted(left - due for due, left in zip(self.due, self.leaves, strict=True))
        return waits[min(len(waits) - 1, math.ceil(share * len(waits)) - 1)]

    def minutes(self, length: float = MINUTE) -> list[MinuteCount]:
        """Return the counts of each minute, or of each `length`, until the last one has left."""
        first = math.floor(self.due[0] / length)
        size = math.floor(self.leaves[-1] / length) - first + 1
        due, leave = [0] * size, [0] * size
        for times, counts in ((self.due, due), (self.leaves, leave)):
            for time in times:
                counts[math.floor(time / length) - first] += 1
        found, waiting = [], 0
        for number in range(size):
            waiting += due[number] - leave[number]
            found.append(MinuteCount((first + number) * length, due[number], leave[number], waiting))
        return found


def plan_departures(due: Iterable[float], rate: Rate, round_trip: float = ROUND_TRIP) -> DeparturePlan:
    """Return when messages leave that are due at these times, the first due first."""
    times = sorted(due)
    slot, gap = rate.seconds + round_trip, rate.seconds / rate.count
    leaves: list[float] = []
    last = -math.inf
    for number, time in enumerate(times):
        last = max(time, last + gap)
        if number >= rate.count:
            last = max(last, leaves[number - rate.count] + slot)
        leaves.append(last)
    return DeparturePlan(times, leaves, rate, round_trip)


def due_times(users: int, occurrence: float, spread: Spread | None = None) -> list[float]:
    """Return when the reminders of so many users are due that have the same occurrence."""
    return [
        due_time(occurrence, reminder_id=number, zone="UTC", spread=spread) for number in range(1, users + 1)
    ]


def scheduled_times(new: NewReminder, reminder_id: int, start: float, end: float) -> list[float]:
    """Return when the occurrences of a reminder are due after `start` and before `end`."""
    reminder, found = first_state(new, reminder_id, start), list[float]()
    while reminder.next_at is not None and reminder.next_at < end:
        fired, reminder = fire(reminder, reminder.next_at)
        found += (one.not_before for one in fired)
    return found


class Alternative(NamedTuple):
    """A plan with another setting."""

    name: Literal["window", "engagement", "paid", "second_bot"]
    seconds: float  # from the first due time to the last departure
    longest_wait: float
    window: float = 0.0  # seconds
    first_tenth: float = 0.0  # seconds until the most engaged tenth of the users has it
    stars: float = 0.0  # what it costs


def alternatives(plan: DeparturePlan, unspread: Sequence[float]) -> list[Alternative]:
    """Return what would shorten the waits. `unspread`: the due times without any window.

    Nothing if nobody waits for long.
    """
    if plan.longest_wait <= SHORT_WAIT:
        return []
    found = []
    if (wide := _window_without_waits(plan, unspread)) is not None:
        window, spread = wide
        found = [
            Alternative("window", spread.seconds, spread.longest_wait, window),
            Alternative("engagement", spread.seconds, spread.longest_wait, window, window / ENGAGEMENT_BANDS),
        ]
    paid = plan_departures(plan.due, Rules().paid, plan.round_trip)
    stars = STARS_PER_MESSAGE * max(0.0, len(plan.due) - FREE_PER_SECOND * paid.seconds)
    half = plan_departures(plan.due[::2], plan.rate, plan.round_trip)
    return [
        *found,
        Alternative("paid", paid.seconds, paid.longest_wait, stars=stars),
        Alternative("second_bot", half.seconds, half.longest_wait),
    ]


def _window_without_waits(
    plan: DeparturePlan, unspread: Sequence[float]
) -> tuple[float, DeparturePlan] | None:
    """Return the shortest usual window in which nobody waits for long, and the plan with it."""
    needed = _needed_window(len(unspread), plan.rate, plan.round_trip)
    span = max(unspread) - min(unspread)
    for window in WINDOWS:
        if window + span >= needed:
            spread = Spread(window)
            due = [time + spread_offset(spread, number, time) for number, time in enumerate(unspread, 1)]
            wide = plan_departures(due, plan.rate, plan.round_trip)
            if wide.longest_wait <= SHORT_WAIT:
                return window, wide
    return None


def _needed_window(users: int, rate: Rate, round_trip: float) -> float:
    return users * (rate.seconds + round_trip) / rate.count / FULLEST_WINDOW


class SizeAdvice(NamedTuple):
    """Advice for a bot of a certain size: what it needs, and what it does not need yet."""

    users: int
    up_to: float  # users, for whom this is the nearest advice
    pool_size: int
    max_overflow: int
    window: float  # seconds, at least: the longer, the more room is left for replies
    switch_on: tuple[str, ...]
    not_yet: tuple[str, ...]


LOWER_RATE: Final = "TIDEGATE_BOT_RATE=25/1, to keep room for what else calls Telegram with this token"
ADVICE: Final = (
    SizeAdvice(
        1_000,
        3_000,
        5,
        10,
        0.0,
        (
            "one process and one file: everything runs in the bot",
            "watch it: /healthz, tidegate doctor, tidegate queue stats",
        ),
        ("a worker or a scheduler of its own", "Redis", "PostgreSQL", "a webhook"),
    ),
    SizeAdvice(
        10_000,
        30_000,
        15,
        25,
        30 * MINUTE,
        (
            LOWER_RATE,
            'conversations="store" and throttle=True, so that a restart or a flooder harms nobody',
            "PostgreSQL (DATABASE_URL), if the bot's own tables are queried with each update",
            "statistics at night, or every 6 hours",
            "Redis (REDIS_URL), when a second process is planned",
        ),
        (
            "a scheduler of its own",
            "a read replica",
            "shards",
            "payments or administration outside of the bot",
        ),
    ),
    SizeAdvice(
        100_000,
        math.inf,
        20,
        30,
        120 * MINUTE,
        (
            "tidegate scheduler and tidegate worker beside the bot, each with a pool of its own",
            "a webhook, with two bots or more behind a load balancer",
            "Redis (REDIS_URL) for the outbox, conversations and the throttle of all processes",
            "PostgreSQL with PgBouncer: the three pools of 50 are more than its 100 connections",
            "a read replica (DATABASE_REPLICA_URL) for statistics",
        ),
        (
            "payments as a service of their own",
            "administration outside of the bot",
            "a message broker: the outbox is the queue",
        ),
    ),
)


def advice_for(users: int, rate: Rate) -> SizeAdvice:
    """Return the advice for the nearest size. It never names a higher rate than the given one."""
    advice = next(advice for advice in ADVICE if users <= advice.up_to)
    if rate.count / rate.seconds > 25:  # noqa: PLR2004  (that of LOWER_RATE)
        return advice
    return advice._replace(switch_on=tuple(line for line in advice.switch_on if line != LOWER_RATE))


def advised_window(advice: SizeAdvice, rate: Rate, round_trip: float) -> float | None:
    """Return the seconds of the window at this rate. 0: none is needed; None: a day is too short."""
    needed = max(advice.window, _needed_window(advice.users, rate, round_trip))
    if needed <= SHORT_WAIT:
        return 0.0
    return next((window for window in WINDOWS if window >= needed), None)
