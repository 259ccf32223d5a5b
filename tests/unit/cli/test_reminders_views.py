"""How the command line shows reminders, and which one a word means."""

import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console, RenderableType

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.cli.reminders.control import find_reminders
from tidegate.cli.reminders.view import (
    reminder_details,
    reminder_table,
    upcoming_table,
)
from tidegate.errors import BadInputError
from tidegate.model import BotId
from tidegate.ops.reports import local_time, reminder_json
from tidegate.reminders.firing import first_state, pause
from tidegate.reminders.reminder import Cron, Daily, NewReminder, Reminder, Spread
from tidegate.reminders.reminder_options import reminder_from_options
from tidegate.reminders.schedule_words import schedule_words
from tidegate.sim.virtual_time import VirtualClock

NOW = dt.datetime(2026, 3, 2, 12, tzinfo=dt.UTC).timestamp()
ESCAPE = "\x1b[31m"


def reminder(number: int = 1, **options: Any) -> Reminder:  # noqa: ANN401
    given = {"text": "Drink!", "at": "09:00", "zone": "Europe/Berlin"} | options
    if given.keys().isdisjoint({"every", "days", "cron", "date"}):
        given["every"] = "day"
    if "cron" in given:
        del given["at"]
    new = reminder_from_options(given.pop("chat_id", 1001), given, bot=BotId(42), now=NOW)
    return first_state(new, number, NOW)


def drawn(picture: RenderableType) -> str:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(picture)
    return capture.get()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "every day at 09:00"),
        ({"at": "09:00:30"}, "every day at 09:00:30"),
        ({"every": "3 days"}, "every 3 days at 09:00"),
        ({"days": "mon-fri"}, "mon-fri at 09:00"),
        ({"days": "mon,wed,sun"}, "mon,wed,sun at 09:00"),
        ({"days": "sat,sun"}, "sat,sun at 09:00"),
        ({"cron": "0 9 * * mon"}, "cron 0 9 * * mon"),
        ({"date": "2026-12-31"}, "once, 2026-12-31 09:00"),
    ],
)
def test_a_schedule_in_words(options: dict[str, Any], words: str) -> None:
    assert schedule_words(reminder(**options)) == words


def test_times_are_those_of_the_users_clocks() -> None:
    assert local_time(NOW, "Asia/Tokyo") == "2026-03-02 21:00"
    assert local_time(NOW, "Mars/Olympus") == "2026-03-02 12:00 UTC"


def test_the_list_shows_what_is_due_when_and_what_is_not() -> None:
    paused = pause(reminder(2, key="water"), NOW).reminder
    ended = first_state(reminder(3, date="2026-03-03"), 3, NOW + 86_400)
    one = reminder(1, text="first line\nsecond line " + ESCAPE, key="file:0123456789abcdef")

    lines = drawn(reminder_table([one, paused, ended], NOW)).splitlines()

    assert max(map(len, lines)) <= 80
    shown = "\n".join(" ".join(line.split()) for line in lines)
    assert "1 1001 every day at 09:00 Europe/Berlin in 20 h first" in shown
    assert "2 1001 water every day at 09:00 Europe/Berlin paused Drink!" in shown
    assert "3 1001 once, 2026-03-03 09:00 Europe/Berlin ended Drink!" in shown
    assert "\x1b" not in shown


def test_of_several_bots_each_is_named() -> None:
    one, other = reminder(1), reminder(2)
    assert " bot " not in drawn(reminder_table([one], NOW))
    several = drawn(upcoming_table([one, type(other)(**_fields(other) | {"bot": BotId(43)})], NOW))
    assert " bot " in several
    assert "2026-03-03 09:00" in several


def _fields(one: Reminder) -> dict[str, Any]:
    return {name: getattr(one, name) for name in Reminder.__struct_fields__}


def test_everything_known_of_a_reminder_is_shown() -> None:
    one = reminder(
        7,
        spread="30m",
        quiet="22:00-07:00",
        until="2026-12-31",
        start="2026-03-10",
        count=5,
        expires_in="2h",
        user_id=5,
        disable_notification=True,
    )

    shown = " ".join(drawn(reminder_details(one, NOW)).split())

    for part in (
        "id 7",
        "user 5",
        "next 2026-03-10",
        "spread over 30 min, stable",
        "quiet 22:00-07:00",
        "not before 2026-03-10 00:00",
        "until 2026-12-31 23:59",
        "count 5",
        "expires in 7200 s",
        "0 fired, 0 skipped, 0 merged",
        "text: Drink!",
        "disable_notification: True",
    ):
        assert part in shown
    known = reminder_json(one)
    assert (known["state"], known["next_local"][:10]) == ("active", "2026-03-10")
    assert known["schedule"] == {"type": "daily", "at": "09:00:00"}
    assert known["quiet"] == {"start": "22:00:00", "end": "07:00:00"}
    assert known["fields"] == {"text": "Drink!", "disable_notification": True}


def test_one_with_a_handler_names_it() -> None:
    assert "handler report" in drawn(reminder_table([reminder(handler="report", text=None)], NOW))


@pytest.fixture
async def gate(clock: VirtualClock) -> AsyncIterator[Tidegate]:
    gate = Tidegate("memory://", clock=clock)
    gate.add_bot(TOKEN)
    async with gate:
        yield gate


async def test_a_number_is_an_id_and_all_else_a_key(gate: Tidegate) -> None:
    for key in ("water", "1", "key:1"):
        await gate.reminders.add(1001, text=key, at="09:00", every="day", zone="UTC", key=key)

    async def found(*which: str) -> list[str | None]:
        return [one.key for one in await find_reminders(gate, which, None)]

    assert await found("1") == ["water"]
    assert await found("water", "2", "1") == ["water", "1"]  # each once
    assert await found("key:1") == ["1"]
    assert await found("key:key:1") == ["key:1"]
    assert [one.key for one in await find_reminders(gate, ["water"], 42)] == ["water"]
    with pytest.raises(BadInputError, match="there is no reminder water"):
        await find_reminders(gate, ["water"], 43)  # of another bot
    for empty in ("", "key:"):
        with pytest.raises(BadInputError, match="the id or key of a reminder is empty"):
            await found("water", empty)
    for unknown in ("4", "9" * 30, "milk"):
        with pytest.raises(BadInputError, match=f"there is no reminder {unknown}"):
            await found("water", unknown)


def test_a_spread_is_shown_as_a_window() -> None:
    new = NewReminder(
        bot=BotId(42),
        chat_id=1,
        user_id=1,
        schedule=Daily(dt.time(8)),
        zone="UTC",
        fields={"text": "Hi"},
        spread=Spread(7_200.0),
    )
    assert schedule_words(new) == "every day at 08:00-10:00"
    assert schedule_words(replace(new, schedule=Cron("0 9 * * *"))) == "cron 0 9 * * *, over 120 min"
    assert schedule_words(replace(new, spread=None)) == "every day at 08:00"
