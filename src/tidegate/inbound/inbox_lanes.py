"""The order of claims: the first item of each free lane, the earliest first. Pure, ids only."""

from collections import deque
from collections.abc import Collection
from heapq import heappop, heappush

import msgspec

from tidegate.inbound.inbox import SUSPECT_CRASHES, InboxItem, InboxSource

InboxLane = tuple[InboxSource, str]


class WaitingItem(msgspec.Struct):
    number: int  # rises in the order of arrival
    crashes: int = 0
    not_before: float = 0.0  # monotonic


def lane_of(item: InboxItem) -> InboxLane:
    return (item.source, item.lane)


class InboxLanes:
    """Knows a lane as long as one of its items waits or is claimed, and no longer."""

    def __init__(self) -> None:
        self._lanes: dict[InboxLane, deque[WaitingItem]] = {}
        self._claimed: dict[InboxLane, WaitingItem] = {}
        # The first item of each free lane, by source.
        self._ready: dict[InboxSource, list[tuple[int, InboxLane]]] = {}
        self._suspects: dict[InboxSource, list[tuple[int, InboxLane]]] = {}
        self._later: list[tuple[float, int, InboxLane]] = []
        self.waiting = 0
        self._waiting_of: dict[InboxSource, int] = {}

    @property
    def claimed(self) -> int:
        return len(self._claimed)

    def waiting_of(self, source: InboxSource) -> int:
        return self._waiting_of.get(source, 0)

    def length(self, lane: InboxLane) -> int:
        """Return how many items of a lane wait or are claimed."""
        return len(self._lanes.get(lane, ())) + (lane in self._claimed)

    def _count(self, source: InboxSource, change: int) -> None:
        self.waiting += change
        left = self._waiting_of.get(source, 0) + change
        if left:
            self._waiting_of[source] = left
        else:
            del self._waiting_of[source]

    def add(self, lane: InboxLane, waiting: WaitingItem) -> None:
        """Add it at the end of its lane."""
        self._count(lane[0], 1)
        line = self._lanes.setdefault(lane, deque())
        line.append(waiting)
        if len(line) == 1 and lane not in self._claimed:
            self._offer(lane, line[0])

    def take(
        self, sources: Collection[InboxSource], limit: int, suspects: int, now: float
    ) -> list[tuple[InboxLane, WaitingItem]]:
        """Claim the first items of free lanes, the earliest first, with at most so many suspects."""
        self._wake(now)
        taken: list[tuple[InboxLane, WaitingItem]] = []
        while len(taken) < limit:
            lane = self._pop_earliest(sources, suspects=suspects > 0)
            if lane is None:
                break
            waiting = self._claimed[lane] = self._lanes[lane].popleft()
            self._count(lane[0], -1)
            suspects -= waiting.crashes >= SUSPECT_CRASHES
            taken.append((lane, waiting))
        return taken

    def has_claimed(self, lane: InboxLane, number: int) -> bool:
        claimed = self._claimed.get(lane)
        return claimed is not None and claimed.number == number

    def free(self, lane: InboxLane, number: int, back: WaitingItem | None = None) -> bool:
        """Free a lane whose item is settled, or goes `back` to its head. False if it is not claimed."""
        if not self.has_claimed(lane, number):
            return False
        del self._claimed[lane]
        line = self._lanes.setdefault(lane, deque())
        if back is not None:
            self._count(lane[0], 1)
            line.appendleft(back)
        if line:
            self._offer(lane, line[0])
        else:
            del self._lanes[lane]
        return True

    def next_at(self) -> float | None:
        """Return when the next item that waits for its next attempt may be claimed."""
        return self._later[0][0] if self._later else None

    def _offer(self, lane: InboxLane, first: WaitingItem) -> None:
        if first.not_before:
            heappush(self._later, (first.not_before, first.number, lane))
            return
        heaps = self._suspects if first.crashes >= SUSPECT_CRASHES else self._ready
        heappush(heaps.setdefault(lane[0], []), (first.number, lane))

    def _wake(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            _, _, lane = heappop(self._later)
            first = self._lanes[lane][0]
            first.not_before = 0.0
            self._offer(lane, first)

    def _pop_earliest(self, sources: Collection[InboxSource], *, suspects: bool) -> InboxLane | None:
        by_source = (self._ready, self._suspects) if suspects else (self._ready,)
        heaps = [heap for source in sources for heaps in by_source if (heap := heaps.get(source))]
        return heappop(min(heaps))[1] if heaps else None
