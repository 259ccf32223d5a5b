"""Reminders that fire, whatever the steps of the clock and whatever people do to them meanwhile."""

import datetime as dt
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from tidegate.model import BotId
from tidegate.outbox.message_times import check_times
from tidegate.reminders.firing import (
    FIRED_AT_ONCE,
    LATE_AFTER,
    PASSED_AT_ONCE,
    Change,
    FiredOccurrence,
    Firing,
    fire,
    first_state,
    pause,
    reschedule,
    resume,
    skip_next,
    snooze,
)
from tidegate.reminders.occurrences import next_occurrence
from tidegate.reminders.reminder import (
    Cron,
    Daily,
    EveryDays,
    LatePolicy,
    NewReminder,
    Once,
    QuietHours,
    Reminder,
    Schedule,
    Spread,
    Weekly,
)

DAY = 86_400.0
MONDAY = dt.datetime(2026, 3, 2, tzinfo=dt.UTC).timestamp()  # midnight
NINE = MONDAY + 9 * 3_600
DAILY = Daily(dt.time(9))
HOURLY = Cron("0 * * * *")


def a_reminder(schedule: Schedule = DAILY, *, now: float = MONDAY, **fields: Any) -> Reminder:  # noqa: ANN401
    new = NewReminder(
        bot=BotId(1), chat_id=5, user_id=5, zone="UTC", fields={"text": "hi"}, schedule=schedule
    )
    return first_state(replace(new, **fields), 7, now)


def fire_all(reminder: Reminder, now: float, ahead: float = 0.0) -> Firing:
    """As a scheduler does: step after step until nothing is due."""
    fired: list[FiredOccurrence] = []
    steps = 0
    while True:
        step = fire(reminder, now, ahead)
        assert len(step.fired) <= FIRED_AT_ONCE
        fired += step.fired
        if step.reminder == reminder:
            return Firing(tuple(fired), reminder)
        reminder, steps = step.reminder, steps + 1
        assert steps < 1_000


def at(text: str) -> float:
    return dt.datetime.fromisoformat(f"{text}+00:00").timestamp()


schedules = st.one_of(
    st.times().map(lambda time: Daily(time.replace(microsecond=0))),
    st.builds(Weekly, st.just(dt.time(9)), st.frozensets(st.integers(0, 6), min_size=1)),
    st.builds(EveryDays, st.just(dt.time(23, 30)), st.integers(1, 3), st.just(dt.date(2026, 3, 1))),
    st.sampled_from(["*/30 * * * *", "0 */5 * * *", "15 9,21 * * mon-fri", "* 9 * * *"]).map(Cron),
    st.just(Once(dt.datetime.fromisoformat("2026-03-05T12:00"))),
)
steps_of_now = st.lists(
    st.one_of(st.floats(0.5, 90), st.floats(60, 40_000), st.floats(DAY, 3 * DAY)), min_size=1, max_size=12
)


def occurrences(schedule: Schedule, zone: str, after: float, until: float) -> list[float]:
    found: list[float] = []
    while (at := next_occurrence(schedule, zone, found[-1] if found else after)) is not None and at <= until:
        found.append(at)
    return found


@given(
    schedules,
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"]),
    steps_of_now,
    st.sampled_from(["fire", "skip", "merge"]),
    st.sampled_from([0.0, 60.0]),
    st.none() | st.integers(1, 30),
    st.none() | st.floats(0, 8 * DAY),
)
def test_each_occurrence_ends_once_whatever_the_steps_of_the_clock(
    schedule: Schedule,
    zone: str,
    steps: list[float],
    late: LatePolicy,
    ahead: float,
    count: int | None,
    until: float | None,
) -> None:
    start = at("2026-03-26T00:00")  # the clocks of Berlin change three days later
    end = None if until is None else start + until
    reminder = a_reminder(schedule, now=start, zone=zone, late=late, count=count, until=end)
    horizon = start + sum(steps)
    named = occurrences(schedule, zone, start, min(horizon + ahead, end or math.inf))[:count]

    put: list[FiredOccurrence] = []
    expected: list[float] = []
    now, seen = start, 0
    skipped = merged = 0
    for step in steps:
        now += step
        due = [one for one in named[seen:] if one <= now + ahead]  # the model: a list, and the rules in words
        seen += len(due)
        missed = [one for one in due if one < now - LATE_AFTER]
        if late == "skip":
            skipped += len(missed)
            due = [one for one in due if one not in missed]
        elif late == "merge" and missed:
            newest = max(one for one in due if one <= now)
            merged += len([one for one in missed if one != newest])
            due = [one for one in due if one == newest or one not in missed]
        expected += due

        firing = fire_all(reminder, now, ahead)
        reminder = firing.reminder
        put += firing.fired
        for one in firing.fired:
            check_times(one.not_before, one.expires_at, now)  # the outbox takes them
            assert one.not_before == max(one.occurrence, now)

    assert [one.occurrence for one in put] == expected
    assert len({one.dedup_key for one in put}) == len(put)
    assert (reminder.fired, reminder.skipped, reminder.merged) == (len(expected), skipped, merged)
    assert reminder.fired + reminder.skipped + reminder.merged == len(named)
    assert reminder.has_ended == (
        (after := next_occurrence(schedule, zone, max([start, *named]))) is None
        or len(named) == count
        or (end is not None and after > end)
    )


@given(
    schedules,
    steps_of_now,
    st.builds(Spread, st.floats(1, 7_200), st.sampled_from(["stable", "random", "engagement"])),
    st.none() | st.just(QuietHours(dt.time(22), dt.time(7))),
)
def test_spread_and_quiet_hours_lose_and_double_nothing(
    schedule: Schedule, steps: list[float], spread: Spread, quiet: QuietHours | None
) -> None:
    reminder = a_reminder(schedule, spread=spread, quiet=quiet, engagement=0.4)
    put: list[FiredOccurrence] = []
    now = MONDAY
    for step in steps:
        now += step
        firing = fire_all(reminder, now, 60)
        reminder, put = firing.reminder, put + list(firing.fired)
    found = [one.occurrence for one in put]
    assert found == sorted(set(found))
    assert all(one.not_before >= one.occurrence for one in put)
    last = reminder.occurrence_at
    named = occurrences(schedule, "UTC", MONDAY, now + 60 if last is None else last - 1)
    if quiet is None:
        assert found == named
    assert set(found) <= set(named)
    assert reminder.fired + reminder.merged == len(named)
    assert reminder.skipped == 0


class ReminderLife(RuleBasedStateMachine):
    """People press every button at any time; an outbox delivers at `not_before` what was not cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.now = MONDAY + 0.25
        self.reminder = a_reminder(Cron("0 */4 * * *"), now=self.now)
        self.outbox: dict[str, tuple[float, float]] = {}  # not_before and occurrence
        self.delivered: list[tuple[float, float]] = []
        self.snoozed = 0
        self.text_of: dict[str, str] = {}

    def _deliver(self) -> None:
        for key, (not_before, occurrence) in list(self.outbox.items()):
            if not_before <= self.now:
                self.delivered.append((occurrence, not_before))
                del self.outbox[key]

    @rule(seconds=st.floats(1, 60) | st.floats(60, 20_000))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self._deliver()

    @rule(times=st.integers(1, 3))
    def the_scheduler_steps(self, times: int) -> None:
        firing = fire(self.reminder, self.now, 60)
        for _ in range(times):  # a step whose result was not stored is repeated
            firing = fire(self.reminder, self.now, 60)
            for one in firing.fired:
                assert one.dedup_key not in self.text_of or times > 1, "the outbox would not take it"
                if one.dedup_key not in self.text_of:
                    self.outbox[one.dedup_key] = one.not_before, one.occurrence
                self.text_of[one.dedup_key] = self.reminder.fields["text"]
        self.reminder = firing.reminder
        self._deliver()

    def _change(self, change: Change) -> None:
        for key in change.cancel:
            assert key in self.text_of, "only what was put is cancelled"
            self.outbox.pop(key, None)
        self.reminder = change.reminder

    @rule()
    def pause(self) -> None:
        self._change(pause(self.reminder, self.now))
        assert not self.outbox

    @rule()
    def resume(self) -> None:
        was_paused = self.reminder.paused
        self._change(resume(self.reminder, self.now))
        assert not was_paused or (self.reminder.next_at or 0) > self.now

    @rule()
    def skip_next(self) -> None:
        coming = min((not_before for not_before, _ in self.outbox.values()), default=self.reminder.next_at)
        before = self.reminder
        self._change(skip_next(before, self.now))
        assert self.reminder.skipped == before.skipped + 1
        assert coming not in {not_before for not_before, _ in self.outbox.values()}
        assert self.reminder.next_at != coming

    @rule(seconds=st.floats(1, 30_000))
    def snooze(self, seconds: float) -> None:
        self._change(snooze(self.reminder, self.now + seconds, self.now))
        assert not self.outbox
        assert self.reminder.next_at == self.now + seconds
        self.snoozed += 1

    @rule(text=st.text("abc", min_size=1))
    def change_the_text(self, text: str) -> None:
        before = self.reminder.next_at, set(self.outbox.values())
        self._change(reschedule(self.reminder, replace(self.reminder, fields={"text": text}), self.now))
        assert not self.outbox
        if before[1]:  # what waited comes again, with the new text
            assert self.reminder.next_at == min(not_before for not_before, _ in before[1])
        else:
            assert self.reminder.next_at == before[0]

    @rule(hour=st.integers(0, 23))
    def change_the_time(self, hour: int) -> None:
        schedule = Daily(dt.time(hour))
        is_new = schedule != self.reminder.schedule
        self._change(reschedule(self.reminder, replace(self.reminder, schedule=schedule), self.now))
        assert not is_new or (self.reminder.occurrence_at or 0) > self.now

    @invariant()
    def no_occurrence_is_delivered_twice(self) -> None:
        named = [occurrence for occurrence, _ in self.delivered if occurrence % 3_600 == 0]
        assert len(named) == len(set(named))

    @invariant()
    def nothing_waits_while_it_is_paused(self) -> None:
        assert not (self.reminder.paused and self.outbox)

    @invariant()
    def what_fired_was_delivered_or_waits(self) -> None:
        arrived = len(self.delivered) + len(self.outbox)
        # One that was delivered and is then snoozed counts once, though it comes a second time.
        assert arrived - self.snoozed <= self.reminder.fired <= arrived


TestReminderLife = ReminderLife.TestCase


def test_a_reminder_fires_ahead_of_its_time_with_its_time_in_the_message() -> None:
    fired, after = fire(a_reminder(), NINE - 30, 60)
    assert [(one.occurrence, one.not_before, one.expires_at) for one in fired] == [(NINE, NINE, NINE + DAY)]
    assert (after.occurrence_at, after.next_at, after.queued) == (NINE + DAY, NINE + DAY, (NINE,))
    assert fire(after, NINE - 30, 60).fired == ()


def test_nothing_fires_before_its_time_or_while_it_is_paused() -> None:
    assert fire(a_reminder(), NINE - 61, 60) == ((), a_reminder())
    paused = pause(a_reminder(), MONDAY).reminder
    assert fire(paused, NINE + DAY, 60) == ((), paused)


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({}, DAY),
        ({"schedule": HOURLY}, 3_600),
        ({"schedule": Once(dt.datetime.fromisoformat("2026-03-02T09:00"))}, DAY),
        ({"schedule": Weekly(dt.time(9), frozenset({0}))}, DAY),
        ({"expires_in": 300.0}, 300),
    ],
)
def test_a_message_is_of_use_until_the_next_one_but_a_day_at_most(
    fields: dict[str, Any], seconds: float
) -> None:
    reminder = a_reminder(now=NINE - 600, **{"schedule": DAILY} | fields)
    (one,) = fire(reminder, NINE).fired
    assert one.expires_at == NINE + seconds


def test_after_three_days_each_missed_one_fires_with_a_life_of_its_own() -> None:
    fired, after = fire(a_reminder(), NINE + 3 * DAY + 500)
    assert [one.occurrence for one in fired] == [NINE + day * DAY for day in range(4)]
    assert {one.not_before for one in fired} == {NINE + 3 * DAY + 500}
    assert all(one.expires_at == one.not_before + DAY for one in fired)
    assert after.fired == 4


def test_after_three_days_missed_ones_are_skipped_and_counted() -> None:
    fired, after = fire(a_reminder(late="skip"), NINE + 3 * DAY + 60)
    assert [one.occurrence for one in fired] == [NINE + 3 * DAY]  # a minute late is not downtime
    assert (after.fired, after.skipped) == (1, 3)


def test_after_three_days_missed_ones_are_merged_into_the_newest() -> None:
    fired, after = fire(a_reminder(late="merge"), NINE + 3 * DAY + 500)
    assert [one.occurrence for one in fired] == [NINE + 3 * DAY]
    assert (after.fired, after.merged) == (1, 3)


def test_a_long_downtime_is_worked_off_in_steps() -> None:
    every_minute = a_reminder(Cron("* * * * *"))
    first = fire(every_minute, MONDAY + DAY)
    assert len(first.fired) == FIRED_AT_ONCE
    assert len(first.reminder.queued) == FIRED_AT_ONCE  # all of them can still be cancelled
    assert len(fire_all(every_minute, MONDAY + DAY).fired) == 1_440
    merged = fire(replace(every_minute, late="merge"), MONDAY + DAY + 5)
    assert merged.fired == ()
    assert merged.reminder.merged == PASSED_AT_ONCE
    skipped = fire(replace(every_minute, late="skip"), MONDAY + DAY + 5)
    assert (skipped.fired, skipped.reminder.skipped) == ((), PASSED_AT_ONCE)
    fired, after = fire_all(replace(every_minute, late="merge"), MONDAY + DAY + 5)
    assert [one.occurrence for one in fired] == [MONDAY + DAY]
    assert (after.fired, after.merged) == (1, 1_439)


def test_only_the_latest_occurrences_are_remembered_as_queued() -> None:
    reminder = a_reminder()
    for day in range(20):
        reminder = fire(reminder, NINE + day * DAY).reminder
    assert reminder.queued == tuple(NINE + day * DAY for day in range(12, 20))


def test_a_count_counts_skipped_and_merged_ones_too() -> None:
    reminder = skip_next(a_reminder(count=3), MONDAY).reminder
    fired, after = fire_all(reminder, NINE + 10 * DAY)
    assert (len(fired), after.skipped, after.has_ended) == (2, 1, True)


def test_the_last_occurrence_is_not_after_the_end_and_the_first_not_before_the_start() -> None:
    reminder = a_reminder(starts_at=NINE + DAY, until=NINE + 2 * DAY)
    assert [one.occurrence for one in fire_all(reminder, NINE + 9 * DAY).fired] == [
        NINE + DAY,
        NINE + 2 * DAY,
    ]
    assert a_reminder(starts_at=NINE + DAY + 0.5).occurrence_at == NINE + 2 * DAY
    assert a_reminder(until=NINE - 1).has_ended
    assert a_reminder(Once(dt.datetime.fromisoformat("2020-01-01T09:00"))).has_ended


def test_an_hourly_reminder_comes_once_after_quiet_hours() -> None:
    reminder = a_reminder(HOURLY, now=MONDAY + 20.5 * 3_600, quiet=QuietHours(dt.time(22), dt.time(7)))
    fired, after = fire_all(reminder, MONDAY + DAY + 8.5 * 3_600)
    hours = [(one.occurrence - MONDAY) / 3_600 for one in fired]
    assert hours == [21, 31, 32]  # 21:00, 07:00, 08:00
    assert after.merged == 9


def test_a_daily_reminder_in_quiet_hours_comes_at_their_end_and_is_not_merged() -> None:
    reminder = a_reminder(Daily(dt.time(23)), quiet=QuietHours(dt.time(22), dt.time(7)))
    assert (reminder.occurrence_at, reminder.next_at) == (MONDAY + 23 * 3_600, MONDAY + 31 * 3_600)
    fired, after = fire_all(reminder, MONDAY + 2 * DAY + 8 * 3_600)
    assert (len(fired), after.merged) == (2, 0)


def test_an_hourly_reminder_with_a_long_window_is_merged_in_quiet_hours_only() -> None:
    quiet = QuietHours(dt.time(22), dt.time(7))
    reminder = a_reminder(HOURLY, now=NINE - 60, quiet=quiet, spread=Spread(3 * 3_600))
    fired, after = fire_all(reminder, NINE + 6 * 3_600)
    assert [one.occurrence for one in fired] == [NINE + hour * 3_600 for hour in range(len(fired))]
    assert len(fired) >= 4
    assert after.merged == 0


def test_a_count_ends_with_those_that_quiet_hours_or_downtime_have_merged() -> None:
    night = QuietHours(dt.time(22), dt.time(7))
    fired, after = fire_all(
        a_reminder(HOURLY, now=MONDAY + 21.5 * 3_600, quiet=night, count=4), NINE + 2 * DAY
    )
    assert (len(fired), after.merged, after.has_ended) == (1, 3, True)
    assert fired[0].occurrence == MONDAY + 25 * 3_600  # the fourth; it waits for seven o'clock
    fired, after = fire_all(a_reminder(late="merge", count=3), NINE + 9 * DAY)
    assert ([one.occurrence for one in fired], after.merged) == ([NINE + 2 * DAY], 2)
    assert after.has_ended


def test_random_offsets_longer_than_the_time_between_keep_the_order() -> None:
    reminder = a_reminder(HOURLY, spread=Spread(4 * 3_600, "random", seed=2), late="skip")
    due: list[float] = []
    while len(due) < 50:
        assert reminder.next_at is not None
        fired, reminder = fire(reminder, reminder.next_at)
        due += [one.not_before for one in fired]
    assert due == sorted(due)
    assert reminder.skipped == 0  # none of them counts as late


def test_the_more_engaged_user_is_reminded_first() -> None:
    spread = Spread(3_600, "engagement")
    keen, other = a_reminder(spread=spread, engagement=0.95), a_reminder(spread=spread, engagement=0.1)
    assert keen.next_at is not None
    assert other.next_at is not None
    assert keen.next_at < NINE + 360 < other.next_at - 2_000


def test_a_paused_reminder_takes_back_what_is_queued_and_resumed_in_time_it_fires() -> None:
    (one,), queued = fire(a_reminder(), NINE - 50, 60)
    paused, cancelled = pause(queued, NINE - 40)
    assert cancelled == (one.dedup_key,)
    assert (paused.next_at, paused.fired, paused.queued, paused.revision) == (NINE, 0, (), 1)
    in_time = resume(paused, NINE - 10).reminder
    (again,) = fire(in_time, NINE - 5, 60).fired
    assert again.occurrence == NINE
    assert again.dedup_key != one.dedup_key  # the outbox would not take the same key again
    too_late = resume(paused, NINE + 10).reminder
    assert (too_late.next_at, too_late.fired, too_late.skipped) == (NINE + DAY, 0, 0)


@pytest.mark.parametrize("seconds", [0, 300])
def test_what_was_due_when_it_was_paused_does_not_come_again(seconds: float) -> None:
    (one,), queued = fire(a_reminder(), NINE - 50, 60)
    paused, cancelled = pause(queued, NINE + seconds)  # it may still wait for its turn
    assert cancelled == (one.dedup_key,)
    assert (paused.fired, resume(paused, NINE + 301).reminder.next_at) == (1, NINE + DAY)


def test_a_spread_reminder_paused_and_resumed_within_its_window_still_fires() -> None:
    reminder = a_reminder(spread=Spread(3_600))
    assert reminder.next_at is not None
    assert NINE + 60 < reminder.next_at < NINE + 3_600
    resumed = resume(pause(reminder, NINE + 10).reminder, NINE + 20).reminder
    assert (resumed.occurrence_at, resumed.next_at) == (NINE, reminder.next_at)


def test_pausing_twice_and_resuming_what_runs_change_nothing() -> None:
    paused = pause(a_reminder(), MONDAY).reminder
    assert pause(paused, NINE) == Change(paused)
    late = a_reminder()
    assert resume(late, NINE + 5).reminder == late  # it is due, and fires


def test_skipping_the_next_one_takes_it_back_if_it_is_queued() -> None:
    (one,), queued = fire(a_reminder(), NINE - 50, 60)
    skipped, cancelled = skip_next(queued, NINE - 40)
    assert cancelled == (one.dedup_key,)
    assert (skipped.fired, skipped.skipped, skipped.next_at, skipped.queued) == (0, 1, NINE + DAY, ())
    later, nothing = skip_next(queued, NINE + 40)  # today's was due: tomorrow's is skipped
    assert nothing == ()
    assert (later.fired, later.skipped, later.next_at) == (1, 1, NINE + 2 * DAY)
    ended = a_reminder(until=NINE - 1)
    assert skip_next(ended, NINE) == Change(ended)


def test_a_delivered_reminder_that_is_snoozed_comes_again_and_the_schedule_goes_on() -> None:
    (one,), fired = fire(a_reminder(count=2), NINE)
    snoozed, cancelled = snooze(fired, NINE + 600, NINE + 20)
    assert cancelled == (one.dedup_key,)
    again = fire_all(snoozed, NINE + DAY)
    assert [found.occurrence for found in again.fired] == [NINE + 600, NINE + DAY]
    assert len({one.dedup_key, *(found.dedup_key for found in again.fired)}) == 3
    assert (again.reminder.fired, again.reminder.has_ended) == (2, True)


def test_the_next_one_that_is_snoozed_comes_then_instead_and_a_spread_does_not_delay_it() -> None:
    snoozed = snooze(a_reminder(spread=Spread(3_600)), NINE + 600, MONDAY).reminder
    fired, after = fire(snoozed, NINE + 600)
    assert [(one.occurrence, one.not_before) for one in fired] == [(NINE + 600, NINE + 600)]
    assert after.occurrence_at == NINE + DAY
    skipped = skip_next(after, NINE + 700).reminder  # it is over, though the window is not
    assert skipped.occurrence_at == NINE + 2 * DAY


def test_occurrences_before_the_end_of_a_snooze_do_not_come() -> None:
    snoozed = snooze(a_reminder(HOURLY, now=NINE - 60), NINE + 4 * 3_600 + 60, NINE - 30).reminder
    fired, after = fire_all(snoozed, NINE + 5 * 3_600)
    assert [(one.occurrence - NINE) / 60 for one in fired] == [241, 300]
    assert (after.fired, after.merged, after.skipped) == (2, 0, 0)


def test_a_reminder_that_fired_once_can_be_snoozed_again_and_again() -> None:
    reminder = a_reminder(Once(dt.datetime.fromisoformat("2026-03-02T09:00")))
    reminder = fire(reminder, NINE).reminder
    assert reminder.has_ended
    keys = set()
    for minutes in (10, 20, 30):
        reminder = snooze(reminder, NINE + minutes * 60, NINE + minutes * 60 - 300).reminder
        (one,), reminder = fire(reminder, NINE + minutes * 60)
        keys.add(one.dedup_key)
        assert (reminder.has_ended, reminder.fired) == (True, 1)
    assert len(keys) == 3


def test_a_change_of_the_text_puts_what_waits_anew_and_a_change_of_the_time_moves_it() -> None:
    (one,), queued = fire(a_reminder(), NINE - 50, 60)
    text = replace(queued, fields={"text": "new"})
    changed, cancelled = reschedule(queued, text, NINE - 40)
    assert cancelled == (one.dedup_key,)
    (again,), after = fire(changed, NINE - 30, 60)
    assert (again.occurrence, after.fields["text"], after.fired) == (NINE, "new", 1)
    assert again.dedup_key != one.dedup_key

    later = reschedule(queued, replace(queued, schedule=Daily(dt.time(10))), NINE - 40).reminder
    assert (later.next_at, later.fired, later.id) == (NINE + 3_600, 0, 7)


def test_a_change_of_the_text_does_not_lose_what_is_due_and_not_put_yet() -> None:
    spread = a_reminder(spread=Spread(3_600))
    changed = reschedule(spread, replace(spread, fields={"text": "new"}), NINE + 10).reminder
    assert changed.next_at == spread.next_at
    behind = reschedule(a_reminder(), replace(a_reminder(), fields={"text": "new"}), NINE + 10).reminder
    assert [one.occurrence for one in fire(behind, NINE + 11).fired] == [NINE]


def test_a_change_of_the_window_changes_when_the_next_one_is_due() -> None:
    wide = a_reminder(spread=Spread(3_600))
    narrow = reschedule(wide, replace(wide, spread=None), MONDAY).reminder
    assert (narrow.occurrence_at, narrow.next_at) == (NINE, NINE)


def test_a_reminder_that_has_ended_goes_on_when_its_end_is_moved() -> None:
    ended = fire(a_reminder(count=1), NINE).reminder
    assert ended.has_ended
    longer = reschedule(ended, replace(ended, count=3), NINE + 60).reminder
    assert [one.occurrence for one in fire_all(longer, NINE + 9 * DAY).fired] == [NINE + DAY, NINE + 2 * DAY]
    shorter = reschedule(a_reminder(), replace(a_reminder(), until=NINE - 1), MONDAY).reminder
    assert shorter.has_ended


def test_a_reminder_added_again_with_its_key_has_other_dedup_keys() -> None:
    first = fire(a_reminder(now=NINE - 20), NINE).fired[0]
    second = fire(a_reminder(now=NINE - 10), NINE).fired[0]
    assert first.dedup_key != second.dedup_key
