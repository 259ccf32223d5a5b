"""`tidegate stress`, as people call it: small runs in virtual time, and one line for what makes no sense."""

import json
import os
import signal
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tidegate.cli import main
from tidegate.cli.stress import polling as driver
from tidegate.cli.stress.playback import stopping

SMALL = ("--users", "20", "--duration", "90", "--interval", "40")


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    ended = main(["stress", *arguments])
    output = capsys.readouterr()
    assert (ended, output.out) == (2, ""), output.err
    (line,) = output.err.splitlines()
    return line


def test_all_modes_are_measured_in_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    ended = main(["stress", "polling", *SMALL, "--seed", "5", "--json"])
    report = json.loads(capsys.readouterr().out)

    assert (ended, report["passed"], report["interrupted"]) == (0, True, False)
    assert list(report["modes"]) == ["per-user", "paced", "batch", "delta"]
    assert report["scenario"]["users"] == 20
    for mode in report["modes"].values():
        assert (mode["users"], mode["paid"], mode["virtual_seconds"], mode["seed"]) == (20, 10, 90.0, 5)
    assert report["modes"]["per-user"]["refused"] > 0
    assert report["modes"]["batch"]["told"] == 10


def test_one_mode_is_shown_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stress", "polling", *SMALL, "--mode", "batch"]) == 0
    shown = capsys.readouterr().out

    assert "batch" in shown
    assert "per-user" not in shown
    assert "passed:" in shown


def test_a_target_that_was_missed_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stress", "polling", *SMALL, "--users", "60", "--mode", "batch", "--batch-size", "1"]) == 1
    assert "failed: batch, 60 users: too many requests" in capsys.readouterr().out


def test_the_bot_that_is_only_compared_cannot_fail(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stress", "polling", *SMALL, "--mode", "per-user"]) == 0
    assert "failed:" not in capsys.readouterr().out


def test_scenarios_are_played_one_after_another_and_drawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(driver, "CROWDS", (10, 20))
    picture = tmp_path / "polling.svg"
    arguments = ("--scenarios", "--mode", "batch", "--duration", "90", "--interval", "40", "--json")

    assert main(["stress", "polling", *arguments, "--svg", str(picture)]) == 0
    report = json.loads(capsys.readouterr().out)

    assert [played["scenario"]["users"] for played in report["scenarios"]] == [10, 20]
    assert [played["modes"]["batch"]["users"] for played in report["scenarios"]] == [10, 20]
    assert ET.fromstring(picture.read_text()).tag.endswith("svg")  # noqa: S314  (our own)
    assert [file.name for file in tmp_path.iterdir()] == ["polling.svg"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--users", "0"), "--users 0 must be from 1"),
        (("--duration", "-5"), "--duration -5 must be above 0"),
        (("--interval", "0"), "--interval 0 must be above 0"),
        (("--interval", "nan"), "--interval nan must be above 0"),
        (("--duration", "50"), "--duration 50 must be above --interval 60"),
        (("--batch-size", "0"), "--batch-size 0 must be from 1"),
        (("--mode", "magic"), "--mode"),
        (("--users", "many"), "--users"),
        (("--scenarios", "--users", "20"), "--scenarios plays its own numbers of users"),
        (("--mode", "delta", "--batch-size", "10"), "--batch-size is for batch mode, not for delta"),
    ],
)
def test_what_makes_no_sense_gets_one_line(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in complaint(capsys, "polling", *arguments)


def test_a_place_that_cannot_be_written_is_known_before_anything_is_played(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = str(tmp_path / "nowhere" / "a.svg")

    assert "cannot be written" in complaint(capsys, "polling", "--svg", missing)
    assert "is a folder" in complaint(capsys, "polling", "--svg", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_restarts_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    ended = main(["stress", "restore", "--users", "12", "--users", "25", "--json"])
    report = json.loads(capsys.readouterr().out)

    assert (ended, report["passed"], report["group"]) == (0, True, 10)
    assert [(one["users"], one["start"]) for one in report["restarts"]] == [
        (12, "at once"), (12, "staggered"), (25, "at once"), (25, "staggered"),
    ]  # fmt: skip
    assert [one["groups"] for one in report["restarts"]] == [1, 2, 1, 3]
    assert all((one["refused"] > 0) == (one["start"] == "at once") for one in report["restarts"])


@pytest.mark.parametrize("wrong", [("--users", "0"), ("--group", "0"), ("--every", "0")])
def test_a_restart_that_makes_no_sense_gets_one_line(
    wrong: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"{wrong[0]} 0 must be" in complaint(capsys, "restore", *wrong)


def test_the_first_ctrl_c_asks_and_the_second_is_not_waited_for() -> None:
    before = signal.getsignal(signal.SIGINT)

    with stopping() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)

    assert signal.getsignal(signal.SIGINT) is before


def test_what_was_played_until_ctrl_c_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tick = driver._tick  # noqa: SLF001

    def interrupted(*arguments: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return tick(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(driver, "_tick", interrupted)

    picture = tmp_path / "polling.svg"

    assert main(["stress", "polling", *SMALL, "--json", "--svg", str(picture)]) == 130
    output = capsys.readouterr()
    report = json.loads(output.out)
    assert (report["interrupted"], report["passed"], list(report["modes"])) == (True, False, ["per-user"])
    assert report["modes"]["per-user"]["within_interval"] is None
    assert "stopped by Ctrl-C" in output.err
    assert f"{picture} was not written" in output.err
    assert not picture.exists()
