"""`tidegate broadcast` as people run it: processes, a file, a simulated Telegram, Ctrl-C and kill -9."""

import asyncio
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import fork_server
from system.operators import environment, run_here
from tidegate import Tidegate
from tidegate.outbox.campaigns import CampaignRecord

pytestmark = pytest.mark.usefixtures("a_command_may_block")
TIDEGATE = [sys.executable, "-m", "tidegate"]
PATIENCE = 30
LIMIT = "200/1"
SET = {"TIDEGATE_BOT_RATE": LIMIT}
HELLO = ("--text", "Hello {name} #1")


class Office:
    """A folder with a store, a bot and a list of people, and a Telegram somewhere."""

    def __init__(self, folder: Path, telegram: str) -> None:
        self.folder, self.telegram = folder, telegram
        self.store, self.list = folder / "tidegate.db", folder / "people.csv"

    def write(self, people: int, more: str = "") -> None:
        lines = (f"{1000 + i},Person {i}\n" for i in range(people))
        self.list.write_text("chat_id,name\n" + "".join(lines) + more)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return fork_server.popen(
            [*TIDEGATE, *arguments],
            cwd=self.folder,
            env=environment() | SET,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """In this process: exit code, stdout, stderr."""
        ran = run_here(*arguments, folder=self.folder, variables=SET)
        assert "Traceback" not in ran[2]
        return ran

    def broadcast(self, *arguments: str) -> dict[str, Any]:
        code, out, err = self.run("broadcast", "people.csv", *arguments, "--json")
        assert code == 0, err
        report: dict[str, Any] = json.loads(out)
        return report

    def kill_when(self, ready: Callable[[], bool], *arguments: str) -> None:
        """A broadcast is killed in the middle of something: kill -9."""
        process = self.start("broadcast", "people.csv", *arguments)
        while not ready():
            assert process.poll() is None, process.communicate()
        process.kill()
        process.communicate()

    def in_store(self, where: str = "1") -> int:
        with closing(sqlite3.connect(f"{self.store.as_uri()}?mode=ro", uri=True)) as file:
            [count] = file.execute(f"SELECT count(*) FROM messages WHERE {where}").fetchone()  # noqa: S608
        return int(count)

    def seen(self) -> dict[str, Any]:
        """What Telegram has seen."""
        with urllib.request.urlopen(f"{self.telegram}/sim/report", timeout=PATIENCE) as response:  # noqa: S310
            report: dict[str, Any] = json.load(response)
        return report

    def tell_telegram(self, verb: str, order: dict[str, Any]) -> None:
        body = json.dumps(order).encode()
        with urllib.request.urlopen(f"{self.telegram}/sim/{verb}", body, timeout=PATIENCE):  # noqa: S310
            pass


@contextmanager
def simulated() -> Iterator[str]:
    process = fork_server.popen(
        [*TIDEGATE, "sim", "telegram", "--port", "0", "--json", "--bot-rate", LIMIT, "--latency", "5-20"],
        env=environment() | SET,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        yield next(word for word in process.stderr.readline().split() if word.startswith("http://"))
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def first_office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with simulated() as telegram:
        office = Office(tmp_path_factory.mktemp("office"), telegram)
        code, _, err = office.run("bot", "add", "42:token", "--api-url", telegram)
        assert code == 0, err
        yield office


@pytest.fixture
def office(tmp_path: Path, first_office: Office) -> Office:
    """A copy of the first one, before a Telegram that has seen nothing yet."""
    shutil.copytree(first_office.folder, tmp_path, dirs_exist_ok=True)
    first_office.tell_telegram("reset", {})
    return Office(tmp_path, first_office.telegram)


def test_a_broadcast_ended_when_its_last_message_did_not_when_somebody_looked(office: Office) -> None:
    office.write(80)
    office.broadcast(*HELLO)

    async def record() -> CampaignRecord:
        async with Tidegate(office.store) as gate:
            [kept] = await gate.core.store.campaigns.all()
            return kept

    kept = asyncio.run(record())

    assert kept.state == "finished"
    assert kept.ended_at is not None


def test_a_list_is_delivered_and_those_who_blocked_the_bot_are_reported(office: Office) -> None:
    office.write(80)
    people = (1003, 1077)
    for person in people:
        office.tell_telegram("block", {"bot": 42, "user": person})

    report = office.broadcast(*HELLO, "--report", "unreached.csv")

    assert (report["accepted"], report["delivered"], report["waiting"]) == (80, 78, 0)
    assert (report["dead"], report["blocked"], report["reasons"]) == (2, 2, {"blocked": 2})
    assert (report["refused"], report["bad_lines"], report["passed"]) == (0, 0, True)
    unreached = (office.folder / "unreached.csv").read_text().splitlines()
    assert unreached[0] == "chat_id,state,reason"
    assert sorted(unreached[1:]) == ["1003,dead,blocked", "1077,dead,blocked"]
    assert office.seen()["doubled"] == 0

    code, out, err = office.run("broadcast", "people.csv", *HELLO)
    assert (code, err) == (0, "")
    assert "It was complete: nothing was sent. To send it again, give it another --name." in out
    assert office.seen()["accepted"] == 78
    for person in people:
        office.tell_telegram("block", {"bot": 42, "user": person, "blocked": False})


def test_nothing_is_sent_if_one_line_is_bad(office: Office) -> None:
    office.write(3, "12x,Eve\n1001,Bob again\n1009,\n")
    code, out, err = office.run("broadcast", "people.csv", *HELLO)
    assert (code, out) == (2, "")
    hint = "correct them, or send the others with --skip-bad --name NAME"
    assert err.splitlines() == [
        "line 5: chat_id '12x' is no chat: give a number other than 0, or an @name",
        "line 6: chat_id 1001 was in an earlier line: one message for each chat is allowed",
        "line 7: name is empty",
        f"tidegate: 3 of 6 lines are bad, and nothing was sent: {hint}",
    ]
    assert office.in_store() == 0

    report = office.broadcast(*HELLO, "--skip-bad", "--name", "may")
    assert (report["delivered"], report["bad_lines"]) == (3, 3)


def test_what_is_useless_as_a_whole_is_one_line(office: Office) -> None:
    office.list.write_text("name,town\nAnn,Rye\n")
    code, out, err = office.run("broadcast", "people.csv", *HELLO)
    assert (code, out) == (2, "")
    assert err == (
        "tidegate: people.csv, line 1: there is no column 'chat_id' but name, town: "
        "the first line must name the columns, and one of them chat_id\n"
    )
    office.write(3)
    code, out, err = office.run("broadcast", "people.csv", "--text", "Hi {nmae}")
    assert (code, out) == (2, "")
    assert err == (
        "tidegate: people.csv, line 1: there is no column 'nmae' but chat_id, name: "
        "the template asks for {nmae}\n"
    )
    assert office.in_store() == 0


def test_a_list_may_come_through_a_pipe(office: Office) -> None:
    rows = "".join(json.dumps({"chat_id": 1000 + i, "text": f"Letter {i} #1"}) + "\n" for i in range(20))
    process = office.start("broadcast", "-", "--json")
    out, err = process.communicate(rows, timeout=PATIENCE)
    assert process.returncode == 0, err
    assert json.loads(out)["delivered"] == 20


def test_ctrl_c_keeps_the_rest_and_the_same_command_goes_on(office: Office) -> None:
    office.write(300)
    process = office.start("broadcast", "people.csv", *HELLO, "--json")
    while office.seen()["accepted"] < 50:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)

    stopped = json.loads(out)
    assert (process.returncode, stopped["accepted"], stopped["passed"]) == (130, 300, False)
    assert stopped["delivered"] + stopped["waiting"] == 300
    assert 50 <= stopped["delivered"] < 300
    assert "Traceback" not in err

    assert office.broadcast(*HELLO)["delivered"] == 300
    seen = office.seen()
    assert (seen["accepted"], seen["doubled"], seen["refused"]) == (300, 0, 0)


def test_a_broadcast_that_was_stopped_is_resumed_by_its_name_from_any_folder(
    office: Office, tmp_path_factory: pytest.TempPathFactory
) -> None:
    office.write(300)
    process = office.start("broadcast", "people.csv", *HELLO, "--name", "spring")
    while office.seen()["accepted"] < 50:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    assert "tidegate broadcast resume spring" in " ".join(out.split())

    there, office.folder = office.folder, tmp_path_factory.mktemp("elsewhere")
    store = ("--store", str(there / "tidegate.db"))
    office.write(301)
    code, out, err = office.run("broadcast", "resume", "spring", *store)
    assert (code, out) == (2, "")
    assert f"{there / 'people.csv'} has changed since broadcast spring began" in err

    office.write(300)
    code, out, err = office.run("broadcast", "resume", "spr", "--json", *store)
    assert code == 0, err
    assert json.loads(out)["delivered"] == 300
    seen = office.seen()
    assert (seen["accepted"], seen["doubled"], seen["refused"]) == (300, 0, 0)
    code, _, err = office.run("broadcast", "resume", "spring", *store)
    assert (code, err) == (2, "tidegate: broadcast spring is finished: nothing of it is left to send\n")


@pytest.mark.usefixtures("real_interpreters")
def test_a_worker_delivers_while_the_command_watches(office: Office) -> None:
    office.write(100)
    worker = office.start("worker")
    try:
        assert worker.stdout is not None
        worker.stdout.readline()
        code, out, err = office.run("broadcast", "people.csv", *HELLO, "--json")
    finally:
        worker.kill()
        worker.communicate()
    assert code == 0
    assert f"process {worker.pid}" in err
    assert json.loads(out)["delivered"] == 100


def test_kill_9_while_putting_loses_and_doubles_nothing(office: Office) -> None:
    office.write(12_000)
    office.kill_when(lambda: office.in_store() >= 1_000, *HELLO, "--no-wait")
    put = office.in_store()
    assert 1_000 <= put < 12_000

    code, out, err = office.run("broadcast", "people.csv", *HELLO, "--no-wait", "--json")

    assert code == 0
    assert f"resuming: {put:,} of 12,000 are already in" in err
    report = json.loads(out)
    assert (report["accepted"], report["waiting"], report["passed"]) == (12_000, 12_000, None)
    assert office.in_store() == 12_000


def test_kill_9_while_delivering_doubles_at_most_what_was_in_flight(office: Office) -> None:
    office.write(300)
    office.kill_when(lambda: office.seen()["accepted"] >= 100, *HELLO)
    in_flight = office.in_store("state = 'sending'")

    report = office.broadcast(*HELLO)

    assert (report["accepted"], report["delivered"], report["waiting"]) == (300, 300, 0)
    seen = office.seen()
    assert seen["doubled"] <= in_flight
    assert seen["accepted"] == 300 + seen["doubled"]
    assert seen["refused"] == 0


def test_a_paused_bot_is_told_once_instead_of_standing_still_in_silence(office: Office) -> None:
    office.write(20)
    code, _, err = office.run("queue", "pause", "--bot", "42")
    assert code == 0, err
    process = office.start("broadcast", "people.csv", *HELLO, "--json")
    assert process.stderr is not None
    told = [process.stderr.readline(), process.stderr.readline()]
    office.run("queue", "resume", "--bot", "42")
    out, err = process.communicate(timeout=PATIENCE)

    assert told[1] == "bot 42 is paused: nothing is sent until tidegate queue resume --bot 42\n"
    assert "paused" not in err
    assert (process.returncode, json.loads(out)["delivered"]) == (0, 20)


def test_what_could_not_be_encoded_is_one_line(office: Office) -> None:
    office.write(3)
    for arguments, complaint in (
        (("--text", "caf\udce9"), "UTF-8"),
        ((*HELLO, "--param", f"x={2**70}", "--dry-run"), "--param: 'x' has a number that is too large"),
        ((*HELLO, "--param", "x=" + "[" * 6000, "--dry-run"), "nested too deeply"),
    ):
        code, out, err = office.run("broadcast", "people.csv", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert complaint in err


def test_a_report_over_the_list_or_the_store_is_refused_before_anything_is_put(office: Office) -> None:
    office.write(3)
    for place in ("people.csv", "tidegate.db.key"):
        code, out, err = office.run("broadcast", "people.csv", *HELLO, "--report", place)
        assert (code, out) == (2, "")
        assert err.startswith(f"tidegate: --report: {place} ")
    assert office.in_store() == 0
