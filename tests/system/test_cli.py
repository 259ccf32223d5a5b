"""The command as people and programs run it: a process of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import fork_server
from system.operators import run_here

pytestmark = pytest.mark.usefixtures("a_command_may_block")
TIDEGATE = [sys.executable, "-m", "tidegate"]
PATIENCE = 20


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in {"REDIS_URL", "DATABASE_URL"}}
    return kept | variables


def tidegate(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return fork_server.run(
        [*TIDEGATE, *arguments],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def doctor(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """In this process: exit code, stdout, stderr."""
    return run_here("doctor", *arguments, variables=variables)


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = fork_server.popen(
        [*TIDEGATE, *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def address_in(line: str) -> str:
    return next(word for word in line.split() if word.startswith("http://"))


def send(address: str, text: str) -> dict[str, Any]:
    body = json.dumps({"chat_id": 1001, "text": text}).encode()
    request = urllib.request.Request(  # noqa: S310  (loopback)
        f"{address}/bot42:token/sendMessage", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:  # noqa: S310
        answer: dict[str, Any] = json.load(response)
    return answer


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_simulator_serves_until_a_signal_and_reports(number: signal.Signals) -> None:
    with running("sim", "telegram", "--port", "0", "--json", "--seed", "7") as process:
        assert process.stderr is not None
        assert send(address_in(process.stderr.readline()), "hello")["ok"]

        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)

    assert (process.returncode, err) == (0, "")
    report = json.loads(out)
    assert (report["requests"], report["accepted"], report["refused"]) == (1, 1, 0)
    assert report["seed"] == 7


def test_simulator_in_a_pipe_says_where_it_is_and_draws_once() -> None:
    with running("sim", "telegram", "--port", "0", "--token", "42:token", "--latency", "1-2") as process:
        assert process.stdout is not None
        send(address_in(process.stdout.readline()), "hello there")

        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)

    assert (process.returncode, err) == (0, "")
    assert out.count("Telegram, simulated") == 1
    assert "hello there" in out
    assert "42:token" not in out


def test_crowd_writes_to_the_first_bot() -> None:
    with running("sim", "telegram", "--port", "0", "--json", "--crowd", "3") as process:
        assert process.stderr is not None
        address = address_in(process.stderr.readline())
        poll = f"{address}/bot42:token/getUpdates?timeout=20"
        with urllib.request.urlopen(poll, timeout=PATIENCE) as response:  # noqa: S310
            (update, *_) = json.load(response)["result"]

        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)

    assert update["message"]["from"]["id"] > 1_000_000
    assert json.loads(out)["crowd"]["said"] >= 1


def test_the_crowd_of_the_command_is_the_one_that_the_control_api_knows() -> None:
    with running("sim", "telegram", "--port", "0", "--json", "--crowd", "3") as process:
        assert process.stderr is not None
        address = address_in(process.stderr.readline())
        with urllib.request.urlopen(f"{address}/sim/crowd", timeout=PATIENCE) as response:  # noqa: S310
            assert json.load(response) == {"users": 3, "said": 0, "running": True}
        send(address, "hello")
        body = json.dumps({"bot": 42, "users": 3, "seconds": 1}).encode()
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{address}/sim/crowd", body, timeout=PATIENCE)  # noqa: S310
        with caught.value as refused:
            assert "a crowd is there already" in json.load(refused)["error"]


def test_the_line_with_the_address_is_whole_in_a_narrow_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    with running("sim", "telegram", "--port", "0") as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith("(Ctrl-C stops it and prints a report)\n")


def test_a_port_in_use_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        ran = tidegate("sim", "telegram", "--port", str(port))

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"tidegate: port {port} on 127.0.0.1 is in use: choose another with --port\n"


def test_an_open_simulator_is_warned_about() -> None:
    with running("sim", "telegram", "--port", "0", "--json", "--host", "0.0.0.0") as process:  # noqa: S104
        assert process.stderr is not None
        assert "has no password" in process.stderr.readline()


@pytest.mark.parametrize("arguments", [("--bot-rate", "30/"), ("--no-such-option",)])
def test_bad_input_is_one_line_without_a_traceback(arguments: tuple[str, ...]) -> None:
    ran = tidegate("sim", "telegram", *arguments)

    assert (ran.returncode, ran.stdout) == (2, "")
    assert len(ran.stderr.splitlines()) == 1
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("arguments", [("version",), ("--help",), ("doctor",)])
def test_a_reader_that_goes_away_ends_it_quietly_as_other_commands_end(arguments: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        ran = subprocess.run(  # noqa: S603  (our own command)
            [*TIDEGATE, *arguments],
            env=environment(),
            stdout=write,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=False,
        )
    finally:
        os.close(write)

    assert (ran.returncode, ran.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize("arguments", [("version",), ("--help",), ("doctor", "--json")])
def test_a_full_disk_under_the_output_is_one_line(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(  # noqa: S603  (our own command)
            [*TIDEGATE, *arguments],
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    assert (ran.returncode, ran.stderr) == (1, "tidegate: No space left on device\n")


@pytest.mark.parametrize(
    ("closed", "arguments"),
    [
        ("<&-", "version"),
        (">&-", "version"),
        ("2>&-", "version"),
        ("<&- >&- 2>&-", "version"),
        ("<&- >&- 2>&-", "demo --seconds 1 --people 5"),
    ],
)
def test_closed_streams_are_no_error(closed: str, arguments: str) -> None:
    ran = subprocess.run(  # noqa: S603  (our own command)
        ["/bin/sh", "-c", f"exec {sys.executable} -m tidegate {arguments} {closed}"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (0, "")


def test_demo_measures_both_bots_and_draws_them(tmp_path: Path) -> None:
    picture = tmp_path / "demo.svg"
    ran = tidegate("demo", "--seconds", "3", "--people", "60", "--json", "--seed", "3", "--svg", str(picture))

    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert set(report) == {"seconds", "seed", "naive", "tidegate", "passed"}
    assert report["seed"] == 3
    assert report["seconds"] >= 3
    keys = "requests accepted delivered waiting refused avg_rps peak_rps p50_ms p99_ms dead parked doubled"
    for side in (report["naive"], report["tidegate"]):
        assert set(keys.split()) <= set(side)
        assert side["accepted"] == side["delivered"] + side["waiting"] + side["dead"] + side["parked"]
    assert report["naive"]["refused"] > 0
    gated = report["tidegate"]
    assert (gated["refused"], gated["doubled"], gated["out_of_order"]) == (0, 0, 0)
    assert gated["peak_rps"] <= gated["limit_rps"]
    assert gated["replies"] > 0
    assert f"with Tidegate: {gated['delivered']} delivered, 0 refused" in picture.read_text()


def test_demo_stops_in_time_with_most_of_its_broadcast_left() -> None:
    ran = tidegate("demo", "--seconds", "1", "--people", "1000")

    assert (ran.returncode, ran.stderr) == (0, "")
    assert "What both bots got" in ran.stdout
    assert "measured just now, at Telegram's end" in ran.stdout
    assert "Ctrl-C stops it" in ran.stdout.splitlines()[0]  # and no live view in a pipe
    assert "s left" not in ran.stdout


def test_demo_ends_early_and_reports_when_interrupted() -> None:
    with running("demo", "--seconds", "60") as process:
        assert process.stdout is not None
        assert "Two bots" in process.stdout.readline()

        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)

    assert (process.returncode, err) == (0, "")
    assert "What both bots got" in out


def test_demo_is_watched_in_a_terminal() -> None:
    ours, theirs = os.openpty()
    with subprocess.Popen(  # noqa: S603  (likewise)
        [*TIDEGATE, "demo", "--seconds", "1"], env=environment(TERM="xterm"), stdout=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # Linux says so where the other end is closed
            while piece := os.read(ours, 65_536):
                shown += piece
        os.close(ours)

    assert process.returncode == 0
    for part in ("with Tidegate", "1 s left", "What both bots got", "measured just now, at Telegram's end"):
        assert part.encode() in shown


def test_a_report_is_not_cut_off_where_python_does_not_buffer() -> None:
    """A terminal may take a part of a write, as after Ctrl-C: only a buffer writes the rest."""
    script = "import io, sys; from tidegate.cli import main; main(['version'])"
    ran = subprocess.run(  # noqa: S603  (our own command)
        [sys.executable, "-u", "-c", f"{script}; print(isinstance(sys.stdout.buffer, io.BufferedWriter))"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )

    assert ran.stdout.splitlines()[1:] == ["True"]


def test_doctor_finds_real_servers(redis_url: str, postgres_url: str, tmp_path: Path) -> None:
    ran = tidegate("doctor", "--json", REDIS_URL=redis_url, DATABASE_URL=postgres_url)

    assert (ran.returncode, ran.stderr) == (0, "")
    checks = {check["name"]: check for check in json.loads(ran.stdout)["checks"]}
    assert checks["redis"]["state"] == "ok"
    assert checks["redis memory"]["state"] == "ok"
    assert checks["redis persistence"]["state"] == "warning"  # the tests' Redis writes nothing to disk
    assert checks["database"]["state"] == "ok"

    through_sqlalchemy = postgres_url.replace("postgresql://", "postgresql+asyncpg://")
    assert doctor(DATABASE_URL=through_sqlalchemy)[0] == 0
    assert doctor(DATABASE_URL=f"sqlite:///{tmp_path}/new.db")[0] == 0


def test_doctor_says_what_to_do_about_servers_that_do_not_answer() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: refused
        host = f"127.0.0.1:{closed.getsockname()[1]}"
        code, out, err = doctor(
            "--json",
            REDIS_URL=f"redis://:hush-hush@{host}/0",
            DATABASE_URL=f"postgresql://me:hush-hush@{host}/name",
        )

    assert (code, err) == (1, "")
    assert "hush" not in out
    found = json.loads(out)
    assert not found["passed"]
    failed = {check["name"]: check for check in found["checks"] if check["state"] == "failed"}
    assert set(failed) == {"redis", "database"}
    assert failed["redis"]["advice"] == "start Redis there, or correct REDIS_URL (connection refused)"


def test_doctor_does_not_wait_for_a_server_that_is_silent() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        code, out, err = doctor(REDIS_URL=f"redis://:hush-hush@127.0.0.1:{port}/0")

    assert code == 1
    assert "hush" not in out + err
    assert "start Redis there" in " ".join(out.split())


def test_doctor_shows_a_bad_setting_as_a_finding() -> None:
    code, out, _ = doctor("--json", REDIS_URL="hush-hush")

    assert code == 1
    first = json.loads(out)["checks"][0]
    assert (first["name"], first["state"]) == ("settings", "failed")
    assert "REDIS_URL" in first["advice"]
    assert "hush" not in out


@pytest.mark.parametrize(
    "url",
    [
        " postgresql://me:hush@127.0.0.1:1/db",
        "POSTGRESQL://me:hush@127.0.0.1:1/db",
        "sqlite://me:hush@host/x",
    ],
)
def test_doctor_shows_no_password_of_an_oddly_written_address(url: str) -> None:
    code, out, err = doctor("--json", DATABASE_URL=url)

    assert (code, json.loads(out)["passed"]) == (1, False)
    assert "hush" not in out + err
