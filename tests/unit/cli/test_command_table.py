"""The table of commands: what `tidegate --help` lists, and what is imported when."""

import subprocess
import sys

import pytest

from tidegate.cli.app import COMMANDS, load_command


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
