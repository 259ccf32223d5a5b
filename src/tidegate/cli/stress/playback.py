"""Playing a scenario: a progress bar, Ctrl-C that keeps the measurements, tables that fit the terminal."""

import logging
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ShowPlayed(Protocol):
    def __call__(self, title: str, done: float, total: float, words: str = "") -> None:
        """Show how many seconds of the total are played; `words` say it in another unit."""


class StopFlag:
    """Set by the first Ctrl-C."""

    asked = False


@contextmanager
def stopping() -> Iterator[StopFlag]:
    """Give a flag that the first Ctrl-C or SIGTERM sets; a second one interrupts at once."""
    stop, before = StopFlag(), [signal.getsignal(number) for number in SIGNALS]

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
    """Log critical errors only: the report says what went wrong."""
    logger = logging.getLogger("tidegate")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def play_bar() -> Iterator[ShowPlayed]:
    """Show a bar on stderr for each scenario, if it is a terminal."""
    if not sys.stderr.isatty():
        yield _show_nothing
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[words]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks = {}

        def show(title: str, done: float, total: float, words: str = "") -> None:
            if title not in tasks:
                tasks[title] = progress.add_task(title, total=total, words="")
            progress.update(tasks[title], completed=done, words=words or f"{done:.0f} of {total:.0f} s")

        yield show


def _show_nothing(title: str, done: float, total: float, words: str = "") -> None:
    """Where there is no terminal."""


ENDLESS = 10_000  # columns: wider than any table


class FittingTable:
    """A table if it fits the terminal, else its blocks: no number is cut."""

    def __init__(self, table: Table, blocks: RenderableType) -> None:
        self._table, self._blocks = table, blocks

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        endless = options.update(width=ENDLESS)
        needed = Measurement.get(console, endless, self._table).maximum
        yield self._table if needed <= options.max_width else self._blocks


def cell_block(heading: str, cells: Mapping[str, Text]) -> RenderableType:
    """Return names with their values, as many in a line as fit."""
    pairs = [Text.assemble((name, "dim"), " ", value, overflow="fold") for name, value in cells.items()]
    return Group(Text(heading, style="bold"), Columns(pairs, padding=(0, 2), equal=True))
