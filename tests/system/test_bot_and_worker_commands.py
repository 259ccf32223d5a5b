"""Bots, keys, sending and the worker from the command line: real processes, a simulated Telegram."""

import asyncio
import io
import json
import os
import re
import select
import signal
import stat
import subprocess
import sys
import termios
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from blockbuster import BlockBuster

import fork_server
from tidegate import Tidegate
from tidegate.cli import main

TIDEGATE = [sys.executable, "-m", "tidegate"]
PATIENCE = 20
SECRET = "hush-hush"
TOKEN = f"42:{SECRET}"
OURS = ("TIDEGATE_", "TELEGRAM_", "REDIS_URL", "DATABASE_URL")
REPORTED = {"delivered", "dead", "parked", "expired", "refused", "waiting", "seconds", "avg_rps"}
Variables = dict[str, str]


class Ran(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


class Place:
    """A folder with a store, and the commands that are run there. Nothing they say may hold a secret."""

    def __init__(
        self, folder: Path, telegram: str, patch: pytest.MonkeyPatch, output: pytest.CaptureFixture[str]
    ) -> None:
        self.folder, self.telegram, self._patch, self._output = folder, telegram, patch, output
        self.store, self.key_file = folder / "tidegate.db", folder / "tidegate.db.key"

    def run(self, *arguments: str, stdin: str = "", variables: Variables | None = None) -> Ran:
        """In this process: it is what a new one would do, without its start."""
        with self._patch.context() as patch:
            for name in os.environ.keys() - environment(None).keys():
                patch.delenv(name)
            for name, value in (variables or {}).items():
                patch.setenv(name, value)
            patch.chdir(self.folder)
            patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            code = main(arguments)
        out, err = self._output.readouterr()
        assert SECRET not in out + err
        return Ran(code, out, err)

    def told(self, *arguments: str, variables: Variables | None = None) -> dict[str, Any]:
        """What a command says to a program."""
        ran = self.run(*arguments, "--json", variables=variables)
        assert ran.returncode == 0, ran.stderr
        told: dict[str, Any] = json.loads(ran.stdout)
        return told

    def complains(self, *arguments: str, code: int, variables: Variables | None = None) -> str:
        """The one line that a command says when it cannot do what was asked."""
        ran = self.run(*arguments, variables=variables)
        assert (ran.returncode, ran.stdout) == (code, ""), ran.stderr
        (line,) = ran.stderr.splitlines()
        return line

    def add_bot(self, token: str = TOKEN, variables: Variables | None = None) -> None:
        ran = self.run(
            "bot", "add", "-", "--api-url", self.telegram, "--no-check", stdin=token, variables=variables
        )
        assert ran.returncode == 0, ran.stderr

    def put(self, count: int) -> None:
        """Messages to as many chats, from this process."""

        async def put() -> None:
            async with Tidegate(str(self.store)) as gate:
                await gate.send_many({"chat_id": 1 + i, "text": f"part #{i}"} for i in range(count))

        asyncio.run(put())

    def start(self, *arguments: str, variables: Variables | None = None) -> subprocess.Popen[str]:
        return fork_server.popen(
            [*TIDEGATE, *arguments],
            cwd=self.folder,
            env=environment(variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @contextmanager
    def worker(self, *arguments: str, variables: Variables | None = None) -> Iterator[subprocess.Popen[str]]:
        """In a process of its own; it is the sender when the body begins."""
        process = self.start("worker", *arguments, variables=variables)
        try:
            assert process.stdout is not None
            assert "Delivering from tidegate.db" in process.stdout.readline()
            yield process
        finally:
            process.kill()
            process.communicate()


def environment(variables: Variables | None) -> Variables:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return kept | (variables or {})


def report_of(telegram: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{telegram}/sim/report", timeout=PATIENCE) as response:  # noqa: S310  (loopback)
        report: dict[str, Any] = json.load(response)
    return report


@contextmanager
def simulated(*arguments: str) -> Iterator[str]:
    process = fork_server.popen(
        [*TIDEGATE, "sim", "telegram", "--port", "0", "--json", *arguments],
        env=environment(None),
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


@contextmanager
def at_a_terminal(*arguments: str, place: Place, stdin: bool = False) -> Iterator[int]:
    """The other end of the terminal that a command writes to; it must end well."""
    ours, theirs = os.openpty()
    process = fork_server.popen(
        [*TIDEGATE, *arguments],
        cwd=place.folder,
        env=environment({"TERM": "xterm"}),
        stdin=theirs if stdin else subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,  # else a question would be put to the terminal that the tests run in
    )
    os.close(theirs)
    try:
        yield ours
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def all_of(terminal: int) -> str:
    shown = b""
    with suppress(OSError):  # Linux says so where the other end is closed
        while piece := os.read(terminal, 65_536):
            shown += piece
    return shown.decode()


@pytest.fixture(scope="module")
def telegram() -> Iterator[str]:
    """Knows two bots."""
    with simulated("--token", TOKEN, "--token", f"43:{SECRET}") as address:
        yield address


@pytest.fixture(autouse=True)
def a_command_may_look_for_its_store(no_blocking_calls: BlockBuster) -> None:
    """Nothing else runs in its loop yet."""
    for function in no_blocking_calls.functions.values():
        function.can_block_in("cli/store.py", "gate_for")


@pytest.fixture
def place(
    tmp_path: Path, telegram: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Place:
    return Place(tmp_path, telegram, monkeypatch, capsys)


def test_a_bot_is_added_listed_and_removed_and_its_token_is_nowhere(place: Place) -> None:
    added = place.run("bot", "add", "-", "--api-url", place.telegram, stdin=f"{TOKEN}\n")
    assert (added.returncode, added.stderr) == (0, "")
    assert added.stdout == "42:… (@sim42_bot) is registered\n"
    again = place.run(
        "bot", "add", "--api-url", f"{place.telegram}/", variables={"TELEGRAM_BOT_TOKEN": f" {TOKEN} "}
    )
    assert again.stdout == "42:… (@sim42_bot) is registered again\n"
    assert stat.S_IMODE(place.key_file.stat().st_mode) == 0o600

    assert place.told("bot", "list") == {
        "bots": [{"bot": 42, "api_url": place.telegram, "waiting": 0, "dead": 0, "parked": 0}]
    }
    shown = place.run("bot", "list").stdout
    assert "42:…" in shown
    assert place.telegram in shown
    for file in place.folder.iterdir():
        assert SECRET.encode() not in file.read_bytes()

    assert place.told("bot", "remove", "42:…") == {"bot": 42, "waiting": 0}
    assert place.run("bot", "list").stdout == "No bot is registered: begin with tidegate bot add\n"
    assert "bot 42 is not registered in this store: it has none" in place.complains(
        "bot", "remove", "42", code=2
    )


def test_a_token_that_telegram_refuses_is_not_added(place: Place) -> None:
    ran = place.run("bot", "add", "44:other-token", "--api-url", place.telegram)

    assert (ran.returncode, ran.stdout) == (2, "")
    warning, refusal = ran.stderr.splitlines()
    assert "stays in the shell's history" in warning
    assert "knows no bot with this token (Unauthorized)" in refusal
    assert "other-token" not in ran.stderr
    assert place.told("bot", "list") == {"bots": []}
    assert not place.key_file.exists()


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "told"),
    [
        (("-",), SECRET, 2, "that is not a bot's token"),
        (("-",), "", 2, "that is not a bot's token"),
        ((), "", 2, "no token: set TELEGRAM_BOT_TOKEN"),
        (("-", "--api-url", "ftp://x"), TOKEN, 2, "must be an http(s) address"),
        (("-", "--api-url", "http://127.0.0.1:1"), TOKEN, 1, "could not be asked about this token (connect)"),
    ],
)
def test_a_bot_that_cannot_be_added_is_one_line(
    place: Place, arguments: tuple[str, ...], stdin: str, code: int, told: str
) -> None:
    ran = place.run("bot", "add", *arguments, stdin=stdin)

    assert (ran.returncode, ran.stdout) == (code, "")
    (line,) = ran.stderr.splitlines()
    assert told in line


def test_at_a_terminal_the_token_is_asked_for_and_not_shown(place: Place) -> None:
    with at_a_terminal("bot", "add", "--api-url", place.telegram, place=place, stdin=True) as terminal:
        while termios.tcgetattr(terminal)[3] & termios.ECHO:  # what is typed earlier is thrown away
            select.select([terminal], [], [], 0.01)
        os.write(terminal, f"{TOKEN}\n".encode())
        shown = all_of(terminal)

    assert "42:… (@sim42_bot) is registered" in shown
    assert "Token, from @BotFather" in shown
    assert SECRET not in shown


def test_what_is_sent_is_delivered_by_the_worker_beside(place: Place) -> None:
    place.add_bot()
    hinted = place.run("send", "-1001", "before the worker", "--priority", "low")
    assert hinted.returncode == 0
    assert re.fullmatch(r"[0-9a-f]{12}-[0-9a-f]{8}\n", hinted.stdout)
    assert hinted.stderr == "tidegate: no worker runs: start one with tidegate worker\n"

    with place.worker() as worker:
        record = place.told(
            "send", "1001", "hello", "--wait", "--dedup-key", "a", "--param", "parse_mode=HTML"
        )
        assert (record["state"], record["fresh"], record["result"]["text"]) == ("delivered", True, "hello")
        assert record["params"] == {"text": "hello", "parse_mode": "HTML"}
        repeated = place.told("send", "1001", "hello again", "--wait", "--dedup-key", "a")
        assert (repeated["id"], repeated["fresh"]) == (record["id"], False)
        (place.folder / "cat.jpg").write_bytes(b"meow")
        shown = place.run("send", "1002", "Look", "--photo", "cat.jpg", "--timeout", "10")
        assert shown.stderr.startswith("Delivered as message 1 after ")
        assert (shown.returncode, shown.stderr.count("\n")) == (0, 1)

        refused = place.complains("worker", code=1)
        assert f"process {worker.pid} " in refused
        place.add_bot(f"43:{SECRET}")  # the worker that runs gets to know it
        assert place.told("send", "7", "from another", "--bot", "43", "--wait")["state"] == "delivered"

        worker.send_signal(signal.SIGTERM)
        out, err = worker.communicate(timeout=PATIENCE)

    assert (worker.returncode, err) == (0, "")
    assert out.startswith("Delivered 4 in ")
    assert out.endswith("0 dead, 0 parked, 0 expired, 0 refused (429); 0 still wait\n")


def test_the_id_that_a_script_catches_from_send_is_one_that_why_knows(place: Place) -> None:
    place.add_bot()
    caught = place.run("send", "1001", "hello").stdout.strip()
    again = place.run("send", "1001", "once", "--dedup-key", "a").stdout.strip()
    repeated = place.run("send", "1001", "once", "--dedup-key", "a").stdout.strip()

    assert place.told("queue", "why", caught)["id"] == caught
    assert repeated == again

    with at_a_terminal("send", "1001", "hello", place=place) as terminal:
        assert all_of(terminal).startswith("Accepted as ")


def test_what_cannot_be_sent_is_one_line(place: Place) -> None:
    assert "there is no store at tidegate.db" in place.complains("send", "1", "x", code=2)
    assert "there is no store at tidegate.db" in place.complains("worker", code=2)
    place.add_bot()
    place.add_bot(f"43:{SECRET}")
    assert "with --bot (42, 43)" in place.complains("send", "1", "x", code=2)
    assert "give TEXT, --photo or --document" in place.complains("send", "1", "--bot", "42", code=2)
    assert "no such option: --priorty" in place.complains("send", "1", "--priorty", "high", code=2)
    late = place.run("send", "1", "x", "--bot", "42", "--timeout", "0.1")
    assert late.returncode == 1
    assert "was not delivered within 0.1 s and still waits" in late.stderr.splitlines()[-1]


def test_a_bot_with_messages_is_not_removed_by_mistake(place: Place) -> None:
    place.add_bot()
    place.put(2)

    assert "2 messages of 42:… wait" in place.complains("bot", "remove", "42", code=2)
    assert place.told("bot", "list")["bots"][0]["waiting"] == 2
    assert place.told("bot", "remove", "42", "--yes") == {"bot": 42, "waiting": 2}

    place.add_bot()
    report = place.told("worker", "--drain")
    assert (report["delivered"], report["dead"], report["waiting"]) == (2, 0, 0)


@pytest.mark.usefixtures("real_interpreters")
def test_a_worker_that_is_asked_to_end_loses_nothing_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = {"TIDEGATE_BOT_RATE": "200/1"}
    with simulated("--bot-rate", "200/1", "--latency", "20-60") as telegram:
        place = Place(tmp_path, telegram, monkeypatch, capsys)
        place.add_bot()
        place.put(200)
        with place.worker(variables=fast) as worker:
            while report_of(telegram)["accepted"] < 20:  # in the thick of it
                pass
            worker.send_signal(signal.SIGTERM)
            out, err = worker.communicate(timeout=PATIENCE)
        assert worker.returncode == 0
        assert err == "" or "stopping: waiting up to 10 s for " in err
        delivered = int(out.split()[1])
        assert out.endswith(f"; {200 - delivered} still wait\n")
        assert report_of(telegram)["accepted"] == delivered < 200

        rest = place.told("worker", "--drain", variables=fast)

        assert set(rest) == REPORTED
        assert (rest["delivered"], rest["waiting"], rest["refused"]) == (200 - delivered, 0, 0)
        seen = report_of(telegram)
        assert (seen["accepted"], seen["doubled"], seen["out_of_order"], seen["refused"]) == (200, 0, 0, 0)


def test_a_worker_is_watched_in_a_terminal(place: Place) -> None:
    place.add_bot()
    place.put(3)

    with at_a_terminal("worker", "--drain", place=place) as terminal:
        shown = all_of(terminal)

    for part in ("Delivering from tidegate.db", "in flight", "normal 3", "Delivered 3 in "):
        assert part in shown


def test_the_key_file_is_rotated_also_when_it_is_killed_halfway(place: Place) -> None:
    place.add_bot()
    place.add_bot(f"43:{SECRET}")
    (old,) = place.key_file.read_text().split()
    process = place.start("key", "rotate")
    while len(place.key_file.read_text().split()) == 1 and process.poll() is None:
        pass  # until the new key is there
    process.kill()
    process.communicate()
    place.told("worker", "--drain")  # which opens every token

    rotated = place.run("key", "rotate")

    assert rotated.stdout == (
        f"2 tokens are encrypted with the key in {place.key_file}, which holds no older one any more\n"
    )
    (new,) = place.key_file.read_text().split()
    assert new != old
    place.told("worker", "--drain")
    variables = {"TIDEGATE_KEY": old, "TIDEGATE_LOG_LEVEL": "CRITICAL"}
    wrong = place.complains("worker", code=1, variables=variables)
    assert "TIDEGATE_KEY does not open the stored bot tokens" in wrong
    for key in (old, new):
        assert key not in rotated.stdout + wrong


def test_the_key_of_the_variable_is_rotated_by_whoever_sets_it(place: Place) -> None:
    old, new = (place.run("key", "new").stdout.strip() for _ in range(2))
    place.add_bot(variables={"TIDEGATE_KEY": old})
    assert not place.key_file.exists()

    lonely = place.complains("key", "rotate", code=2, variables={"TIDEGATE_KEY": new})
    assert "TIDEGATE_KEY=new,old" in lonely
    assert place.told("key", "rotate", variables={"TIDEGATE_KEY": f"{new},{old}"}) == {
        "rotated": 1,
        "key": "TIDEGATE_KEY",
    }

    place.told("worker", "--drain", variables={"TIDEGATE_KEY": new})
    assert "does not open" in place.complains("worker", code=1, variables={"TIDEGATE_KEY": old})


def test_a_key_that_cannot_be_used_is_one_line(place: Place) -> None:
    place.add_bot()
    place.key_file.chmod(0o644)
    assert f"run chmod 600 {place.key_file}" in place.complains("worker", code=2)
    place.key_file.unlink()
    assert f"there is no key file {place.key_file}" in place.complains("worker", code=1)
    bad = place.complains("worker", code=2, variables={"TIDEGATE_KEY": SECRET})
    assert "TIDEGATE_KEY: what it holds is no key: make one with `tidegate key new`" in bad


def test_the_limit_of_ones_own_chat_is_measured_only_when_asked_and_alone(place: Place) -> None:
    place.add_bot()
    assert "pass --yes to confirm" in place.complains("limits", "measure", "--chat", "901", code=2)
    with place.worker():
        assert "stop it first" in place.complains("limits", "measure", "--chat", "901", "--yes", code=2)

    found = place.told("limits", "measure", "--chat", "901", "--yes")
    assert 25 <= found["burst"] <= 30  # 25 at once, and what was given back while they were sent
    assert 0.5 < found["rate"] <= 1  # slower than it is, never faster
    assert found["setting"] == f"TIDEGATE_CHAT_RATE={found['limit']} TIDEGATE_REPLY_BURST={found['burst']}"
    assert found["deleted"] == found["sent"] > found["burst"]
