import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import Tidegate
from tidegate.model import BotId, Rate
from tidegate.pacing.departures import departure
from tidegate.reminders.departure_plan import (
    ADVICE,
    LOWER_RATE,
    Alternative,
    DeparturePlan,
    advice_for,
    advised_window,
    alternatives,
    due_times,
    plan_departures,
    scheduled_times,
)
from tidegate.reminders.reminder import Cron, NewReminder, Schedule, Spread
from tidegate.sim import virtual_time
from tidegate.sim.telegram import Faults, Latency, SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock

NINE = 9 * 3_600.0
RATES = st.builds(Rate, st.integers(1, 50), st.sampled_from([1.0, 2.0, 60.0]))


def at_once(users: int, rate: str) -> DeparturePlan:
    return plan_departures(due_times(users, NINE), Rate.parse(rate))


@given(st.integers(1, 300), RATES, st.floats(0, 0.5))
def test_what_is_due_at_once_leaves_as_the_forecast_of_a_broadcast_says(
    count: int, rate: Rate, round_trip: float
) -> None:
    plan = plan_departures([0.0] * count, rate, round_trip)
    assert plan.leaves[-1] == pytest.approx(departure(count - 1, rate, round_trip))


@given(st.lists(st.floats(0, 200), min_size=1, max_size=300), RATES, st.floats(0, 0.5))
def test_nobody_leaves_early_or_above_the_rate(due: list[float], rate: Rate, round_trip: float) -> None:
    plan = plan_departures(due, rate, round_trip)
    assert plan.due == sorted(due)
    assert all(left >= time for time, left in zip(plan.due, plan.leaves, strict=True))
    assert plan.leaves == sorted(plan.leaves)
    for first, last in zip(plan.leaves, plan.leaves[rate.count :], strict=False):
        assert last - first >= rate.seconds + round_trip - 1e-6


@given(st.lists(st.floats(0, 3_000), min_size=1, max_size=300), RATES)
def test_the_minutes_count_everybody_once(due: list[float], rate: Rate) -> None:
    plan = plan_departures(due, rate)
    minutes = plan.minutes()
    assert sum(minute.due for minute in minutes) == sum(minute.leave for minute in minutes) == len(due)
    assert minutes[-1].waiting == 0
    assert all(minute.waiting >= 0 for minute in minutes)
    for minute in minutes:
        inside = [left for left in plan.leaves if minute.start <= left < minute.start + 60]
        assert len(inside) == minute.leave


@pytest.mark.parametrize(
    ("users", "rate", "minutes"),
    [(1_000, "30/1", 0.58), (10_000, "25/1", 7.0), (10_000, "30/1", 5.83), (100_000, "30/1", 58.3)],
)
def test_the_last_of_many_at_nine_leaves_so_many_minutes_later(users: int, rate: str, minutes: float) -> None:
    plan = at_once(users, rate)
    assert plan.seconds / 60 == pytest.approx(minutes, abs=0.05)
    assert plan.longest_wait == pytest.approx(plan.seconds)
    assert plan.wait_of(0.5) == pytest.approx(plan.seconds / 2, rel=0.01)


def test_a_window_of_two_hours_lets_nobody_of_100_000_wait() -> None:
    plan = plan_departures(due_times(100_000, NINE - 3_600, Spread(7_200)), Rate(30, 1))
    assert plan.longest_wait < 1
    assert NINE + 3_590 < plan.leaves[-1] < NINE + 3_600


def test_the_plan_says_what_the_real_outbox_does() -> None:
    async def main(clock: VirtualClock) -> tuple[float, int]:
        delay = Latency.parse("25")
        telegram = SimulatedTelegram(clock, faults=Faults(latency_in=delay, latency_out=delay))
        gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock))
        gate.add_bot("1:token")
        async with gate, gate.worker():
            await gate.send_many({"chat_id": 1 + user, "text": "x"} for user in range(1_000))
            await gate.drained()
            last = max(entry.at for entry in telegram.request_log.log)
            return last - virtual_time.EPOCH, telegram.report()["refused"]

    last, refused = virtual_time.run(main)
    planned = plan_departures([0.0] * 1_000, Rate(30, 1), 0.05)
    assert refused == 0
    assert last == pytest.approx(planned.seconds, rel=0.02)


def test_a_day_of_a_schedule_holds_its_occurrences_as_they_are_due() -> None:
    midnight = dt.datetime(2026, 3, 2, tzinfo=dt.UTC).timestamp()

    def reminder(schedule: Schedule, spread: Spread | None = None) -> NewReminder:
        return NewReminder(
            bot=BotId(1), chat_id=5, user_id=5, schedule=schedule, zone="UTC", fields={}, spread=spread
        )

    hourly = scheduled_times(reminder(Cron("0 8-20 * * *")), 1, midnight, midnight + 86_400)
    assert hourly == [midnight + hour * 3_600 for hour in range(8, 21)]
    (late,) = scheduled_times(reminder(Cron("0 9 * * *"), Spread(600)), 1, midnight, midnight + 86_400)
    assert midnight + NINE <= late < midnight + NINE + 600


def test_what_would_help_is_named_with_its_figures_and_its_price() -> None:
    plan = at_once(100_000, "30/1")
    found = {one.name: one for one in alternatives(plan, plan.due)}
    assert found["window"].window == 90 * 60  # the shortest that leaves a fifth of the rate for replies
    assert found["window"].longest_wait < 5
    assert found["engagement"].first_tenth == 9 * 60
    assert found["paid"].seconds == pytest.approx(105, abs=1)
    assert found["paid"].stars == pytest.approx(9_685, abs=5)
    assert found["second_bot"].seconds == pytest.approx(plan.seconds / 2, rel=0.01)


def test_nothing_is_changed_if_nobody_waits_for_long() -> None:
    plan = at_once(1_000, "30/1")
    assert alternatives(plan, plan.due) == []


def test_more_than_a_day_can_hold_gets_no_window() -> None:
    plan = plan_departures([NINE] * 3_000, Rate(1, 60))
    names = [one.name for one in alternatives(plan, plan.due)]
    assert names == ["paid", "second_bot"]
    assert all(isinstance(one, Alternative) for one in alternatives(plan, plan.due))


def test_advice_is_that_of_the_nearest_size() -> None:
    assert [
        advice_for(users, Rate(30, 1)).users for users in (1, 1_000, 3_001, 10_000, 30_001, 5_000_000)
    ] == [
        1_000,
        1_000,
        10_000,
        10_000,
        100_000,
        100_000,
    ]
    assert [(one.pool_size, one.max_overflow) for one in ADVICE] == [(5, 10), (15, 25), (20, 30)]


def test_advice_names_no_higher_rate_than_the_given_one() -> None:
    assert LOWER_RATE in advice_for(10_000, Rate(30, 1)).switch_on
    assert LOWER_RATE not in advice_for(10_000, Rate(25, 1)).switch_on
    assert LOWER_RATE not in advice_for(10_000, Rate(1, 1)).switch_on


@pytest.mark.parametrize(
    ("users", "rate", "minutes"),
    [
        (1_000, Rate(30, 1), 0),
        (1_000, Rate(1, 1), 30),
        (10_000, Rate(30, 1), 30),
        (100_000, Rate(30, 1), 120),
        (10_000, Rate(5, 1), 60),  # 35 minutes of sending do not fit into 30
        (100_000, Rate(5, 1), 480),
        (100_000, Rate(1, 1), None),
    ],
)
def test_the_advised_window_is_long_enough_for_the_rate(users: int, rate: Rate, minutes: int | None) -> None:
    window = advised_window(advice_for(users, rate), rate, 0.05)
    assert window == (None if minutes is None else minutes * 60)
    if window:
        assert users * (rate.seconds + 0.05) / rate.count <= window
