"""Writes docs/reference/commands.md, every command with its options, from the commands themselves.

Run it with `make commands-page` after a change of a command.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

from tidegate.cli.app import COMMANDS, load_command

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"
INTRODUCTION: Final = """\
# Every command and option

Written by `make commands-page` from the commands themselves: do not edit. `tidegate COMMAND --help` says the
same. [The command line](cli.md) explains what belongs together, exit codes and the JSON of each command.
"""
_MARKUP: Final = re.compile(r"\[/?[a-z]+\]")  # Rich's
_TRY: Final = re.compile(r"^Try it:\s*")


def page() -> str:
    """Return the text of the page."""
    parts = [section for name in COMMANDS for section in _sections(load_command(name), f"tidegate {name}", 2)]
    return "\n".join([INTRODUCTION, *parts])


def _sections(command: Any, path: str, level: int) -> Iterator[str]:  # noqa: ANN401  (Typer's, not exported)
    """Yield a section for a command that does something, and for each one below it."""
    below = getattr(command, "commands", {})
    rows = [row for one in command.params if (row := _row(one))]
    table = "| | default | |\n|---|---|---|\n" + "".join(rows) if rows else ""
    heading = f"{'#' * level} {path}\n\n"
    parts = (heading + _clean(command.help or ""), _example(command.epilog), table.rstrip())
    yield "\n\n".join(part for part in parts if part) + "\n"
    for name, one in below.items():
        yield from _sections(one, f"{path} {name}", level + 1)


def _example(epilog: str | None) -> str:
    examples = _TRY.sub("", _clean(epilog or "")).split("  ·  ")
    return "" if not epilog else "For example: " + " · ".join(f"`{one.strip()}`" for one in examples)


def _row(parameter: Any) -> str:  # noqa: ANN401  (likewise)
    if parameter.hidden or parameter.name == "help":
        return ""
    if parameter.param_type_name == "argument":
        shown = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        value = "" if parameter.is_flag else f" {_value_of(parameter)}"
        shown = ", ".join(f"`{name}{value}`" for name in (*parameter.opts, *parameter.secondary_opts))
    help_text = _clean(getattr(parameter, "help", None) or "")
    return f"| {_cell(shown)} | {_cell(_default(parameter))} | {_cell(help_text)} |\n"


def _value_of(option: Any) -> str:  # noqa: ANN401  (likewise)
    choices = get_args(option.type_descriptor.annotation)
    if option.metavar is None and choices and all(isinstance(one, str) for one in choices):
        return " or ".join(choices)
    return str(option.metavar or option.name.upper()).replace("|", " or ")


def _default(parameter: Any) -> str:  # noqa: ANN401  (likewise)
    if parameter.required:
        return "required"
    value = parameter.default
    if value is None or value is False or value in ((), [], "") or callable(value):
        return ""
    return "on" if value is True else f"`{value}`"


def _clean(text: str) -> str:
    return _MARKUP.sub("", text).strip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(page())
