"""How the command line shows jobs: bounded, and without secrets."""

import json
from typing import Any

import pytest
from rich.console import RenderableType

from tidegate.cli.doctor import jobs_check
from tidegate.cli.jobs import (
    MOST_LINES,
    job_details,
    job_table,
    progress_of,
    queue_lengths,
)
from tidegate.cli.terminal import ScrubbedConsole
from tidegate.jobs.record import JobRecord, JobState
from tidegate.model import BotId, File
from tidegate.ops.reports import LONGEST_SHOWN, MOST_SHOWN, bounded, job_json

NOW = 1_767_603_600.0
TOKEN = "42:" + "a" * 35
QUEUED, RUNNING, DONE, DEAD = JobState.QUEUED, JobState.RUNNING, JobState.DONE, JobState.DEAD


def job(**fields: Any) -> JobRecord:  # noqa: ANN401
    return JobRecord(**{"id": 7, "name": "label", "created_at": NOW - 60, "due_at": NOW, **fields})


def drawn(picture: RenderableType, width: int = 80) -> str:
    console = ScrubbedConsole(width=width)
    with console.capture() as capture:
        console.print(picture)
    return capture.get()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, ""),
        ({"due_at": NOW + 300}, "begins in 5 min"),
        (
            {"due_at": NOW + 50, "attempts": 2, "error": "ValueError: no"},
            "begins in 50 s, after 2 failed attempts: ValueError: no",
        ),
        (
            {"due_at": NOW - 1, "attempts": 1, "crashes": 2, "error": "killed"},
            "begins now, after 1 failed attempt and 2 crashes: killed",
        ),
        ({"state": JobState.SENT, "due_at": NOW + 3600}, ""),
        ({"state": RUNNING, "started_at": NOW - 90}, "for 90 s"),
        ({"state": DONE, "started_at": NOW - 90, "ended_at": NOW - 60}, "took 30 s"),
        ({"state": DEAD, "error": "ValueError: no", "ended_at": NOW}, "ValueError: no"),
        ({"state": JobState.CANCELLED, "ended_at": NOW}, ""),
    ],
)
def test_how_far_a_job_is(fields: dict[str, Any], words: str) -> None:
    assert progress_of(job(**fields), NOW) == words


def test_a_table_has_a_row_for_each_and_fits_80_columns() -> None:
    jobs = [job(chat_id=1001, bot=BotId(42), state=DEAD, error="ValueError: " + "x" * 200), job(id=6)]
    lines = drawn(job_table(jobs, NOW)).splitlines()
    assert lines[0].split() == ["id", "state", "name", "chat", "submitted", "what"]
    assert lines[2].split()[:4] == ["7", "dead", "label", "1001"]
    assert lines[3].split()[:3] == ["6", "queued", "label"]
    assert len(lines) == 4
    assert "chat" not in drawn(job_table([job()], NOW))


def test_details_show_arguments_and_results_without_secrets_and_control_characters() -> None:
    shown = drawn(
        job_details(
            job(
                state=DEAD,
                key="order-1",
                bot=BotId(42),
                chat_id=1001,
                attempts=2,
                crashes=1,
                retries=1,
                args=(1, f"https://api.telegram.org/bot{TOKEN}/x\x1b[31m", b"\0" * 1_234),
                kwargs={"photo": File(content=b"x" * 99, name="a.png"), "disk": File(path="/srv/b.png")},
                result={"text": "done"},
                error=f"ValueError: {TOKEN}",
                started_at=NOW - 50,
                ended_at=NOW - 10,
                due_at=None,
            ),
            NOW,
        )
    )
    assert TOKEN not in shown
    assert "\x1b" not in shown.replace("\x1b[0m", "")
    for part in ("order-1", "1001", "2 failed, of 2; 60 s between two", "1,234 bytes", "a.png", "/srv/b.png"):
        assert part in shown
    assert '"bytes": 99' in shown
    assert "(10 s ago)" in shown


def test_long_values_are_cut_short() -> None:
    assert bounded("x" * LONGEST_SHOWN) == "x" * LONGEST_SHOWN
    assert bounded("x" * (LONGEST_SHOWN + 5)) == "x" * LONGEST_SHOWN + "… and 5 characters"
    assert bounded(list(range(MOST_SHOWN + 3))) == [*range(MOST_SHOWN), "… and 3 more"]
    many = bounded({f"k{n}": n for n in range(MOST_SHOWN + 3)})
    assert (len(many), many["…"]) == (MOST_SHOWN + 1, "3 more")

    deep: Any = ["x" * 100_000] * 1_000
    deep = [deep] * 50
    text = drawn(job_details(job(args=(deep,), result=deep), NOW), width=600)
    assert len(text.splitlines()) < 2 * MOST_LINES + 20
    assert "lines" in text


def test_a_program_gets_every_field_as_json() -> None:
    found = job_json(job(args=(b"ab", File(content=b"x")), result={"n": (1, 2)}, state=DONE))
    assert json.loads(json.dumps(found)) == found | {"result": {"n": [1, 2]}}
    assert found["args"] == ["2 bytes", {"file": "unnamed", "bytes": 1}]
    assert (found["id"], found["state"], found["created_at"]) == (7, "done", NOW - 60)


def test_the_lengths_of_queues_are_shown_by_name() -> None:
    counts = {("mail", QUEUED): 1, ("label", DEAD): 2, ("label", QUEUED): 3}
    assert queue_lengths(counts) == {"label": {"queued": 3, "dead": 2}, "mail": {"queued": 1}}


def test_doctor_says_how_many_wait_and_are_dead() -> None:
    counts = {QUEUED: 1_200, JobState.SENT: 3, RUNNING: 2, DONE: 9, DEAD: 4}
    check = jobs_check(counts)
    assert (check.state, check.found) == ("info", "1,203 waiting, 2 running, 4 dead")
    assert check.advice == "see why: tidegate jobs list --state dead"
    assert jobs_check({DONE: 1}).advice == ""
