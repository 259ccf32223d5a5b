"""The table of commands: what `tidegate --help` lists, and what is imported when."""

import subprocess
import sys

import pytest

from tidegate.cli.app import COMMANDS, load_command, run


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_command_says_of_itself(name: str) -> None:
    command = load_command(name)
    assert command.name == name
    assert command.help.split("\n\n")[0].startswith(COMMANDS[name][1].removesuffix("."))


def test_help_imports_no_command() -> None:
    look = (
        "import sys; from tidegate.cli.app import run; run(['--help']);"
        "print(*(name for name in ('aiohttp', 'msgspec', 'tidegate.gate') if name in sys.modules))"
    )
    command = [sys.executable, "-c", look]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    assert shown.splitlines()[-1] == ""


@pytest.mark.parametrize("arguments", ["", "queue", "queue why", "reminders import", "sim telegram"])
def test_the_help_shows_no_flag_as_if_it_took_a_value(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--help" in shown
    assert "<bool>" not in shown
