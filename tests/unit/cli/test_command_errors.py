"""Whatever is asked wrongly gets one line on stderr, and exit code 2."""

import errno
import json
from pathlib import Path

import pytest

from tidegate.cli import main
from tidegate.cli.listen_address import ListenAddress
from tidegate.loopback import is_loopback


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("nonsense", "no such command 'nonsense'"),
        ("sim nonsense", "no such command 'nonsense'; see tidegate sim --help"),
        ("sim telegram --nonsense", "no such option: --nonsense"),
        ("sim telegram --bot-rate 30/", "--bot-rate: '30/' is not a limit"),
        ("sim telegram --latency fast", "--latency: 'fast' is not a latency"),
        ("sim telegram --lost-answers 1.01", "--lost-answers: '1.01' is not a share"),
        ("sim telegram --port 65536", "--port: must be at most 65535"),
        ("sim telegram --port http", "--port: write a whole number"),
        ("sim telegram --closes everything", "--closes: "),
        ("sim telegram --token hush", "--token: "),
        ("sim telegram --latency 0~5", "the median, before the ~, must be above 0"),
        ("sim telegram --escalate --closes nothing", "set closes to chat or bot"),
        ("sim telegram --host=", "--host: an empty name would mean every network"),
        ("sim telegram surplus", "see tidegate sim telegram --help"),
        ("demo --seconds 0", "--seconds: "),
        ("demo --seconds 601", "--seconds: "),
        ("demo --people 0", "--people: "),
        ("demo --people many", "see tidegate demo --help"),
        ("sim demo", "no such command 'demo'; see tidegate sim --help"),
        ("doctor --nonsense", "see tidegate doctor --help"),
    ],
)
def test_bad_input_is_one_line(arguments: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(arguments.split())

    output = capsys.readouterr()
    assert code == 2
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert line.startswith("tidegate: ")
    assert told in line
    assert "hush" not in line


@pytest.mark.parametrize(
    "arguments", ["queue show nobody --json", "queue nonsense --json", "doctor --json --no"]
)
def test_json_is_written_for_an_error_too(
    arguments: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    code = main(arguments.split())

    output = capsys.readouterr()
    (line,) = output.err.splitlines()
    assert (code, json.loads(output.out)) == (2, {"error": line.removeprefix("tidegate: ")})


def test_a_text_that_reads_json_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "show", "a", "b", "--", "--json"]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("arguments", [[], ["--help"], ["sim"], ["sim", "telegram", "-h"], ["demo", "-h"]])
def test_help_is_no_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    assert "Usage: tidegate" in capsys.readouterr().out


def test_version_is_said_in_three_ways(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == main(["version"]) == main(["version", "--json"]) == 0

    first, second, third = capsys.readouterr().out.splitlines()
    assert first == second
    known = json.loads(third)
    assert first == f"tidegate {known['version']} (Python {known['python']})"


def test_ctrl_c_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tidegate.cli.doctor.examine", interrupted)

    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == ""


def test_why_a_server_cannot_listen() -> None:
    place = ListenAddress("127.0.0.1", 80)

    assert place.why_not(OSError(errno.EADDRINUSE, "")) == (
        "port 80 on 127.0.0.1 is in use: choose another with --port"
    )
    assert "(permission denied)" in place.why_not(PermissionError(errno.EACCES, "Permission denied"))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("example.org", False)],  # noqa: S104
)
def test_only_loopback_is_private(host: str, loopback: bool) -> None:  # noqa: FBT001
    assert is_loopback(host) is loopback


def test_help_tells_python_telegram_bot_where_files_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "telegram", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "8081/bot" in shown
    assert "8081/file/bot" in shown


@pytest.mark.parametrize("arguments", ["nobody.csv", "--text Hi nobody.csv", "run nobody.csv"])
def test_broadcast_takes_a_file_without_a_subcommand(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["broadcast", *arguments.split()]) == 2
    assert "cannot read nobody.csv" in capsys.readouterr().err
