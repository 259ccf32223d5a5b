"""Progress bars, rates and sparklines of work that takes a while."""

import math
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tidegate.cli import terminal
from tidegate.cli.messages import COUNTED, Selection
from tidegate.cli.times import span
from tidegate.clock import Clock
from tidegate.model import TicketId
from tidegate.outbox.port import Outbox

MESSAGES_PER_STEP = 1_000  # in one transaction: other processes write in between
Act = Callable[[list[TicketId]], Awaitable[int]]
Tell = Callable[[int], None]


async def work_off(outbox: Outbox, selection: Selection, act: Act, tell: Tell) -> int:
    """Act on all that the selection finds, step by step; return how many were changed.

    `act` must take what it changes out of the selection. A step that changes nothing ends it: another process
    was faster.
    """
    done = 0
    while chunk := await selection.records(outbox, MESSAGES_PER_STEP):
        changed = await act([record.message.id for record in chunk])
        if not changed:
            break
        done += changed
        tell(done)
    return done


async def work_through(ids: Sequence[TicketId], act: Act, tell: Tell) -> int:
    """Act on these messages, step by step; return how many were changed."""
    done = 0
    for start in range(0, len(ids), MESSAGES_PER_STEP):
        done += await act(list(ids[start : start + MESSAGES_PER_STEP]))
        tell(done)
    return done


@contextmanager
def progress_bar(title: str, expected: int) -> Iterator[Tell]:
    """Show a bar on stderr if there are several steps and stderr is a terminal."""
    if expected <= MESSAGES_PER_STEP or not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=terminal.ScrubbedConsole(stderr=True)) as progress:
        task = progress.add_task(title, total=None if expected > COUNTED else expected)
        yield lambda done: progress.update(task, completed=done)


ShowProgress = Callable[[int, str], None]  # how much is done, as a number and in words
LINE_EVERY: Final = 10.0  # seconds
FRAME_EVERY: Final = 0.1
RATE_SECONDS: Final = 10.0  # over which a rate is measured


class CountRate:
    """The rate at which a count rises, and when it reaches its total."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def read(self, count: int) -> None:
        now = self._clock.monotonic()
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[1][0] <= now - RATE_SECONDS:  # noqa: PLR2004  (a rate has two ends)
            self._seen.popleft()

    def per_second(self) -> float:
        (start, first), (end, last) = self._seen[0], self._seen[-1]
        return (last - first) / (end - start) if end > start else 0.0

    def words(self, total: int) -> str:
        rate = self.per_second()
        left = total - self._seen[-1][1]
        return f"{rate:.1f}/s, {span(left / rate)} left" if rate > 0 else self._without_rate()

    def _without_rate(self) -> str:
        long = self._seen[-1][0] - self._seen[0][0] >= RATE_SECONDS
        return "no progress" if long else "no rate yet"


@contextmanager
def phase(clock: Clock, what: str, total: int, *, as_json: bool) -> Iterator[ShowProgress]:
    """Give a function that shows progress: a bar at a terminal, which is gone at the end, or lines."""
    if terminal.is_watched() and not as_json:
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}")
        with Progress(
            *columns,
            console=terminal.ScrubbedConsole(),
            auto_refresh=False,
            transient=True,
            redirect_stderr=sys.stderr.isatty(),  # what goes to a file stays there
        ) as bar:
            task = bar.add_task(what, total=total, words="")
            yield _now_and_then(
                clock,
                FRAME_EVERY,
                lambda done, words: bar.update(task, completed=done, words=words, refresh=True),
            )
        return
    say = terminal.note if as_json else terminal.put_line
    yield _now_and_then(clock, LINE_EVERY, lambda _, words: say(f"{what}: {words}"))


def _now_and_then(clock: Clock, seconds: float, show: ShowProgress) -> ShowProgress:
    due = clock.monotonic() + seconds

    def show_if_due(done: int, words: str) -> None:
        nonlocal due
        if clock.monotonic() >= due:
            due = clock.monotonic() + seconds
            show(done, words)

    return show_if_due


BARS = "▁▂▃▄▅▆▇█"


class Meter:
    """Counts per second, from a total that is read now and then. Keeps the last `seconds`.

    Times must not go back; a total that falls was reset.
    """

    def __init__(self, seconds: int = 60) -> None:
        self._seconds = seconds
        self._times: list[float] = []
        self._totals: list[int] = []

    def read(self, now: float, total: int) -> None:
        self._times.append(now)
        self._totals.append(total)
        old = bisect_right(self._times, now - self._seconds - 2)
        del self._times[:old], self._totals[:old]

    def per_second(self) -> int:
        """Return the count of the latest second."""
        return self._between(self._times[-1] - 1, self._times[-1]) if self._times else 0

    def history(self) -> list[int]:
        """Return the counts of the last whole seconds, oldest first."""
        end = math.floor(self._times[-1]) if self._times else 0
        return [self._between(end - i - 1, end - i) for i in reversed(range(self._seconds))]

    def _between(self, start: float, end: float) -> int:
        return max(0, self._at(end) - self._at(start))

    def _at(self, time: float) -> int:
        return self._totals[max(0, bisect_right(self._times, time) - 1)] if self._totals else 0


def sparkline(counts: list[int], top: int) -> str:
    """Return one bar character for each count; `top` and above are full."""
    return "".join(_bar(count, max(1, top)) for count in counts)


def _bar(count: int, top: int) -> str:
    return BARS[min(len(BARS) - 1, count * len(BARS) // (top + 1))] if count else " "
