import contextlib
import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidegate.errors import BadInputError
from tidegate.model import BotId
from tidegate.reminders.reminder import (
    Cron,
    Daily,
    EveryDays,
    NewReminder,
    Once,
    QuietHours,
    Schedule,
    Spread,
    Weekly,
)
from tidegate.reminders.reminder_options import (
    OPTION_NAMES,
    changed_reminder,
    checked,
    reminder_from_options,
    reminder_from_row,
)

NOW = dt.datetime(2026, 3, 2, 12, tzinfo=dt.UTC).timestamp()  # a Monday; 13:00 in Berlin
NINE = dt.time(9)


def from_options(chat_id: object = 5, **options: Any) -> NewReminder:  # noqa: ANN401
    return reminder_from_options(
        chat_id, {"text": "hi", "zone": "Europe/Berlin"} | options, bot=BotId(1), now=NOW
    )


def from_row(row: dict[str, Any], **defaults: Any) -> NewReminder:  # noqa: ANN401
    return reminder_from_row(row, {"zone": "Europe/Berlin"} | defaults, bot=BotId(1), now=NOW)


@pytest.mark.parametrize(
    ("options", "schedule"),
    [
        ({"at": "09:00", "every": "day"}, Daily(NINE)),
        ({"at": NINE, "days": "mon,wed"}, Weekly(NINE, frozenset({0, 2}))),
        ({"at": "09:00", "every": "week", "days": "weekdays"}, Weekly(NINE, frozenset(range(5)))),
        ({"at": "09:00", "every": "2 days"}, EveryDays(NINE, 2, dt.date(2026, 3, 3))),  # today it is past
        ({"at": "18:00", "every": "2 days"}, EveryDays(dt.time(18), 2, dt.date(2026, 3, 2))),
        ({"at": "09:00", "every": "week"}, EveryDays(NINE, 7, dt.date(2026, 3, 3))),
        ({"at": "09:00", "every": "3 days", "start": "2026-05-01"}, EveryDays(NINE, 3, dt.date(2026, 5, 1))),
        ({"cron": "0 9 * * mon-fri"}, Cron("0 9 * * mon-fri")),
        ({"at": "09:00", "date": "2026-12-31"}, Once(dt.datetime.fromisoformat("2026-12-31T09:00"))),
        ({"at": "2026-12-31 09:00"}, Once(dt.datetime.fromisoformat("2026-12-31T09:00"))),
        ({"at": "2026-12-31T09:00Z"}, Once(dt.datetime.fromisoformat("2026-12-31T10:00"))),
        (
            {"at": dt.datetime(2026, 12, 31, 9, tzinfo=ZoneInfo("Asia/Tokyo"))},
            Once(dt.datetime.fromisoformat("2026-12-31T01:00")),
        ),
        ({"every": "day", "spread": "08:00-10:00"}, Daily(dt.time(8))),
    ],
)
def test_a_schedule_is_what_the_options_say(options: dict[str, Any], schedule: Schedule) -> None:
    assert from_options(**options).schedule == schedule


def test_every_option_finds_its_place() -> None:
    reminder = from_options(
        -1001,
        at="09:00",
        every="day",
        spread="30m",
        spread_order="random",
        spread_seed=7,
        quiet="22:00-07:00",
        start="2026-04-01",
        until="2026-12-31",
        count=10,
        late="merge",
        key="water",
        user_id=77,
        engagement=0.5,
        expires_in="2h",
        handler="ask",
        parse_mode="HTML",
    )
    assert reminder == NewReminder(
        bot=BotId(1),
        chat_id=-1001,
        user_id=77,
        schedule=Daily(NINE),
        zone="Europe/Berlin",
        fields={"text": "hi", "parse_mode": "HTML"},
        key="water",
        handler="ask",
        spread=Spread(1_800, "random", 7),
        engagement=0.5,
        quiet=QuietHours(dt.time(22), dt.time(7)),
        starts_at=dt.datetime.fromisoformat("2026-04-01T00:00+02:00").timestamp(),
        until=dt.datetime.fromisoformat("2026-12-31T23:59:59+01:00").timestamp(),
        count=10,
        late="merge",
        expires_in=7_200.0,
    )


def test_the_owner_is_the_chat_unless_it_is_named() -> None:
    assert from_options(at="09:00", every="day").user_id == 5
    assert from_options("@channel", at="09:00", every="day").user_id == 0


def test_the_zone_of_a_python_time_is_enough() -> None:
    at = dt.datetime(2026, 12, 31, 9, tzinfo=ZoneInfo("Asia/Tokyo"))
    assert reminder_from_options(5, {"at": at, "text": "hi"}, bot=BotId(1), now=NOW).zone == "Asia/Tokyo"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"at": "09:00"}, 'say when: every="day"'),
        ({"every": "day"}, "at is missing: write the time of day"),
        ({"at": "25:00", "every": "day"}, "'25:00' is not a time of day: write HH:MM, such as 09:00"),
        ({"at": "09:00", "every": "day", "zone": "Mars/Phobos"}, "'Mars/Phobos' is not a time zone"),
        ({"at": "09:00", "every": "day", "zone": None}, "zone is missing: give the time zone of the user"),
        ({"at": "09:00", "cron": "0 9 * * *"}, "cron and at are both given: give one"),
        ({"at": "09:00", "every": "2 days", "days": "mon"}, "days and every are both given"),
        ({"at": "09:00", "every": "day", "date": "2026-12-31"}, "date and every are both given"),
        ({"at": "2026-12-31 09:00", "every": "day"}, "at with a date and every are both given"),
        ({"at": "2026-03-02 09:00"}, "would never fire: 2026-03-02 09:00 in Europe/Berlin is past"),
        ({"at": "09:00", "every": "day", "until": "2026-03-01"}, "would never fire: until is before"),
        ({"at": "09:00", "every": "day", "spread": "08:00-10:00"}, "at is not the start of the window"),
        ({"at": "09:00", "every": "day", "spread": "2d"}, "spread is 172800 seconds: give"),
        (
            {"at": "09:00", "every": "day", "spread": "1h", "spread_order": "x"},
            "choose one of stable, random",
        ),
        ({"at": "09:00", "every": "day", "spread_order": "random"}, "spread_order needs a window"),
        ({"at": "09:00", "every": "day", "quiet": "22:00"}, "is not a range of times"),
        ({"at": "09:00", "every": "day", "count": 0}, "count is 0: give 1"),
        ({"at": "09:00", "every": "day", "count": "many"}, "count 'many' is not a whole number"),
        ({"at": "09:00", "every": "day", "late": "never"}, "late 'never' is not known: choose fire, skip"),
        ({"at": "09:00", "every": "day", "engagement": 1.5}, "engagement is 1.5: give 0 to 1"),
        ({"at": "09:00", "every": "day", "engagement": "nan"}, "engagement is nan: give 0 to 1"),
        ({"at": "09:00", "every": "day", "engagement": "high"}, "engagement 'high' is not a number"),
        ({"at": "09:00", "every": "day", "key": "x" * 201}, "give a text of at most 200 characters"),
        ({"at": "09:00", "every": "day", "user_id": 2**70}, "is not a whole number"),
        ({"at": "09:00", "every": "day", "not_before": 5}, "not_before is no option of a reminder"),
        ({"at": "09:00", "evry": "day"}, "'evry' is not known: 'every' may be meant"),
        ({"at": "09:00", "every": "day", "timezone": "x", "zone": None}, "zone is missing"),
        ({"at": "09:00", "every": "day", "start": "soon"}, "start: 'soon' is not a time"),
        ({"cron": "0 9 31 2 *"}, "is not a cron expression: the day-of-month cannot be '31'"),
    ],
)
def test_bad_options_are_refused_with_words(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadInputError) as caught:
        from_options(**options)
    assert text in str(caught.value)


def test_a_row_of_texts_is_read_and_a_blank_column_is_none() -> None:
    row = {"chat_id": " 42 ", "text": "Drink!", "at": "9:00", "days": "mon-fri", "cron": "", "count": "3"}
    reminder = from_row(row | {"engagement": "0.9", "user_id": "", "zone": "  "})
    assert (reminder.chat_id, reminder.user_id, reminder.zone) == (42, 42, "Europe/Berlin")
    assert reminder.schedule == Weekly(NINE, frozenset(range(5)))
    assert (reminder.count, reminder.engagement) == (3, 0.9)
    assert reminder.fields == {"text": "Drink!"}


def test_columns_fill_the_template_unless_a_row_has_a_text_of_its_own() -> None:
    shared = {"text": "Hello {name}, {habit}!", "parse_mode": "HTML", "at": "09:00", "every": "day"}
    row = {"chat_id": 42, "name": "<Bob>", "habit": "run"}
    assert from_row(row, **shared).fields == {"text": "Hello &lt;Bob&gt;, run!", "parse_mode": "HTML"}
    assert from_row(row | {"text": "{plain}"}, **shared).fields["text"] == "{plain}"
    with pytest.raises(BadInputError, match="there is no field 'habit'"):
        from_row({"chat_id": 42, "name": "Bob"}, **shared)


def test_a_time_with_a_date_replaces_the_schedule_of_the_defaults() -> None:
    new = from_row({"chat_id": "5", "text": "hi", "at": "2026-12-31 09:00"}, at="08:00", every="day")
    assert new.schedule == Once(dt.datetime.fromisoformat("2026-12-31T09:00"))


@pytest.mark.parametrize(
    ("options", "schedule"),
    [
        ({"at": "10:00"}, Once(dt.datetime.fromisoformat("2026-12-31T10:00"))),
        ({"date": "2027-01-01"}, Once(dt.datetime.fromisoformat("2027-01-01T09:00"))),
        ({"at": "2027-01-01 10:00"}, Once(dt.datetime.fromisoformat("2027-01-01T10:00"))),
        ({"every": "day"}, Daily(NINE)),
        ({"days": "mon"}, Weekly(NINE, frozenset({0}))),
        ({"cron": "0 9 * * *"}, Cron("0 9 * * *")),
    ],
)
def test_one_that_fires_once_keeps_what_is_not_changed(options: dict[str, Any], schedule: Schedule) -> None:
    old = from_options(at="2026-12-31 09:00")
    assert changed_reminder(old, options, now=NOW).schedule == schedule


def test_one_that_is_daily_may_become_once() -> None:
    old = from_options(at="09:00", every="day")
    changed = changed_reminder(old, {"at": "2026-12-31 10:00"}, now=NOW)
    assert changed.schedule == Once(dt.datetime.fromisoformat("2026-12-31T10:00"))


def test_the_schedule_of_a_row_replaces_that_of_the_defaults() -> None:
    shared = {"text": "x", "at": "09:00", "every": "day", "spread": "10m", "quiet": "22:00-07:00"}
    assert from_row({"chat_id": 1, "cron": "0 9 * * *"}, **shared).schedule == Cron("0 9 * * *")
    assert from_row({"chat_id": 1, "days": "sat"}, **shared).schedule == Weekly(NINE, frozenset({5}))
    assert from_row({"chat_id": 1, "at": "10:00"}, **shared).schedule == Daily(dt.time(10))
    window = from_row({"chat_id": 1, "spread": "08:00-10:00"}, **shared)
    assert (window.schedule, window.spread) == (Daily(dt.time(8)), Spread(7_200))


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"text": "x"}, "there is no field 'chat_id'"),
        ({"chat_id": "", "text": "x"}, "chat_id is empty"),
        ({"chat_id": "zero", "text": "x"}, "chat_id 'zero' is no chat"),
        ({"chat_id": 1, "text": "x", "zone": "Europe/Berlim"}, "Europe/Berlin may be meant"),
        ({"chat_id": 1, "text": "x", "at": "25:00"}, "'25:00' is not a time of day"),
        ({"chat_id": 1, "text": "x", "cron": "every day"}, "is not a cron expression: it has 2 fields"),
        ({"chat_id": 1, "text": ["x"]}, "text is neither text nor a number"),
    ],
)
def test_a_bad_row_says_what_is_wrong(row: dict[str, Any], text: str) -> None:
    with pytest.raises(BadInputError) as caught:
        from_row(row, at="09:00", every="day")
    assert text in str(caught.value)


values = st.one_of(
    st.text(max_size=8),
    st.integers(),
    st.floats(),
    st.none(),
    st.booleans(),
    st.just([]),
    st.just({}),
    st.sampled_from(
        ["09:00", "day", "mon", "0 9 * * *", "2026-12-31", "Europe/Berlin", "30m", "08:00-10:00"]
    ),
)


@given(st.dictionaries(st.sampled_from(sorted(OPTION_NAMES | {"chat_id", "text", "name"})), values))
def test_any_row_becomes_a_reminder_that_will_fire_or_is_refused_with_words(row: dict[str, Any]) -> None:
    with contextlib.suppress(BadInputError):
        reminder = from_row({"chat_id": 1, "text": "x"} | row, at="09:00", every="day")
        assert checked(reminder, NOW) is reminder


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"schedule": Weekly(NINE, frozenset())}, "is not a day of the week"),
        ({"schedule": Weekly(NINE, frozenset({9}))}, "is not a day of the week"),
        ({"schedule": EveryDays(NINE, 0, dt.date(2026, 1, 1))}, "every 0 days is not possible"),
        ({"schedule": Cron("x")}, "is not a cron expression"),
        ({"quiet": QuietHours(NINE, NINE)}, "quiet hours end when they begin"),
        ({"spread": Spread(0)}, "spread is 0 seconds"),
        ({"zone": "Moon"}, "is not a time zone"),
    ],
)
def test_values_that_a_program_makes_are_checked_too(wrong: dict[str, Any], text: str) -> None:
    good = from_options(at="09:00", every="day")
    assert checked(good, NOW) == good
    with pytest.raises(BadInputError) as caught:
        checked(replace(good, **wrong), NOW)
    assert text in str(caught.value)
