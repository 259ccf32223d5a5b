"""`tidegate reminders` and `tidegate scheduler` as people run them: processes, a simulated Telegram."""

import datetime as dt
import json
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fork_server
from system.operators import PATIENCE, Desk, environment, running, telegram
from tidegate.clock import Clock

DAILY = ("--text", "Drink, {name}!", "--at", "09:00", "--every", "day", "--zone", "Europe/Berlin")
SOON = 5.0  # seconds: time enough to start what has to fire it


@pytest.fixture(scope="module")
def simulator() -> Iterator[str]:
    with telegram() as url:
        yield url


@pytest.fixture
def desk(tmp_path: Path, simulator: str) -> Desk:
    desk = Desk(tmp_path, simulator)
    desk.begin()
    return desk


def write(desk: Desk, *people: int, name: str = "people.csv") -> None:
    lines = "".join(f"{person},Person {person}\n" for person in people)
    (desk.folder / name).write_text(f"chat_id,name\n{lines}")


def soon() -> str:
    """A time of day in UTC that comes in a few seconds."""
    return f"{dt.datetime.fromtimestamp(Clock().now() + SOON, dt.UTC):%Y-%m-%d %H:%M:%S}"


def wait_until(happened: Callable[[], bool]) -> None:
    end = Clock().monotonic() + PATIENCE
    while not happened():
        assert Clock().monotonic() < end, "it has not happened"
        threading.Event().wait(0.05)


def test_reminders_are_imported_shown_changed_and_removed(desk: Desk) -> None:
    write(desk, 1001, 1002, 1003)

    report = desk.told("reminders", "import", "people.csv", *DAILY, "--key", "water-{chat_id}")
    assert (report["imported"], report["added"], report["passed"]) == (3, 3, True)
    assert desk.told("reminders", "stats")["active"] == 3
    [listed] = desk.told("reminders", "list", "--user", "1002")["reminders"]
    assert (listed["key"], listed["fields"]) == ("water-1002", {"text": "Drink, Person 1002!"})
    assert [
        one["id"] for one in desk.told("reminders", "list", "--after", "1", "--limit", "1")["reminders"]
    ] == [2]
    assert len(desk.told("reminders", "next", "--limit", "2")["reminders"]) == 2

    [paused] = desk.told("reminders", "pause", "water-1002")["reminders"]
    assert (paused["id"], paused["state"]) == (2, "paused")
    assert desk.told("reminders", "resume", "2")["reminders"][0]["state"] == "active"
    [skipped] = desk.told("reminders", "skip", "2")["reminders"]
    assert skipped["next_at"] - paused["next_at"] >= 23 * 3_600
    [snoozed] = desk.told("reminders", "snooze", "2", "--for", "10m")["reminders"]
    assert 590 < snoozed["next_at"] - Clock().now() <= 600
    [changed] = desk.told("reminders", "change", "2", "--at", "10:30", "--text", "Walk {now}!")["reminders"]
    assert (changed["schedule"]["at"], changed["fields"]["text"]) == ("10:30:00", "Walk {now}!")
    assert changed["next_local"].endswith("10:30")

    assert "pass --yes to confirm" in desk.complains("reminders", "remove", "1", "2")
    assert desk.told("reminders", "remove", "1", "water-1002", "--yes") == {"removed": 2}
    assert desk.told("reminders", "show", "water-1003")["chat_id"] == 1003
    shown = desk.run("reminders", "list")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "every day at 09:00" in shown.stdout


def test_without_reminders_no_database_is_made(desk: Desk) -> None:
    assert desk.told("reminders", "list") == {"reminders": [], "more": False}
    assert desk.told("reminders", "next") == {"reminders": []}
    assert desk.told("reminders", "stats")["active"] == 0
    assert "there are no reminders here" in desk.complains("reminders", "pause", "1")
    assert desk.told("forget", "1001", "--yes")["reminders"] == 0
    assert not (desk.folder / "tidegate-data.db").exists()


def test_bad_lines_are_told_and_the_rest_is_imported_if_asked(desk: Desk) -> None:
    bad = "1002,Bob,Mars/Olympus,\n1003,Eve,,25:00\n,Zoe,,\n"
    (desk.folder / "people.csv").write_text(f"chat_id,name,zone,at\n1001,Ann,,\n{bad}")

    code, out, err = desk.quickly("reminders", "import", "people.csv", *DAILY)
    assert (code, out) == (2, "")
    assert [line.partition(":")[0] for line in err.splitlines()] == ["line 3", "line 4", "line 5", "tidegate"]
    assert not (desk.folder / "tidegate-data.db").exists()

    report = desk.told("reminders", "import", "people.csv", *DAILY, "--skip-bad")
    assert (report["imported"], report["bad_lines"]) == (1, 3)


def test_a_scheduler_beside_a_worker_fires_once_and_both_tell_their_health_and_metrics(desk: Desk) -> None:
    write(desk, 2001, 2002)
    with (
        running("worker", "--no-reminders", "--health-port", "0", folder=desk.folder) as worker,
        running("scheduler", "--health-port", "0", "--json", folder=desk.folder) as scheduler,
    ):
        addresses = [health_address(process) for process in (worker, scheduler)]
        for address in addresses:
            assert answer(f"{address}/healthz") == (200, {"ok": True})
            wait_until(lambda address=address: answer(f"{address}/readyz") == (200, {"ok": True}))  # type: ignore[misc]
        options = ("--text", "{name}", "--at", soon(), "--zone", "UTC")
        desk.told("reminders", "import", "people.csv", *options)
        wait_until(lambda: desk.arrived(2001) + desk.arrived(2002) == 2)
        assert answer(f"{addresses[0]}/metrics")[0] == 401
        token = desk.told("token", "create", "--name", "prometheus")["secret"]
        sent, fired = (answer(f"{address}/metrics", token)[1] for address in addresses)
        assert (sent["tidegate_sends_total"], sent["tidegate_reminders_fired_total"]) == (2, 0)
        assert (fired["tidegate_sends_total"], fired["tidegate_reminders_fired_total"]) == (0, 2)

        for process, number in ((scheduler, signal.SIGTERM), (worker, signal.SIGINT)):
            process.send_signal(number)
            out, err = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, err
            assert "Traceback" not in err
            if process is scheduler:
                report = json.loads(out)
                assert (report["fired"], report["late"], report["active"]) == (2, 0, 0)
    assert (desk.arrived(2001), desk.arrived(2002)) == (1, 1)


def health_address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    told = json.loads(process.stderr.readline())["message"]
    return str(told).split()[1].removesuffix("/healthz")


def answer(url: str, token: str = "") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  (loopback)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:  # noqa: S310
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_worker_alone_fires_reminders_too(desk: Desk) -> None:
    write(desk, 3001)
    with desk.worker():
        desk.told("reminders", "import", "people.csv", "--text", "Hi", "--at", soon(), "--zone", "UTC")
        wait_until(lambda: desk.arrived(3001) == 1)


@pytest.mark.usefixtures("real_interpreters")
def test_a_database_that_cannot_be_reached_is_one_line_at_the_start(desk: Desk) -> None:
    ran = fork_server.run(
        [sys.executable, "-m", "tidegate", "scheduler"],
        cwd=desk.folder,
        env=environment() | {"DATABASE_URL": "postgresql://user:hush@127.0.0.1:1/data"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    [line] = ran.stderr.splitlines()
    assert "postgresql://127.0.0.1:1/data cannot be reached" in line
    assert "hush" not in line


def test_a_chat_that_is_forgotten_leaves_no_byte_of_its_reminders(desk: Desk) -> None:
    write(desk, 4001, 4002)
    desk.told("reminders", "import", "people.csv", *DAILY)
    assert "2 reminders" not in desk.complains("forget", "4001")

    found = desk.told("forget", "4001", "--yes")

    assert (found["erased"], found["reminders"]) == (0, 1)
    assert [one["chat_id"] for one in desk.told("reminders", "list")["reminders"]] == [4002]
    for file in desk.folder.glob("tidegate*"):
        assert b"Drink, Person 4001!" not in file.read_bytes()


def test_a_backup_has_the_reminders_beside_it_and_a_restore_leaves_them_alone(desk: Desk) -> None:
    write(desk, 6001, 6002)
    desk.told("reminders", "import", "people.csv", *DAILY)

    copied = desk.told("backup", "copy.db")

    assert copied["reminders"] == "copy-data.db"
    assert len(desk.told("reminders", "list", "--store", "copy.db")["reminders"]) == 2
    desk.told("reminders", "remove", "1", "--yes")
    code, out, _ = desk.quickly("restore", "copy.db", "--park", "--yes")
    assert code == 0
    assert "Reminders and jobs stay as they are. To go back to those of copy-data.db: stop everything" in out
    assert len(desk.told("reminders", "list")["reminders"]) == 1

    (desk.folder / "other-data.db").touch()
    assert "other-data.db exists" in desk.complains("backup", "other.db")
    assert not (desk.folder / "other.db").exists()
    copies = desk.told("forget", "6002", "--yes")["copies"]
    assert str(desk.folder / "copy-data.db") in copies


def test_doctor_says_how_many_reminders_there_are(desk: Desk) -> None:
    def found() -> list[str]:
        checks = json.loads(desk.run("doctor", "--json").stdout)["checks"]
        return [check["found"] for check in checks if check["name"] == "reminders"]

    assert found() == []
    write(desk, 5001, 5002)
    desk.told("reminders", "import", "people.csv", *DAILY)
    desk.told("reminders", "pause", "2")

    assert found() == ["1 active, 1 paused, 0 ended"]
