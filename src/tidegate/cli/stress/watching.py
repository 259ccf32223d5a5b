"""While a scenario is played: a bar for whoever watches, Ctrl-C that keeps what was measured, no log."""

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

SIGNALS = (signal.SIGINT, signal.SIGTERM)
Show = Callable[[str, float, float], None]
"""What is played, the seconds played, and of how many."""


class Stop:
    """Whether somebody has had enough."""

    asked = False


@contextmanager
def stopping() -> Iterator[Stop]:
    """The first Ctrl-C or SIGTERM asks to stop; a second one is not waited for."""
    stop, before = Stop(), [signal.getsignal(number) for number in SIGNALS]

    def ask(number: int, _frame: FrameType | None) -> None:
        stop.asked = True
        signal.signal(number, signal.default_int_handler)

    for number in SIGNALS:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def quiet() -> Iterator[None]:
    """The report tells what went wrong; the log would say it once more, for each time."""
    logger = logging.getLogger("tidegate")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def bar() -> Iterator[Show]:
    """A bar on stderr for each thing that is played, if a person looks."""
    if not sys.stderr.isatty():
        yield lambda _title, _done, _total: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} s"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks = {}

        def show(title: str, done: float, total: float) -> None:
            if title not in tasks:
                tasks[title] = progress.add_task(title, total=total)
            progress.update(tasks[title], completed=done)

        yield show
