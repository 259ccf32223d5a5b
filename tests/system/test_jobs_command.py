"""`tidegate jobs` as an operator runs it, and what other commands say of jobs."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from system.operators import Desk, telegram
from tidegate import File, Tidegate
from tidegate.jobs.port import JobLease
from tidegate.jobs.record import JobDone, JobFailed, JobOutcome, JobReturned, NewJob
from tidegate.model import BotId

SECRET = "Mrs. Smith, 7 Elm Street"


@pytest.fixture(scope="module")
def simulator() -> Iterator[str]:
    with telegram() as url:
        yield url


@pytest.fixture
def desk(tmp_path: Path, simulator: str) -> Desk:
    desk = Desk(tmp_path, simulator)
    desk.begin()
    return desk


def submit(desk: Desk, *jobs: NewJob) -> list[int]:
    async def add(gate: Tidegate) -> list[int]:
        return [job.id for job, _ in await (await gate.jobs.opened()).add(jobs)]

    return desk.within(add)


def end(desk: Desk, number: int, outcome: JobOutcome) -> None:
    """Let a job run and end so, as a worker would."""

    async def run(gate: Tidegate) -> None:
        store = await gate.jobs.opened()
        [job] = await store.get([number])
        held = await store.claim([job.name], 1_000, 60.0)
        for one in held:
            await store.settle(JobLease(one.id, one.token), outcome if one.id == number else JobReturned())

    desk.within(run)


def label(order: int, **fields: Any) -> NewJob:  # noqa: ANN401
    return NewJob(**{"name": "label", "args": (order,), "bot": BotId(42), "chat_id": 1001, **fields})


def test_without_jobs_the_command_says_so_and_makes_no_database(desk: Desk) -> None:
    code, out, _ = desk.quickly("jobs", "list")
    assert (code, out) == (0, "No jobs. A bot submits them, with @gate.job above a function.\n")
    assert desk.told("jobs", "list") == {"queues": {}, "jobs": [], "more": False}
    for command in (("show", "1"), ("cancel", "1"), ("retry", "1"), ("retry", "--dead")):
        assert "there are no jobs here" in desk.complains("jobs", *command)
    assert [file.name for file in desk.folder.glob("*data*")] == []


def test_jobs_are_listed_the_newest_first_with_the_lengths_of_the_queues(desk: Desk) -> None:
    one, two, mail = submit(desk, label(1), label(2, chat_id=1002), NewJob(name="mail", delay=3_600.0))
    end(desk, one, JobFailed("ValueError: no such order", final=True))

    found = desk.told("jobs", "list")
    assert found["queues"] == {"label": {"queued": 1, "dead": 1}, "mail": {"queued": 1}}
    assert [job["id"] for job in found["jobs"]] == [mail, two, one]
    code, out, _ = desk.quickly("jobs", "list")
    assert code == 0
    assert out.splitlines()[:2] == ["label: 1 queued, 1 dead", "mail: 1 queued"]
    assert "ValueError" in out

    def ids(*options: str) -> list[int]:
        return [job["id"] for job in desk.told("jobs", "list", *options)["jobs"]]

    assert ids("--state", "dead") == [one]
    assert ids("--name", "mail") == [mail]
    assert ids("--chat", "1002") == [two]
    assert ids("--before", str(mail), "--limit", "1") == [two]
    assert desk.told("jobs", "list", "--limit", "1")["more"]
    assert "For more: --before" in desk.quickly("jobs", "list", "--limit", "1")[1]
    assert "No such job." in desk.quickly("jobs", "list", "--chat", "7")[1]
    assert "is not one of" in desk.complains("jobs", "list", "--state", "lost")
    assert "--chat" in desk.complains("jobs", "list", "--chat", "nobody")


def test_a_job_is_shown_with_its_arguments_bounded_and_its_result(desk: Desk) -> None:
    [number] = submit(desk, label(7, kwargs={"note": "x" * 2_000, "photo": File(content=b"12345")}))
    end(desk, number, JobDone({"method": "sendDocument", "document": File(content=b"%PDF", name="a.pdf")}))

    shown = desk.told("jobs", "show", str(number))
    assert (shown["state"], shown["args"], shown["kwargs"]["photo"]) == (
        "done",
        [7],
        {"file": "unnamed", "bytes": 5},
    )
    assert shown["result"]["document"] == {"file": "a.pdf", "bytes": 4}
    assert shown["kwargs"]["note"].endswith("… and 1,500 characters")
    code, out, _ = desk.quickly("jobs", "show", str(number))
    assert code == 0
    assert "0 failed, of 4; 60 s between two" in out
    assert len(out.splitlines()) < 40


@pytest.mark.parametrize("command", ["show", "cancel", "retry"])
def test_an_unknown_id_is_a_clear_error_and_nothing_else_is_changed(desk: Desk, command: str) -> None:
    [known] = submit(desk, label(1))
    ids = ("999",) if command == "show" else (str(known), "999")
    assert (
        desk.complains("jobs", command, *ids)
        == "tidegate: there is no job 999, or it has ended long ago: see tidegate jobs list"
    )
    assert desk.told("jobs", "show", str(known))["state"] == "queued"
    for wrong in ("seven", "0", "99999999999999999999"):
        assert desk.complains("jobs", command, wrong).startswith("tidegate: ")


def test_jobs_are_cancelled_and_those_that_had_ended_are_named(desk: Desk) -> None:
    one, two = submit(desk, label(1), label(2))
    end(desk, one, JobDone("ready"))

    code, out, _ = desk.quickly("jobs", "cancel", str(one), str(two), str(two))
    assert (code, out) == (0, f"1 job cancelled.\nJob {one} had ended already: it is done.\n")
    assert desk.told("jobs", "cancel", str(two)) == {"cancelled": [], "unchanged": {str(two): "cancelled"}}


def test_dead_jobs_are_retried_by_id_or_all_after_a_question(desk: Desk) -> None:
    one, two, mail = submit(desk, label(1), label(2), NewJob(name="mail"))
    for number in (one, two, mail):
        end(desk, number, JobFailed("no", final=True))

    assert desk.told("jobs", "retry", str(one)) == {"queued_again": [one], "unchanged": {}}
    again = desk.told("jobs", "retry", str(one))
    assert again == {"queued_again": [], "unchanged": {str(one): "queued"}}
    assert "Retry 2 dead jobs? Not a terminal: pass --yes" in desk.complains("jobs", "retry", "--dead")
    assert desk.told("jobs", "retry", "--dead", "--name", "mail", "--yes")["queued_again"] == [mail]
    assert desk.quickly("jobs", "retry", "--dead", "-y")[1] == "1 job queued again.\n"
    assert desk.quickly("jobs", "retry", "--dead")[1] == "0 jobs queued again.\n"

    for wrong in ((), ("1", "--dead"), ("1", "--name", "label"), ("--name", "label")):
        assert "say which jobs: their ids, or --dead" in desk.complains("jobs", "retry", *wrong)


def test_forget_erases_the_jobs_of_a_chat_from_the_file(desk: Desk) -> None:
    one, other = submit(desk, label(1, args=(SECRET,)), label(2, chat_id=1002))
    end(desk, one, JobDone(SECRET))
    file = desk.folder / "tidegate-data.db"
    assert SECRET.encode() in file.read_bytes()

    assert "Erase 0 messages and 1 job to 1001 for good" in desk.complains("forget", "1001")
    assert desk.told("forget", "1001", "--bot", "43", "--yes")["jobs"] == 0
    code, out, _ = desk.quickly("forget", "1001", "--yes")

    assert code == 0
    assert "Erased 1 job of it." in out
    assert [job["id"] for job in desk.told("jobs", "list")["jobs"]] == [other]
    for left in desk.folder.glob("tidegate-data.db*"):
        assert SECRET.encode() not in left.read_bytes(), left
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM tidegate_jobs").fetchone() == (1,)


def test_doctor_and_database_speak_of_jobs(desk: Desk) -> None:
    one, _ = submit(desk, label(1), label(2, delay=60.0))
    end(desk, one, JobFailed("no", final=True))

    checks = {check["name"]: check for check in json.loads(desk.run("doctor", "--json").stdout)["checks"]}
    assert checks["jobs"]["found"] == "1 waiting, 0 running, 1 dead"
    assert "reminders" not in checks
    assert "which holds reminders and jobs" in desk.quickly("database", "--help")[1]
