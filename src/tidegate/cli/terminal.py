"""Output for a person at a terminal, for a pipe or as one JSON object, and the questions asked there."""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from tidegate.cli.errors import JSON_WRITTEN
from tidegate.errors import BadInputError, TidegateError
from tidegate.scrubber import scrub_secrets
from tidegate.settings import Settings

Draw = Callable[[], None]


def is_watched() -> bool:
    """Return True if stdout is a terminal, so that a person sees it."""
    return sys.stdout.isatty()


def report(found: Mapping[str, object], *parts: RenderableType, as_json: bool) -> None:
    """Print a command's result: as one JSON object for a program, or its parts for a person.

    Parts that are strings are written as they are: Rich would read brackets in them as markup.
    """
    if as_json:
        put_json(found)
        return
    for part in parts:
        put_line(part) if isinstance(part, str) else put(part)


def report_secret(found: Mapping[str, object], name: str, secret: str, *, as_json: bool) -> None:
    """Print a secret that was just made, which no other function here would show.

    Alone on its line, so that `$(…)` catches it; in JSON beside what was found, under `name`.
    """
    if as_json:
        put_json(found, {name: secret})
        return
    sys.stdout.write(secret + "\n")
    sys.stdout.flush()


class ScrubbedConsole(Console):
    """Rich's console, which shows no secret: texts are scrubbed before they are wrapped."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, str):
            renderable = scrub_secrets(renderable)
        elif isinstance(renderable, Text) and (clean := scrub_secrets(renderable.plain)) != renderable.plain:
            renderable = Text(clean, renderable.style, overflow=renderable.overflow)
        return super().render(renderable, options)


def put(picture: RenderableType) -> None:
    ScrubbedConsole().print(picture)


def put_line(line: str) -> None:
    """Write a line as it is, without secrets, however long: a program may look for an address in it."""
    sys.stdout.write(scrub_secrets(line) + "\n")
    sys.stdout.flush()


def put_json(found: Mapping[str, object], secrets: Mapping[str, str] | None = None) -> None:
    """Write one line of JSON, with no secrets but these. Numbers that JSON lacks (infinity, NaN) are null."""
    JSON_WRITTEN.add("stdout")
    told = {_writable(name): _writable(value) for name, value in found.items()} | dict(secrets or {})
    sys.stdout.write(json.dumps(told, allow_nan=False) + "\n")
    sys.stdout.flush()


def _writable(value: object) -> object:
    if isinstance(value, str):
        return scrub_secrets(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_writable(name): _writable(item) for name, item in value.items()}
    return [_writable(item) for item in value] if isinstance(value, list | tuple) else value


def note(line: str) -> None:
    """Write a line for a person to stderr: stdout may belong to a program."""
    sys.stderr.write(scrub_secrets(line) + "\n")
    sys.stderr.flush()


def announce(line: str, *, as_json: bool) -> None:
    """Say what a command that runs for a while does: on stderr if stdout gets JSON."""
    note(line) if as_json else put_line(line)


@contextmanager
def command_log() -> Iterator[None]:
    """Log to stderr while a command runs that runs for long: TIDEGATE_LOG_LEVEL, TIDEGATE_LOG_FORMAT."""
    from tidegate.ops import log_format  # noqa: PLC0415  (slow to import: `--help` does without)

    with log_format.command_log(Settings.read()):
        yield


@contextmanager
def drawing(picture: Callable[[], RenderableType]) -> Iterator[Draw]:
    """Give a function that draws `picture` again in place; it is drawn a last time at the end."""
    with Live(
        console=ScrubbedConsole(),
        auto_refresh=False,
        vertical_overflow="crop",
        redirect_stderr=sys.stderr.isatty(),  # its lines come above the picture; those of a file go there
    ) as live:

        def draw() -> None:
            live.update(picture(), refresh=True)

        yield draw
        draw()


def printable(value: object) -> str:
    """Return a text without secrets, and control characters as spaces: those could steer the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in scrub_secrets(str(value)))


class DeclinedError(TidegateError):
    """A person answered no."""


def confirm(question: str, *, yes: bool) -> None:
    """Return if a person agrees. Asks on stderr, since stdout may belong to a program.

    Call it outside an event loop: inside one, Ctrl-C would not end the question.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInputError(f"{question} Not a terminal: pass --yes to confirm.")
    if not typer.confirm(question, err=True):
        raise DeclinedError("aborted")
