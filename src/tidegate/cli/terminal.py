"""Output for a person at a terminal, for a pipe or as one JSON object, and the questions asked there."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import typer
from rich.console import Console, RenderableType
from rich.live import Live

from tidegate.errors import BadInputError, TidegateError

Draw = Callable[[], None]


def is_watched() -> bool:
    """Whether a person looks at what is written."""
    return sys.stdout.isatty()


def put(picture: RenderableType) -> None:
    Console().print(picture)


def put_line(line: str) -> None:
    """As it is, however long: a program may look for an address in it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def put_json(report: Mapping[str, object]) -> None:
    """What JSON has no number for, such as a time that never comes, is null."""
    sys.stdout.write(json.dumps(_finite(report), allow_nan=False) + "\n")
    sys.stdout.flush()


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def note(line: str) -> None:
    """For a person, where stdout belongs to a program."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


@contextmanager
def drawing(picture: Callable[[], RenderableType]) -> Iterator[Draw]:
    """Gives a function that draws `picture` anew, in place; draws a last time at the end."""
    with Live(console=Console(), auto_refresh=False, vertical_overflow="crop") as live:

        def draw() -> None:
            live.update(picture(), refresh=True)

        yield draw
        draw()


def printable(value: object) -> str:
    """Without what could steer the terminal: people write what they like."""
    return "".join(letter if letter.isprintable() else " " for letter in str(value))


class DeclinedError(TidegateError):
    """A person said no."""


def confirm(question: str, *, yes: bool) -> None:
    """Returns if it may be done. Asks on stderr, since stdout may belong to a program.

    Ask outside an event loop: inside one, Ctrl-C would not end the question.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInputError(f"{question} Nobody can be asked here: add --yes if it shall be done")
    if not typer.confirm(question, err=True):
        raise DeclinedError("aborted")
