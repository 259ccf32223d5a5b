"""`tidegate simulate`, as people call it."""

import json

import pytest

from tidegate.cli import main

SMALL = ("--users", "40", "--hours", "9", "--seed", "5")


def test_the_report_is_one_object_with_the_shared_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *SMALL, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)

    assert (report["passed"], report["users"], report["seed"]) == (True, 40, 5)
    assert report["virtual_seconds"] == pytest.approx(9 * 3600, abs=60)
    shared = (
        "accepted delivered dead parked expired lost doubled refused out_of_order waiting requests avg_rps "
        "peak_rps p50_ms p99_ms seconds"
    )
    assert set(shared.split()) < set(report)


def test_a_person_gets_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *SMALL]) == 0
    shown = capsys.readouterr().out
    assert "lost, doubled, out of order" in shown
    assert "passed: nothing lost" in shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--users", "0"), "--users 0 must be between 1"),
        (("--hours", "0"), "--hours 0 must be above 0"),
        (("--hours", "nan"), "--hours nan must be above 0"),
        (("--faults", "rain"), "--faults: 'rain' is no fault"),
        (("--faults", "silent=0.2,silent=0.3"), "silent is given twice"),
        (("--faults", "silent=0.9,malformed=0.9"), "their sum at most 1"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    assert main(["simulate", *arguments]) == 2
    output = capsys.readouterr()
    assert told in output.err
    assert output.out == ""
    assert len(output.err.splitlines()) == 1
