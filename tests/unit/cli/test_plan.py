"""`tidegate plan`, as people call it."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tidegate.cli import main
from tidegate.cli.plan import clock_text


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["plan", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    ended = main(["plan", *arguments])
    output = capsys.readouterr()
    assert (ended, output.out) == (2, ""), output.err
    (line,) = output.err.splitlines()
    return line


def test_ten_thousand_at_nine_leave_within_seven_minutes(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, "--users", "10000", "--at", "09:00", "--rate", "25/1")
    assert (found["reminders"], found["rate"], found["first_due_at"]) == (10_000, "25/1", "09:00")
    assert found["last_leaves_at"] == "09:06"
    assert 410 < found["seconds"] <= 420
    assert found["max_ms"] == pytest.approx(found["seconds"] * 1_000, abs=100)
    assert found["advice"]["pool_size"] == 15


def test_a_hundred_thousand_take_an_hour_and_the_report_says_what_to_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = planned(capsys, "--users", "100000", "--rate", "30/1")
    assert found["last_leaves_at"] == "09:58"
    assert [change["change"] for change in found["changes"]] == ["window", "engagement", "paid", "second_bot"]
    assert found["changes"][2]["stars"] == pytest.approx(9_685, abs=10)
    minutes = found["minutes"]
    assert sum(minute["leave"] for minute in minutes) == 100_000
    assert (minutes[0]["at"], minutes[0]["due"], minutes[-1]["waiting"]) == ("09:00", 100_000, 0)


def test_a_window_is_planned_instead_of_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, "--users", "100000", "--at", "09:00", "--rate", "30/1", "--window", "08:00-10:00")
    assert (found["first_due_at"], found["last_leaves_at"]) == ("08:00", "09:59")
    assert found["max_ms"] < 1_000
    assert found["changes"] == []


def test_a_longer_round_trip_takes_longer(capsys: pytest.CaptureFixture[str]) -> None:
    near = planned(capsys, "--users", "3000", "--rate", "30/1", "--round-trip", "0")
    far = planned(capsys, "--users", "3000", "--rate", "30/1", "--round-trip", "200ms")
    assert far["seconds"] / near["seconds"] == pytest.approx(1.2, abs=0.01)


def test_the_rate_is_that_of_the_settings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_BOT_RATE", "20/1")
    assert planned(capsys, "--users", "100")["rate"] == "20/1"


def test_a_person_gets_the_curve_the_end_and_the_advice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--users", "100000", "--rate", "30/1"]) == 0
    shown = capsys.readouterr().out
    assert "The last one leaves at 09:58, 58 min after the first was due." in shown
    assert "09:56" in shown
    assert "█" in shown
    assert "about 9,685 Stars" in shown
    assert "spread=09:00-10:30" in shown
    assert "DB_POOL_SIZE=20, DB_MAX_OVERFLOW=30" in shown
    assert "Not yet: payments as a service of their own" in shown


def test_few_need_to_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--users", "500", "--rate", "30/1"]) == 0
    assert "nothing needs to change" in capsys.readouterr().out


def test_the_curve_is_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "plan.svg"
    planned(capsys, "--users", "5000", "--rate", "30/1", "--svg", str(file))
    picture = ET.parse(file).getroot()  # noqa: S314  (our own)
    texts = [element.text or "" for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "5,000 reminders at 30/1: the last leaves at 09:02" in texts
    assert "is a folder: give the name of a file" in complaint(capsys, "--users", "5", "--svg", str(tmp_path))


def test_a_file_is_planned_for_a_day_in_each_users_own_zone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "reminders.csv"
    lines = [
        f"{number},09:00,{'Asia/Tokyo' if number % 2 else 'Europe/Berlin'},day" for number in range(1, 101)
    ]
    file.write_text("\n".join(["chat_id,at,zone,every", *lines]))
    found = planned(capsys, "--schedule", str(file), "--zone", "Asia/Tokyo", "--rate", "30/1")
    assert (found["users"], found["reminders"]) == (100, 100)
    assert found["first_due_at"] == "09:00"
    assert found["last_due_at"] in {"16:00", "17:00"}  # in summer and in winter
    rows = tmp_path / "reminders.jsonl"
    rows.write_text('{"chat_id": 1, "cron": "0 */6 * * *"}\n{"chat_id": 2}\n')
    found = planned(capsys, "--schedule", str(rows), "--at", "10:30")
    assert (found["users"], found["reminders"], found["last_leaves_at"]) == (2, 5, "18:00")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "how many reminders? Give --users 10000"),
        (("--users", "0"), "--users 0: give 1 to 1,000,000"),
        (("--users", "2000000"), "--users 2,000,000: give 1 to 1,000,000"),
        (("--users", "many"), "--users: write a whole number"),
        (("--users", "5", "--at", "25:00"), "'25:00' is not a time of day: write HH:MM, such as 09:00"),
        (("--users", "5", "--rate", "fast"), "'fast' is not a limit: write calls/seconds"),
        (("--users", "5", "--window", "10:00"), "'10:00' is not a range of times"),
        (("--users", "5", "--round-trip", "1s"), "--round-trip: '1s' is not a number of milliseconds"),
        (("--users", "5", "--schedule", "x.csv"), "--schedule says who and when"),
        (("--schedule", "x.csv", "--zone", "Berlin"), "Europe/Berlin may be meant"),
        (("--schedule", "missing.csv"), "cannot read missing.csv"),
    ],
)
def test_bad_arguments_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    assert text in complaint(capsys, *arguments)


def test_a_bad_row_is_named_by_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "reminders.csv"
    file.write_text("chat_id,at\n1,09:00\n2,25:00\n,10:00\n")
    line = complaint(capsys, "--schedule", str(file))
    assert "reminders.csv, line 3: '25:00' is not a time of day" in line
    assert "(bad lines: 2)" in line
    file.write_text("chat_id,at,date\n1,09:00,2099-01-01\n")
    assert "has no reminder that is due tomorrow in UTC" in complaint(capsys, "--schedule", str(file))


def test_times_after_midnight_begin_anew() -> None:
    assert clock_text(9 * 3_600 + 59) == "09:00"
    assert clock_text(25 * 3_600 + 61) == "01:01"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["plan", *arguments]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_advice_by_size_does_not_contradict_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    late = said(capsys, "--users", "100000", "--at", "21:00")
    assert "spread=21:00-22:30" in late
    assert "08:00-10:00" not in late
    spread = said(capsys, "--users", "100000", "--window", "08:00-10:00")
    assert "nothing needs to change" in spread
    assert "spread=" not in spread
    slow = said(capsys, "--users", "5000", "--rate", "1/1")
    assert "TIDEGATE_BOT_RATE" not in slow
    assert "100,000 29.2 h more than a day" in slow


def test_a_plan_over_several_days_names_the_day(capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "--users", "20000", "--rate", "1/5")
    assert "The last one leaves at 13:03 +1 d, 28.1 h after" in found


def test_a_zone_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--users", "10", "--zone", "Berln"]) != 0
    assert "'Berln' is not a time zone" in capsys.readouterr().err


def test_waits_below_a_second_are_not_called_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Nobody waits for a second." in said(capsys, "--users", "10")


def test_a_chart_is_not_written_under_the_name_of_another_kind(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["plan", "--users", "10", "--svg", str(tmp_path / "out.png")]) != 0
    assert "ends with .svg" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
