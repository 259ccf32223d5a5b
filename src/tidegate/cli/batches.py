"""Many messages in steps that each take a moment, with a bar where somebody watches."""

import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tidegate.cli.selection import COUNTED, Selection
from tidegate.model import TicketId
from tidegate.outbox.base import Outbox

STEP = 1_000  # messages in one transaction: others get their turn in between
Act = Callable[[list[TicketId]], Awaitable[int]]
Tell = Callable[[int], None]


async def work_off(outbox: Outbox, selection: Selection, act: Act, tell: Tell) -> int:
    """Act on all that the selection finds; `act` takes what it changed out of it. Returns how many.

    Ends where a step changes nothing: someone else was faster.
    """
    done = 0
    while chunk := await selection.records(outbox, STEP):
        changed = await act([record.message.id for record in chunk])
        if not changed:
            break
        done += changed
        tell(done)
    return done


async def work_through(ids: Sequence[TicketId], act: Act, tell: Tell) -> int:
    """Act on these; returns how many."""
    done = 0
    for start in range(0, len(ids), STEP):
        done += await act(list(ids[start : start + STEP]))
        tell(done)
    return done


@contextmanager
def bar(title: str, expected: int) -> Iterator[Tell]:
    """A bar on stderr, if this takes more than one step and a person looks; its total may not be known."""
    if expected <= STEP or not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=None if expected > COUNTED else expected)
        yield lambda done: progress.update(task, completed=done)
