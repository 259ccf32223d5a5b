"""The options of a reminder: arguments of `gate.reminders.add`, or columns of a file. One reader for both."""

import datetime as dt
import difflib
import math
import reprlib
import zoneinfo
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypedDict, assert_never, get_args

import msgspec

from tidegate.errors import BadInputError
from tidegate.model import BotId, ChatId
from tidegate.outbox.admission import check_chat
from tidegate.outbox.message_times import Span
from tidegate.reminders.firing import first_state
from tidegate.reminders.occurrences import next_occurrence, time_zone
from tidegate.reminders.reminder import (
    SPREAD_ORDERS,
    Cron,
    Daily,
    EveryDays,
    LatePolicy,
    NewReminder,
    Once,
    QuietHours,
    Schedule,
    Spread,
    SpreadOrder,
    Weekly,
)
from tidegate.reminders.schedule_parser import (
    DAYS,
    TEXTS_KEPT,
    parse_cron,
    parse_date,
    parse_date_and_time,
    parse_days,
    parse_every,
    parse_moment,
    parse_quiet_hours,
    parse_span,
    parse_time,
    parse_window,
    parse_zone,
)
from tidegate.row_template import Row, Template, value_of
from tidegate.templates import ParseMode

Moment = dt.datetime | dt.date | dt.timedelta | float | str  # a number counts from the Unix epoch


class ReminderOptions(TypedDict, total=False):
    """How a reminder is described, beside the fields of its message."""

    at: dt.time | dt.datetime | str  # "09:00"; with a date, it is once
    every: str  # "day", "2 days", "week", "3 weeks"
    days: str | Iterable[str | int]  # "mon,wed", "mon-fri", "weekdays", "weekend"; 0 is Monday
    cron: str  # "0 9 * * mon-fri"
    date: dt.date | str  # once: "2026-12-31"
    zone: str | zoneinfo.ZoneInfo  # "Europe/Berlin"
    spread: Spread | Span | str  # "30m"; or "08:00-10:00", instead of `at`
    spread_order: SpreadOrder
    spread_seed: int
    quiet: QuietHours | str  # "22:00-07:00"
    start: Moment  # no occurrence before
    until: Moment  # no occurrence after; of a date, not after its end
    count: int  # occurrences in all
    late: LatePolicy
    key: str
    user_id: int
    engagement: float  # 0 to 1
    expires_in: Span | str  # "2h"
    handler: str


OPTION_NAMES: Final = frozenset(ReminderOptions.__annotations__)
KINDS: Final = ("every", "days", "cron", "date")
TEMPLATE_FIELDS: Final = ("text", "caption")
RESERVED_FIELDS: Final = {
    "chat_id": "it is given for itself",
    "not_before": "the schedule says when",
    "delay": "the schedule says when",
    "expires_at": "give expires_in",
    "dedup_key": "a reminder makes its own, of each occurrence",
    "dedup_for": "a reminder makes its own dedup keys",
}
LONGEST_KEY: Final = 200  # characters
LONGEST_SPREAD: Final = 86_400.0  # seconds
LONGEST_NUMBER: Final = 20  # digits
_INT64: Final = range(-(2**63), 2**63)  # what databases can keep
MOST_OCCURRENCES: Final = 1_000_000
_SAY_WHEN: Final = 'say when: every="day", days="mon,wed", date="2026-12-31" or cron="0 9 * * mon-fri"'


def reminder_from_options(
    chat_id: object, options: Mapping[str, Any], *, bot: BotId, now: float
) -> NewReminder:
    """Return the reminder that these arguments describe. What is no option is a field of its message.

    The fields of the message are not checked here. Raises BadInputError that says what to give instead.
    """
    given = {name: value for name, value in options.items() if name in OPTION_NAMES and value is not None}
    fields = {name: value for name, value in options.items() if name not in OPTION_NAMES}
    for name in fields:
        _check_field(name)
    return _reminder(check_chat(chat_id), given, fields, bot, now)


def changed_reminder(old: NewReminder, options: Mapping[str, Any], *, now: float) -> NewReminder:
    """Return a reminder with other options or fields of its message; what is not given stays.

    None takes an option away. Raises BadInputError.
    """
    for name in {"chat_id", "user_id"} & options.keys():
        raise BadInputError(f"{name} cannot be changed: remove the reminder, and add another one")
    before = {**_options_of(old), **old.fields}
    merged = {**_without_overridden(before, options), **options}
    new = reminder_from_options(old.chat_id, merged, bot=old.bot, now=now)
    if options.keys().isdisjoint({*KINDS, "at", "zone", "spread", "start"}):
        return msgspec.structs.replace(new, schedule=old.schedule)  # every N days: counted from the same day
    return new


def _options_of(new: NewReminder) -> dict[str, Any]:
    """The options that describe a reminder."""
    same = ("zone", "spread", "quiet", "until", "count", "late", "key", "user_id", "engagement", "expires_in")
    options = {name: getattr(new, name) for name in (*same, "handler")}
    options["start"] = new.starts_at
    match new.schedule:
        case Once(at=moment):
            return options | {"at": moment.time(), "date": moment.date()}
        case Daily(at=time):
            return options | {"at": time, "every": "day"}
        case Weekly(at=time, days=days):
            return options | {"at": time, "days": days}
        case EveryDays(at=time, days=number):
            return options | {"at": time, "every": f"{number} days"}
        case Cron(expression=expression):
            return options | {"cron": expression}
    assert_never(new.schedule)


@lru_cache(TEXTS_KEPT)
def _check_field(name: str) -> None:
    """Raise BadInputError for a misspelt option, and for a field that a reminder sets itself."""
    if name in RESERVED_FIELDS:
        raise BadInputError(f"{name} is no option of a reminder: {RESERVED_FIELDS[name]}")
    if meant := difflib.get_close_matches(name, OPTION_NAMES, 1, 0.8):
        raise BadInputError(f"{name!r} is not known: {meant[0]!r} may be meant")


def reminder_from_row(row: Row, defaults: Mapping[str, Any], *, bot: BotId, now: float) -> NewReminder:
    """Return the reminder of a row of a file. What a column does not say, `defaults` do.

    The message is the column `text`, or else the template among the defaults, filled with the columns of the
    row: those that are no options are for it alone.
    """
    given = {name: value for name, value in row.items() if name in OPTION_NAMES and not _is_blank(value)}
    options = {**_without_overridden(defaults, given), **given}
    if _is_blank(row.get("text")):
        for name in TEMPLATE_FIELDS & options.keys():
            options[name] = _template(options[name], options.get("parse_mode")).render(row)
    else:
        options["text"] = value_of(row, "text")
    return reminder_from_options(value_of(row, "chat_id"), options, bot=bot, now=now)


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _without_overridden(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults, without another schedule than that of the row."""
    left = dict(defaults)
    if not given.keys().isdisjoint(KINDS) or _date_and_time(given.get("at")) is not None:
        left = {name: value for name, value in left.items() if name not in KINDS}
    if "cron" in given or _is_window(given.get("spread")):
        left.pop("at", None)
    return left


@lru_cache(TEXTS_KEPT)
def _template(text: str, parse_mode: ParseMode | None) -> Template:
    return Template(text, parse_mode)


def _reminder(
    chat_id: ChatId, given: Mapping[str, Any], fields: dict[str, Any], bot: BotId, now: float
) -> NewReminder:
    zone = _zone(given)
    starts_at = parse_moment("start", given["start"], zone, now) if "start" in given else None
    until = parse_moment("until", given["until"], zone, now, end_of_day=True) if "until" in given else None
    spread = _spread(given)
    new = NewReminder(
        bot=bot,
        chat_id=chat_id,
        user_id=parse_number("user_id", given["user_id"]) if "user_id" in given else _owner(chat_id),
        schedule=_schedule(given, zone, max(now, starts_at or now)),
        zone=zone,
        fields=fields,
        key=_text("key", given.get("key")),
        handler=_text("handler", given.get("handler")),
        spread=spread,
        engagement=_decimal("engagement", given.get("engagement", 0.0)),
        quiet=parse_quiet_hours(given["quiet"]) if "quiet" in given else None,
        starts_at=starts_at,
        until=until,
        count=parse_number("count", given["count"]) if "count" in given else None,
        late=given.get("late", "fire"),
        expires_in=parse_span("expires_in", given["expires_in"]) if "expires_in" in given else None,
    )
    return checked(new, now)


def _owner(chat_id: ChatId) -> int:
    return chat_id if isinstance(chat_id, int) else 0  # the user behind an @name is not known


def _zone(given: Mapping[str, Any]) -> str:
    zone, at = given.get("zone"), given.get("at")
    if zone is None and isinstance(at, dt.datetime) and at.tzinfo is not None:
        zone = getattr(at.tzinfo, "key", "UTC")  # an instant is the same in any zone
    if zone is None:
        raise BadInputError("zone is missing: give the time zone of the user, such as Europe/Berlin")
    return parse_zone(zone)


def _schedule(given: Mapping[str, Any], zone: str, since: float) -> Schedule:
    moment = _date_and_time(given.get("at"))
    if moment is not None:
        _refuse_beside("at with a date", given, KINDS)
        return Once(_local(moment, zone))
    if "cron" in given:
        _refuse_beside("cron", given, ("at", "every", "days", "date"))
        return Cron(parse_cron(given["cron"]))
    time = _time_of_day(given)
    if "date" in given:
        _refuse_beside("date", given, ("every", "days"))
        return Once(dt.datetime.combine(parse_date(given["date"]), time))
    if "days" in given:
        if "every" in given and parse_every(given["every"]) != len(DAYS):
            raise BadInputError("days and every are both given: leave out every, or write week")
        return Weekly(time, parse_days(given["days"]))
    if "every" not in given:
        raise BadInputError(_SAY_WHEN)
    return _every(time, parse_every(given["every"]), zone, since)


def _date_and_time(at: object) -> dt.datetime | None:
    if isinstance(at, str):
        return parse_date_and_time(at)
    return at if isinstance(at, dt.datetime) else None


def _refuse_beside(one: str, given: Mapping[str, Any], others: Iterable[str]) -> None:
    for other in others:
        if other in given:
            raise BadInputError(f"{one} and {other} are both given: give one of them")


def _local(moment: dt.datetime, zone: str) -> dt.datetime:
    """The time that the clocks of the zone show then; a time without an offset is meant in the zone."""
    if moment.utcoffset() is not None:
        moment = moment.astimezone(time_zone(zone))
    return moment.replace(tzinfo=None, microsecond=0, fold=0)


def _time_of_day(given: Mapping[str, Any]) -> dt.time:
    if not _is_window(given.get("spread")):
        if "at" not in given:
            raise BadInputError("at is missing: write the time of day, such as 09:00")
        return parse_time(given["at"])
    window = parse_window(given["spread"])
    if "at" in given and parse_time(given["at"]) != window.start:
        raise BadInputError(f"at is not the start of the window {given['spread']}: leave it out")
    return window.start


def _every(at: dt.time, days: int, zone: str, since: float) -> Schedule:
    """The first one is the next time that it is `at`, not so many days later."""
    first = None if days == 1 else next_occurrence(Daily(at), zone, math.nextafter(since, -math.inf))
    if first is None:
        return Daily(at)
    return EveryDays(at, days, dt.datetime.fromtimestamp(first, time_zone(zone)).date())


def _is_window(spread: object) -> bool:
    return isinstance(spread, str) and ":" in spread


def _spread(given: Mapping[str, Any]) -> Spread | None:
    spread = given.get("spread")
    if isinstance(spread, Spread):
        return spread
    if spread is None:
        if "spread_order" in given:
            raise BadInputError("spread_order needs a window: give spread, such as 30m or 08:00-10:00")
        return None
    seconds = parse_window(spread).seconds if _is_window(spread) else parse_span("spread", spread)
    return Spread(
        seconds, given.get("spread_order", "stable"), parse_number("spread_seed", given.get("spread_seed", 0))
    )


def parse_number(name: str, given: object) -> int:
    try:
        if isinstance(given, str) and len(given) < LONGEST_NUMBER:
            given = int(given)
    except ValueError:
        pass
    if isinstance(given, bool) or not isinstance(given, int) or given not in _INT64:
        raise BadInputError(f"{name} {reprlib.repr(given)} is not a whole number: write it in digits")
    return given


def _decimal(name: str, given: object) -> float:
    try:
        if isinstance(given, str | int | float) and not isinstance(given, bool):
            return float(given)
    except (ValueError, OverflowError):
        pass
    raise BadInputError(f"{name} {reprlib.repr(given)} is not a number: write it as 0.75")


def _text(name: str, given: object) -> str | None:
    if given is None:
        return None
    text = str(given).strip() if isinstance(given, str | int) and not isinstance(given, bool) else ""
    if not text or len(text) > LONGEST_KEY or not text.isprintable():
        raise BadInputError(
            f"{name} {reprlib.repr(given)} is not possible: give a text of at most {LONGEST_KEY} characters"
        )
    return text


def checked(new: NewReminder, now: float) -> NewReminder:
    """Return it if it can be stored and will fire. Raises BadInputError that says why not."""
    parse_zone(new.zone)
    _check_schedule(new.schedule)
    if new.late not in get_args(LatePolicy):
        raise BadInputError(f"late {reprlib.repr(new.late)} is not known: choose fire, skip or merge")
    if new.spread is not None:
        _check_spread(new.spread)
    if new.quiet is not None and new.quiet.start == new.quiet.end:
        raise BadInputError("quiet hours end when they begin: write two times, such as 22:00-07:00")
    if new.count is not None and not 1 <= new.count <= MOST_OCCURRENCES:
        raise BadInputError(f"count is {new.count}: give 1 to {MOST_OCCURRENCES:,}, or leave it out")
    if not 0 <= new.engagement <= 1:
        raise BadInputError(f"engagement is {new.engagement:g}: give 0 to 1, 1 for the most engaged user")
    if first_state(new, 0, now).has_ended:
        raise BadInputError(f"the reminder would never fire: {_why_never(new)}")
    return new


def _check_schedule(schedule: Schedule) -> None:
    match schedule:
        case Cron(expression=expression):
            parse_cron(expression)
        case Weekly(days=days):
            parse_days(days)
        case EveryDays(days=days) if days < 1:
            raise BadInputError(f"every {days} days is not possible: give 1 or more")
        case Once() | Daily() | EveryDays():
            pass
        case _:
            assert_never(schedule)


def _check_spread(spread: Spread) -> None:
    if spread.order not in SPREAD_ORDERS:
        names = ", ".join(SPREAD_ORDERS)
        raise BadInputError(f"spread_order {reprlib.repr(spread.order)} is not known: choose one of {names}")
    if not 0 < spread.seconds <= LONGEST_SPREAD:
        raise BadInputError(f"spread is {spread.seconds:g} seconds: give more than 0, and at most a day")


def _why_never(new: NewReminder) -> str:
    if isinstance(new.schedule, Once):
        return f"{new.schedule.at:%Y-%m-%d %H:%M} in {new.zone} is past, or outside of start and until"
    if new.until is not None:
        return "until is before its first occurrence"
    return "its schedule names no time"
