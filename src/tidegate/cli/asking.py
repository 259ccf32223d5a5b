"""Whether a person is sure, before something is done that cannot be undone."""

import sys

import typer

from tidegate.errors import BadInputError, TidegateError


class DeclinedError(TidegateError):
    """A person said no."""


def make_sure(question: str, *, yes: bool) -> None:
    """Returns if it may be done. Asks on stderr, since stdout may belong to a program.

    Ask outside an event loop: inside one, Ctrl-C would not end the question.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInputError(f"{question} Nobody can be asked here: add --yes if it shall be done")
    if not typer.confirm(question, err=True):
        raise DeclinedError("aborted")
