"""A day of the habit bot: the same seed gives the same report, and what does not arrive is noticed."""

import json
import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from tidegate.delivery.transport import ApiAnswer, NoAnswer
from tidegate.errors import BadInputError
from tidegate.sim.faults import Faults
from tidegate.sim.habits import HabitReport, HabitScenario, simulate_habits
from tidegate.sim.habits.scenario import ZONES
from tidegate.sim.habits.users import HabitUsers
from tidegate.sim.telegram.telegram import TelegramWire

SMALL = HabitScenario(users=300, hours=9, seed=7)  # until after 09:00 in Moscow, and east of it
SMALLER = msgspec.structs.replace(SMALL, users=60)


def without_seconds(report: HabitReport) -> HabitReport:
    return msgspec.structs.replace(report, seconds=0.0)


@pytest.fixture(scope="module")
def report() -> HabitReport:
    return simulate_habits(SMALL)


def test_everybody_is_reminded_and_answered(report: HabitReport) -> None:
    assert report.passed
    assert report.reminders > 100
    assert report.pressed > 10
    assert (report.lost, report.doubled, report.refused, report.waiting) == (0, 0, 0, 0)
    assert report.accepted == report.delivered == report.reminders + report.pressed
    assert report.messages == sum(report.per_hour) == report.delivered + report.asked
    assert 5 < report.p50_ms < report.p99_ms < 1_000


def test_hours_in_which_nothing_came_are_listed_too() -> None:
    quiet = simulate_habits(HabitScenario(users=2, hours=6, seed=7))
    assert len(quiet.per_hour) == 6
    assert quiet.per_hour[-1] == 0


def test_a_run_in_which_no_request_arrived_shows_nothing() -> None:
    report = simulate_habits(HabitScenario(users=2, hours=0.5, faults=Faults(lost_request=1.0)))
    assert report.requests == 0
    assert report.flaws == ("nothing_sent",)
    assert not report.passed


def test_a_run_in_which_nothing_was_delivered_does_not_pass() -> None:
    report = simulate_habits(HabitScenario(users=5, hours=9, faults=Faults(silent=1.0)))
    assert (report.accepted > 0, report.delivered) == (True, 0)
    assert "nothing_sent" in report.flaws


def test_the_same_seed_gives_the_same_report_and_another_one_differs(report: HabitReport) -> None:
    assert without_seconds(simulate_habits(SMALL)) == without_seconds(report)
    other = simulate_habits(msgspec.structs.replace(SMALL, seed=8))
    assert other.passed
    assert other.per_hour != report.per_hour


def test_a_run_with_faults_is_the_same_in_another_process() -> None:
    """Retries have jitter, and sets another order in each process."""
    code = (
        "from tidegate.sim.faults import Faults\n"
        "from tidegate.sim.habits import HabitScenario, simulate_habits\n"
        "import json\n"
        "scenario = HabitScenario(users=60, hours=9, seed=3, faults=Faults.parse('many'))\n"
        "print(json.dumps(simulate_habits(scenario).as_dict()))\n"
    )

    def run(hash_seed: str) -> dict[str, Any]:
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, check=True)  # noqa: S603
        found: dict[str, Any] = json.loads(done.stdout)
        return found | {"seconds": 0.0}

    first = run("1")
    assert first == run("2")
    assert first["passed"]
    assert first["faults"] == dict.fromkeys(
        ("server_error", "lost_request", "lost_answer", "silent", "malformed"), 0.01
    )


def test_a_message_that_is_lost_on_its_way_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Telegram says that it has it, and nobody gets it: the users know what they should have got."""
    call, calls = TelegramWire.call, 0

    async def forgetful(
        wire: TelegramWire,
        token: str,
        method: str,
        *args: Any,  # noqa: ANN401
        **options: Any,  # noqa: ANN401
    ) -> ApiAnswer | NoAnswer:
        nonlocal calls
        calls += method == "sendMessage"
        if method == "sendMessage" and calls == 20:
            return ApiAnswer(200, {"ok": True, "result": {"message_id": 1}})
        return await call(wire, token, method, *args, **options)

    monkeypatch.setattr(TelegramWire, "call", forgetful)
    report = simulate_habits(SMALLER)

    assert report.lost == 1
    assert report.flaws == ("lost",)


def test_a_reminder_that_comes_twice_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    hear, heard = HabitUsers._hear, 0  # noqa: SLF001

    def hear_again(users: HabitUsers, message: dict[str, Any]) -> None:
        nonlocal heard
        heard += 1
        hear(users, message)
        if heard == 20:
            hear(users, message)

    monkeypatch.setattr(HabitUsers, "_hear", hear_again)
    report = simulate_habits(SMALLER)

    assert report.flaws == ("doubled",)


def test_a_run_that_is_stopped_has_not_passed() -> None:
    report = simulate_habits(SMALLER, lambda _added, played: played < 3600)
    assert (report.interrupted, report.passed) == (True, False)
    assert report.virtual_seconds == pytest.approx(3600)
    assert simulate_habits(SMALLER, lambda added, _played: added == 0).reminders == 0


def test_users_who_have_blocked_the_bot_are_forgotten() -> None:
    scenario = HabitScenario(users=60, hours=20, seed=1, block=0.3)
    report = simulate_habits(scenario)
    assert 0 < report.dead < report.blocked  # who is reminded again the same day, once
    assert report.passed


def test_habits_are_those_of_all_zones() -> None:
    habits = list(HabitScenario(users=3_000).habits())
    assert {habit.zone for habit in habits} == set(ZONES)
    assert 1.4 * 3_000 < len(habits) < 1.7 * 3_000
    assert [habit.number for habit in habits] == list(range(len(habits)))


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("none", {}),
        ("lost-answer=0.02,silent", {"lost_answer": 0.02, "silent": 0.01}),
        (" server_error = 0.5 ", {"server_error": 0.5}),
    ],
)
def test_faults_are_read_as_levels_or_names(text: str, shares: dict[str, float]) -> None:
    assert Faults.parse(text).shares() == shares


@pytest.mark.parametrize("text", ["", "some,many", "lost", "silent=2", "silent=x", "latency_in=5"])
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match=r"no fault|not a share"):
        Faults.parse(text)
