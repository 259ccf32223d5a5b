"""Errors of a command: one line on stderr, and an exit code."""

import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import typer

from tidegate.errors import BadInputError, TidegateError
from tidegate.extras import missing_extra
from tidegate.scrubber import scrub_secrets

FAILED, BAD_USAGE, INTERRUPTED, UNREAD = 1, 2, 130, 141  # 128 + SIGINT, 128 + SIGPIPE
_INVALID = re.compile(r"^Invalid value for '([^']+)': (?:Value error, )?")
_OURS = (
    (re.compile(r"Input should be a valid integer.*"), "write a whole number"),
    (re.compile(r"Input should be a valid number.*"), "write a number"),
    (re.compile(r"Input should be less than or equal to (\S+)"), r"must be at most \1"),
    (re.compile(r"Input should be greater than or equal to (\S+)"), r"must be at least \1"),
)
JSON_WRITTEN: Final = set[str]()  # not empty: this command has written its object to stdout
_EXPECTED = (typer.TyperException, typer.Abort, TidegateError, OSError)


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise BadInputError for arguments that are not UTF-8: writing them would fail later."""
    try:
        for argument in arguments:
            argument.encode()
    except UnicodeEncodeError:
        raise BadInputError("an argument is not valid UTF-8: convert it first") from None


def wants_traceback(error: Exception) -> bool:
    """Return True for an unexpected error if TIDEGATE_DEBUG is set."""
    return bool(os.environ.get("TIDEGATE_DEBUG")) and not isinstance(_only(error), _EXPECTED)


def wants_json(arguments: Sequence[str]) -> bool:
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def complain(error: Exception, *, as_json: bool = False) -> int:
    """Print the error on stderr; return the exit code.

    With `as_json`, stdout gets an object with `error`, unless the command has written its own.
    """
    error = _only(error)
    _discard_unwritable_output()
    if isinstance(error, BrokenPipeError):
        return UNREAD
    line = line_for(error)
    with suppress(OSError):
        sys.stderr.write(f"tidegate: {line}\n")
    if as_json and not JSON_WRITTEN:
        with suppress(OSError):
            sys.stdout.write(json.dumps({"error": line}) + "\n")
            sys.stdout.flush()
    if isinstance(error, typer.Abort) and not isinstance(error.__context__, EOFError):
        return INTERRUPTED  # Ctrl-C at a question, not Ctrl-D
    bad_usage = isinstance(error, BadInputError) or getattr(error, "exit_code", FAILED) == BAD_USAGE
    return BAD_USAGE if bad_usage else FAILED


def line_for(error: Exception) -> str:
    """Return what is printed. Arguments and names of files, which others quote, may hold a token."""
    return scrub_secrets(_line_for(error))


def _line_for(error: Exception) -> str:
    if isinstance(error, typer.TyperException):
        return _usage(error)
    if isinstance(error, TidegateError):
        return _one_line(str(error))
    if isinstance(error, OSError):
        about = "" if error.filename is None else f"{error.filename}: "
        return _one_line(about + (error.strerror or str(error)))
    if isinstance(error, typer.Abort):
        return "aborted"
    known = _one_line(f"{type(error).__name__}: {error}")
    return f"unexpected error: {known}; please report it (TIDEGATE_DEBUG=1 shows more)"


def _only(error: Exception) -> Exception:
    """Return the single error of a task group, and for a missing library the error that names its extra."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    missing = missing_extra(error) if isinstance(error, ModuleNotFoundError) else None
    return missing or error


def _usage(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)  # usage errors know their command
    command = context.command_path if context is not None else "tidegate"
    text = _one_line(error.format_message()).removesuffix(".")
    text = _INVALID.sub(r"\1: ", text)
    for theirs, ours in _OURS:
        text = theirs.sub(ours, text)
    first = text if text[:2].isupper() else f"{text[:1].lower()}{text[1:]}"  # ID stays ID
    return f"{first}; see {command} --help"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _discard_unwritable_output() -> None:
    """Discard output that cannot be written, so that the flush at exit does not fail.

    The reader of a pipe has gone (`tidegate … | head`), or the disk is full.
    """
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
