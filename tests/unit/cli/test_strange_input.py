"""Strange input gets one line and an exit code, never a traceback."""

import itertools
import json
import math
import os
import sys
from pathlib import Path

import pytest
import typer

from tidegate.cli import main
from tidegate.cli.errors import complain, line_for
from tidegate.cli.terminal import confirm, put_json
from tidegate.errors import BadInputError

NOT_UTF_8 = os.fsdecode(b"\xff\xfe")
HUGE = "9" * 23


@pytest.fixture(autouse=True)
def a_store_with_a_bot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TIDEGATE_STORE", "TIDEGATE_KEY", "TIDEGATE_DEBUG", "TELEGRAM_BOT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "42:hush")
    assert main(["bot", "add", "--no-check"]) == 0
    capsys.readouterr()


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    ended = main(arguments)
    output = capsys.readouterr()
    assert (ended, output.out) == (code, ""), output.err
    (line,) = output.err.splitlines()
    assert "hush" not in line
    return line


@pytest.mark.parametrize("number", [HUGE, "0", "-1", str(2**53 + 1)])
@pytest.mark.parametrize(
    "command",
    ["queue list", "queue cancel --yes", "dlq list", "dlq drop --yes", "forget 5 --yes", "send 5 x"],
)
def test_a_bots_number_that_no_store_can_hold_is_refused(
    command: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--bot: not a bot's number" in complaint(capsys, *command.split(), "--bot", number)


@pytest.mark.parametrize(
    "command",
    [
        "send 1001 x --dedup-key",
        "send 1001",
        "queue show",
        "queue why",
        "queue cancel",
        "dlq list --reason",
        "dlq drop --yes --reason",
        "dlq replay --reason",
        "bot add --api-url",
        "queue list --store",
    ],
)
def test_an_argument_that_is_not_utf_8_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "an argument is not valid UTF-8" in complaint(capsys, *command.split(), NOT_UTF_8)


def test_arguments_of_the_process_are_looked_at_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tidegate", "queue", "show", NOT_UTF_8])

    assert main() == 2
    assert "an argument is not valid UTF-8" in capsys.readouterr().err


def test_a_parameter_with_the_name_of_one_of_pythons_is_sent(capsys: pytest.CaptureFixture[str]) -> None:
    new = ["--method", "sendSomethingNew"]
    assert main(["send", "1001", "x", *new, "--param", "self=1", "--param", "items=2", "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["params"] == {"text": "x", "self": 1, "items": 2}


def test_a_misspelt_parameter_is_refused_and_the_one_that_may_be_meant_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "people.csv").write_text("chat_id\n1001\n")
    commands = (["send", "1001", "x"], ["broadcast", "people.csv", "--text", "x"])
    for command in commands:
        line = complaint(capsys, *command, "--param", "parse_mod=HTML")

        assert "--param: 'parse_mod' is no parameter of sendMessage: 'parse_mode' may be meant" in line
        assert """give --param 'extra={"parse_mod": …}'""" in line


def test_a_parameter_that_is_not_known_yet_is_sent_as_extra(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["send", "1001", "x", "--param", 'extra={"sparkle": true}', "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["params"] == {"text": "x", "sparkle": True}


def test_an_empty_dedup_key_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    line = complaint(capsys, "send", "1001", "x", "--dedup-key", "")

    assert "--dedup-key: the key is empty: give one, or leave the option out" in line


def test_the_hint_names_no_store_where_none_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["send", "1001", "x", "--store", ""]) == 0

    assert capsys.readouterr().err.endswith("start one with tidegate worker\n")


def test_park_and_resend_together_are_a_choice_to_make(capsys: pytest.CaptureFixture[str]) -> None:
    assert "pass one of them" in complaint(capsys, "restore", "x.db", "--park", "--resend")
    assert "pass --park to hold them back" in complaint(capsys, "restore", "x.db")


def test_an_address_with_a_password_is_refused_and_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    line = complaint(capsys, "bot", "add", "--no-check", "--api-url", "http://me:hush@example.org")

    assert "--api-url: the address must not contain a user or a password" in line


def test_looking_needs_no_key(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TIDEGATE_KEY", "hush")

    for command in ("queue list", "queue stats", "dlq list", "bot list"):
        assert main(command.split()) == 0
    capsys.readouterr()

    assert "TIDEGATE_KEY: what it holds is no key" in complaint(capsys, "key", "rotate")
    assert "TIDEGATE_KEY: what it holds is no key" in complaint(capsys, "bot", "add", "--no-check")


def broken(**_: object) -> int:
    raise ZeroDivisionError(f"at 42:{'hush' * 10}\nand so on")


def test_a_mistake_of_ours_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tidegate.cli.doctor.examine", broken)

    line = complaint(capsys, "doctor", code=1)

    assert line.startswith("tidegate: unexpected error: ZeroDivisionError: at 42:… and so on; please report")


def test_a_mistake_of_ours_is_a_traceback_without_a_token_for_whoever_looks_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tidegate.cli.doctor.examine", broken)
    monkeypatch.setenv("TIDEGATE_DEBUG", "1")

    assert main(["doctor"]) == 1

    written = capsys.readouterr().err
    assert written.startswith("Traceback")
    assert "ZeroDivisionError: at 42:… and so on" in written


def test_what_went_wrong_in_one_of_several_tasks_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert complain(ExceptionGroup("tasks", [BadInputError("say which")])) == 2
    assert capsys.readouterr().err == "tidegate: say which\n"


def test_an_error_of_the_system_names_the_file() -> None:
    error = FileNotFoundError(2, "No such file or directory", "people.csv")

    assert line_for(error) == "people.csv: No such file or directory"
    assert line_for(OSError(28, "No space left on device")) == "No space left on device"


def test_numbers_that_json_lacks_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    put_json({"at": math.inf, "each": [math.nan, 1.5, ({"deep": -math.inf},)]})

    assert json.loads(capsys.readouterr().out) == {"at": None, "each": [None, 1.5, [{"deep": None}]]}


@pytest.mark.parametrize(("pressed", "code"), [(KeyboardInterrupt, 130), (EOFError, 1)])
def test_ctrl_c_at_a_question_ends_with_130(
    pressed: type[BaseException],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def press(*_: object) -> str:
        raise pressed

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", press)
    monkeypatch.setattr("typer._click.termui.visible_prompt_func", press, raising=False)

    with pytest.raises(typer.Abort) as caught:
        confirm("Sure?", yes=False)

    assert complain(caught.value) == code
    assert capsys.readouterr().err.endswith("tidegate: aborted\n")


@pytest.mark.parametrize(
    "command", ["bot add", "restore", "key rotate", "sim telegram", "demo", "dlq replay", "broadcast"]
)
def test_help_has_no_stray_short_lines(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    assert main([*command.split(), "--help"]) == 0

    text = capsys.readouterr().out.partition("╭")[0]
    lines = [line.strip() for line in text.splitlines()]
    for line, following in itertools.pairwise(lines):
        if line and following:
            assert len(line) + len(following.split()[0]) + 1 > 76, line


def test_an_emptied_store_is_not_taken_for_a_new_one_by_whoever_looks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("tidegate.db").write_bytes(b"")

    assert "tidegate.db is empty" in complaint(capsys, "queue", "stats")
    assert not Path("tidegate.db").read_bytes()
