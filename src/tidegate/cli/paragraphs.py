"""The texts of --help as wide as the terminal: the lines of a docstring are no lines of their own."""

import inspect
from typing import Any


def unwrap(command: Any) -> None:  # noqa: ANN401  (Typer does not export what a command is)
    """Make one line of each paragraph, here and in every command below: Rich would wrap it twice."""
    if command.help:
        paragraphs = inspect.cleandoc(command.help).split("\n\n")
        command.help = "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
    for below in getattr(command, "commands", {}).values():
        unwrap(below)
