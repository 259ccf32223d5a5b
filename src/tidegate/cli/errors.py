"""What a person is told when a command cannot do what was asked: one line, and an exit code."""

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress

import typer

from tidegate.errors import BadInputError, TidegateError

FAILED, ASKED_WRONGLY, INTERRUPTED, UNREAD = 1, 2, 130, 141  # 128 + SIGINT, 128 + SIGPIPE
_INVALID = re.compile(r"^Invalid value for '([^']+)': (?:Value error, )?")
_OURS = (
    (re.compile(r"Input should be a valid integer.*"), "write a whole number"),
    (re.compile(r"Input should be a valid number.*"), "write a number"),
    (re.compile(r"Input should be less than or equal to (\S+)"), r"must be at most \1"),
    (re.compile(r"Input should be greater than or equal to (\S+)"), r"must be at least \1"),
)
_TOKEN = re.compile(r"(\d{1,15}):[\w-]{20,}")
_EXPECTED = (typer.TyperException, typer.Abort, TidegateError, OSError)


def check_arguments(arguments: Sequence[str]) -> None:
    """Bytes that are no text would fail somewhere inside, wherever they are written to."""
    try:
        for argument in arguments:
            argument.encode()
    except UnicodeEncodeError:
        raise BadInputError("an argument is not valid UTF-8: convert it first") from None


def wants_traceback(error: Exception) -> bool:
    """Whoever looks for a mistake of ours sets TIDEGATE_DEBUG."""
    return bool(os.environ.get("TIDEGATE_DEBUG")) and not isinstance(_only(error), _EXPECTED)


def complain(error: Exception) -> int:
    """Say on stderr what went wrong; returns the exit code."""
    error = _only(error)
    _give_up_what_cannot_be_written()
    if isinstance(error, BrokenPipeError):
        return UNREAD
    with suppress(OSError):
        sys.stderr.write(f"tidegate: {line_for(error)}\n")
    if isinstance(error, typer.Abort) and not isinstance(error.__context__, EOFError):
        return INTERRUPTED  # Ctrl-C at a question; Ctrl-D is no answer
    wrongly = isinstance(error, BadInputError) or getattr(error, "exit_code", FAILED) == ASKED_WRONGLY
    return ASKED_WRONGLY if wrongly else FAILED


def line_for(error: Exception) -> str:
    if isinstance(error, typer.TyperException):
        return _usage(error)
    if isinstance(error, TidegateError):
        return _one_line(str(error))
    if isinstance(error, OSError):
        about = "" if error.filename is None else f"{error.filename}: "
        return _one_line(about + (error.strerror or str(error)))
    if isinstance(error, typer.Abort):
        return "aborted"
    known = _TOKEN.sub(r"\1:…", _one_line(f"{type(error).__name__}: {error}"))
    return f"unexpected error: {known}; please report it (TIDEGATE_DEBUG=1 shows more)"


def _only(error: Exception) -> Exception:
    """What went wrong in a group of tasks, if it was one thing."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _usage(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)  # usage errors know which command was meant
    command = context.command_path if context is not None else "tidegate"
    text = _one_line(error.format_message()).removesuffix(".")
    text = _INVALID.sub(r"\1: ", text)
    for theirs, ours in _OURS:
        text = theirs.sub(ours, text)
    return f"{text[:1].lower()}{text[1:]}; see {command} --help"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _give_up_what_cannot_be_written() -> None:
    """Nobody reads any more (`tidegate … | head`), or the disk is full: the flush at exit goes nowhere."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
