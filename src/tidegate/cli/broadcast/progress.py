"""How far something is: a bar for a person at a terminal, a line now and then for a pipe."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tidegate.cli import terminal
from tidegate.cli.times import span
from tidegate.clock import Clock

Show = Callable[[int, str], None]  # how much is done, and that in words
LINE_EVERY: Final = 10.0  # seconds
FRAME_EVERY: Final = 0.1
LOOKS_BACK: Final = 10.0  # seconds that a pace is measured over


class Pace:
    """How fast a count rises, and when it gets there."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def read(self, count: int) -> None:
        now = self._clock.monotonic()
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[1][0] <= now - LOOKS_BACK:  # noqa: PLR2004  (a pace has two ends)
            self._seen.popleft()

    def per_second(self) -> float:
        (start, first), (end, last) = self._seen[0], self._seen[-1]
        return (last - first) / (end - start) if end > start else 0.0

    def words(self, total: int) -> str:
        rate = self.per_second()
        left = total - self._seen[-1][1]
        return f"{rate:.1f}/s, {span(left / rate)} left" if rate > 0 else self._without_rate()

    def _without_rate(self) -> str:
        long = self._seen[-1][0] - self._seen[0][0] >= LOOKS_BACK
        return "standing still" if long else "no pace yet"


@contextmanager
def phase(clock: Clock, what: str, total: int, *, as_json: bool) -> Iterator[Show]:
    """Gives a function to call as often as one likes. The bar is gone at the end; lines stay."""
    if terminal.is_watched() and not as_json:
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}")
        with Progress(*columns, console=Console(), auto_refresh=False, transient=True) as bar:
            task = bar.add_task(what, total=total, words="")
            yield _now_and_then(
                clock,
                FRAME_EVERY,
                lambda done, words: bar.update(task, completed=done, words=words, refresh=True),
            )
        return
    say = terminal.note if as_json else terminal.put_line
    yield _now_and_then(clock, LINE_EVERY, lambda _, words: say(f"{what}: {words}"))


def _now_and_then(clock: Clock, seconds: float, show: Show) -> Show:
    due = clock.monotonic() + seconds

    def show_if_due(done: int, words: str) -> None:
        nonlocal due
        if clock.monotonic() >= due:
            due = clock.monotonic() + seconds
            show(done, words)

    return show_if_due
