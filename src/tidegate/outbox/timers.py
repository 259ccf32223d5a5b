"""The times at which a schedule has something to do, soonest first."""

import heapq
import itertools
from collections.abc import Iterator
from enum import Enum, auto

from tidegate.outbox.lanes import NEVER, WAITING, Entry, Line, Pool


class Wake(Enum):
    """What a time is for."""

    LINE = auto()  # a line may go
    POOL = auto()  # a pool may have a slot
    JOIN = auto()  # an entry is due
    EXPIRE = auto()  # an entry's deadline passes


class Timers:
    """A timer is never taken back: once what it was set for has changed, it says nothing and is dropped."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Wake, Line | Pool | Entry]] = []
        self._numbers = itertools.count()
        self._compact_at = 1_000

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, at: float, kind: Wake, what: Line | Pool | Entry) -> None:
        if len(self._heap) >= self._compact_at:
            self._compact()
        heapq.heappush(self._heap, (at, next(self._numbers), kind, what))

    def due(self, now: float) -> Iterator[tuple[Wake, Line | Pool | Entry]]:
        """What is due and still says something, in order. More may be set meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)
            if _says_something(*timer):
                yield timer[2], timer[3]

    def soonest(self) -> float:
        return self._heap[0][0] if self._heap else NEVER

    def _compact(self) -> None:
        """At twice what is left each time, which keeps it cheap on average."""
        self._heap = [timer for timer in self._heap if _says_something(*timer)]
        heapq.heapify(self._heap)
        self._compact_at = max(1_000, 2 * len(self._heap))


def _says_something(at: float, _: int, kind: Wake, what: Line | Pool | Entry) -> bool:
    if isinstance(what, Line):
        return what.place == WAITING and what.wake_at == at
    if isinstance(what, Pool):
        return what.wake_at == at
    return not what.gone and (kind is Wake.JOIN or what.expires == at)
