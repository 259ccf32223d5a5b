"""What a person is told when a command cannot do what was asked: one line, and an exit code."""

import os
import re
import sys

import typer

from tidegate.errors import BadInputError, TidegateError

FAILED, ASKED_WRONGLY, UNREAD = 1, 2, 141  # 141: 128 + SIGPIPE
_INVALID = re.compile(r"^Invalid value for '([^']+)': (?:Value error, )?")


def complain(error: Exception) -> int:
    """Say on stderr what went wrong; returns the exit code."""
    if isinstance(error, BrokenPipeError):
        _drop_output()
        return UNREAD
    sys.stderr.write(f"tidegate: {line_for(error)}\n")
    wrongly = isinstance(error, BadInputError) or getattr(error, "exit_code", FAILED) == ASKED_WRONGLY
    return ASKED_WRONGLY if wrongly else FAILED


def line_for(error: Exception) -> str:
    if isinstance(error, typer.TyperException):
        return _usage(error)
    if isinstance(error, TidegateError):
        return _one_line(str(error))
    if isinstance(error, OSError):
        return _one_line(error.strerror or str(error))
    return "aborted"


def _usage(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)  # usage errors know which command was meant
    command = context.command_path if context is not None else "tidegate"
    text = _one_line(error.format_message()).removesuffix(".")
    text = _INVALID.sub(r"\1: ", text)
    return f"{text[:1].lower()}{text[1:]}; see {command} --help"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _drop_output() -> None:
    """Nobody reads any more (`tidegate … | head`): let the flush at exit go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
