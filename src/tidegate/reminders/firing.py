"""The next state of a reminder that is due, or that a person changes. Pure decisions: the caller acts.

Each occurrence ends as one of three: fired (put into the outbox), skipped, or merged into a later one. Those
that a pause or a snooze covers are not counted at all.
"""

import math
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from tidegate.reminders.occurrences import next_occurrence
from tidegate.reminders.reminder import EveryDays, NewReminder, Reminder
from tidegate.reminders.spread import due_time

LATE_AFTER: Final = 60.0  # seconds: more is downtime, and the reminder's `late` decides
FIRED_AT_ONCE: Final = 100  # occurrences of one reminder in one step
PASSED_AT_ONCE: Final = 1_000  # occurrences that are skipped or merged in one step, which takes milliseconds
QUEUED_KEPT: Final = 8
LONGEST_USE: Final = 86_400.0  # seconds that a message is of use, if the reminder does not say
SHORTEST_USE: Final = 60.0


class FiredOccurrence(NamedTuple):
    """An occurrence to be put into the outbox, with the options of its message."""

    occurrence: float
    not_before: float
    expires_at: float
    dedup_key: str


class Firing(NamedTuple):
    """Put `fired` into the outbox, then store `reminder`. If it is still due, there is more to fire."""

    fired: tuple[FiredOccurrence, ...]
    reminder: Reminder


class Change(NamedTuple):
    """Store `reminder`, then cancel the messages with the dedup keys `cancel` in the outbox."""

    reminder: Reminder
    cancel: tuple[str, ...] = ()


def first_state(new: NewReminder, reminder_id: int, now: float) -> Reminder:
    """Return a reminder as it is added: with its first occurrence after now, or ended if there is none."""
    return _with_next(Reminder(**_fields_of(new), id=reminder_id, created_at=now), now)


def add_again(old: Reminder, new: NewReminder, now: float, *, stays_paused: bool = False) -> Reminder:
    """Return a reminder whose key is added again: as it is if nothing differs, else with a new start.

    So a program may add the same at each start. One that is paused or has ended starts anew in any case;
    with `stays_paused`, it remains paused.
    """
    if not old.has_ended and (stays_paused or not old.paused) and _is_same(old, new):
        return old
    fresh = first_state(new, old.id, now)
    return replace(fresh, paused=old.paused) if stays_paused else fresh


def _is_same(old: Reminder, new: NewReminder) -> bool:
    schedule = new.schedule
    if isinstance(schedule, EveryDays) and isinstance(old.schedule, EveryDays):
        schedule = replace(schedule, start=old.schedule.start)  # else it would be counted from now each time
    return _fields_of(old) == _fields_of(new) | {"schedule": schedule}


def fire(reminder: Reminder, now: float, ahead: float = 0.0) -> Firing:
    """Decide on the occurrences that are due by now + `ahead`: all, or as many as one step may hold.

    A step that is repeated after a crash gives the same dedup keys.
    """
    fired: list[FiredOccurrence] = []
    passed = 0
    while (
        len(fired) < FIRED_AT_ONCE and passed < PASSED_AT_ONCE and (found := _due_by(reminder, now + ahead))
    ):
        occurrence, due = found
        following = _with_next(replace(reminder, fired=reminder.fired + 1), occurrence, earliest=due)
        is_late = due < now - LATE_AFTER
        if is_late and reminder.late == "skip":
            reminder = replace(following, fired=reminder.fired, skipped=following.skipped + 1)
            passed += 1
        elif is_late and reminder.late == "merge" and _due_by(following, now):
            reminder = replace(following, fired=reminder.fired, merged=following.merged + 1)
            passed += 1
        else:
            start = max(due, now)
            expires_at = start + _seconds_of_use(reminder, occurrence, following.occurrence_at)
            fired.append(FiredOccurrence(occurrence, start, expires_at, reminder.occurrence_key(occurrence)))
            reminder = following
    if fired:
        queued = (*reminder.queued, *(one.occurrence for one in fired))
        reminder = replace(reminder, queued=queued[-max(QUEUED_KEPT, len(fired)) :])
    return Firing(tuple(fired), reminder)


def pause(reminder: Reminder, now: float) -> Change:
    """Stop it. What is queued is cancelled; if it was not due yet, it is the next occurrence again."""
    if reminder.paused:
        return Change(reminder)
    return Change(replace(_withdrawn(reminder, now), paused=True), reminder.queued_keys)


def resume(reminder: Reminder, now: float) -> Change:
    """Go on with what is not due yet, or else the first occurrence after now."""
    resumed = replace(reminder, paused=False)
    missed = reminder.paused and _due_by(resumed, now) is not None
    return Change(_with_next(resumed, now) if missed else resumed)


def skip_next(reminder: Reminder, now: float) -> Change:
    """Skip the next occurrence, which may be queued already. A reminder that has ended does not change."""
    if waiting := _not_due_yet(reminder, now):
        left = tuple(one for one in reminder.queued if one != waiting[0])
        skipped = replace(reminder, queued=left, fired=reminder.fired - 1, skipped=reminder.skipped + 1)
        return Change(skipped, (reminder.occurrence_key(waiting[0]),))
    if reminder.occurrence_at is None:
        return Change(reminder)
    return Change(_with_next(replace(reminder, skipped=reminder.skipped + 1), reminder.occurrence_at))


def snooze(reminder: Reminder, until: float, now: float) -> Change:
    """Fire at `until` instead: what was queued last, though it may have been delivered, or what is next.

    Nothing fires before. Then the schedule goes on. A reminder that has ended fires this once more.
    """
    back = _withdrawn(reminder, now)
    if reminder.queued and back.fired == reminder.fired:  # it was due: the same occurrence fires again
        back = replace(back, fired=reminder.fired - 1)
    until = max(until, now)
    return Change(replace(back, occurrence_at=until, next_at=until), reminder.queued_keys)


def reschedule(reminder: Reminder, new: NewReminder, now: float) -> Change:
    """Give it the fields of `new`. What is queued is cancelled; if it was not due yet, it is queued anew.

    Its counts stay. With another schedule or zone, its next occurrence is the first after now.
    """
    changed = replace(_withdrawn(reminder, now), **_fields_of(new))
    occurrence = changed.occurrence_at
    same_times = (new.schedule, new.zone) == (reminder.schedule, reminder.zone)
    if same_times and occurrence is not None and _is_within(changed, occurrence):
        changed = replace(changed, next_at=_due_if_snoozed(changed, occurrence))
    else:
        changed = _with_next(changed, now)
    return Change(changed, reminder.queued_keys)


def _fields_of(new: NewReminder) -> dict[str, Any]:
    return {name: getattr(new, name) for name in NewReminder.__struct_fields__}


def _withdrawn(reminder: Reminder, now: float) -> Reminder:
    """Return it with nothing queued: what was not due yet is the next occurrence again."""
    back = replace(reminder, queued=(), revision=reminder.revision + 1)
    if waiting := _not_due_yet(reminder, now):
        fired = reminder.fired - len(waiting)
        return replace(
            back, fired=fired, occurrence_at=waiting[0], next_at=_due_if_snoozed(reminder, waiting[0])
        )
    return back


def _not_due_yet(reminder: Reminder, now: float) -> list[float]:
    """The occurrences that were put into the outbox ahead of their time."""
    return [one for one in reminder.queued if _due_if_snoozed(reminder, one) > now]


def _due_by(reminder: Reminder, by: float) -> tuple[float, float] | None:
    """The next occurrence and when it is due, if that is not after `by`."""
    occurrence, due = reminder.occurrence_at, reminder.next_at
    if reminder.paused or occurrence is None or due is None or due > by:
        return None
    return occurrence, due


def _with_next(reminder: Reminder, after: float, earliest: float = -math.inf) -> Reminder:
    """Return it with its first occurrence after `after`, due no earlier than `earliest`; or ended."""
    occurrence, due = _next_within(reminder, after), earliest
    while occurrence is not None:
        due = _due(reminder, occurrence)
        if reminder.quiet is None or due == _due(replace(reminder, quiet=None), occurrence):
            break
        # Quiet hours hold it back. If the next one comes before they end, one message for both is enough.
        merged = replace(reminder, merged=reminder.merged + 1)
        following = _next_within(merged, occurrence)
        if following is None or following > due:
            break
        reminder, occurrence = merged, following
    if occurrence is None:
        return replace(reminder, occurrence_at=None, next_at=None)
    return replace(reminder, occurrence_at=occurrence, next_at=max(due, earliest))


def _next_within(reminder: Reminder, after: float) -> float | None:
    """Return the first occurrence after `after`, unless the reminder ends before it."""
    if reminder.starts_at is not None:
        after = max(after, math.nextafter(reminder.starts_at, -math.inf))
    occurrence = next_occurrence(reminder.schedule, reminder.zone, after)
    return occurrence if occurrence is not None and _is_within(reminder, occurrence) else None


def _is_within(reminder: Reminder, occurrence: float) -> bool:
    if reminder.count is not None and reminder.fired + reminder.skipped + reminder.merged >= reminder.count:
        return False
    if reminder.until is not None and occurrence > reminder.until:
        return False
    return reminder.starts_at is None or occurrence >= reminder.starts_at


def _due(reminder: Reminder, occurrence: float) -> float:
    return due_time(
        occurrence,
        reminder_id=reminder.id,
        zone=reminder.zone,
        spread=reminder.spread,
        engagement=reminder.engagement,
        quiet=reminder.quiet,
    )


def _due_if_snoozed(reminder: Reminder, occurrence: float) -> float:
    """When it is due; one that the schedule does not name was snoozed, and is due as it was asked for."""
    just_before = math.nextafter(occurrence, -math.inf)
    named = next_occurrence(reminder.schedule, reminder.zone, just_before) == occurrence
    return _due(reminder, occurrence) if named else occurrence


def _seconds_of_use(reminder: Reminder, occurrence: float, following: float | None) -> float:
    """How long its message is of use: if nothing else is said, until the next one comes."""
    if reminder.expires_in is not None:
        return reminder.expires_in
    return LONGEST_USE if following is None else min(LONGEST_USE, max(SHORTEST_USE, following - occurrence))
