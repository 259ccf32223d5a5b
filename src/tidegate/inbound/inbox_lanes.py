"""Which item is claimed next: the first of each free lane, the earliest first. Pure, ids only."""

from collections import deque
from collections.abc import Collection, Iterator
from heapq import heappop, heappush

import msgspec

from tidegate.inbound.inbox import SUSPECT_CRASHES, InboxSource

InboxLane = tuple[InboxSource, str]


class WaitingItem(msgspec.Struct):
    number: int  # rises in the order of arrival
    crashes: int = 0
    not_before: float = 0.0  # monotonic


class InboxLanes:
    """A lane is here as long as something of it waits or is held, and no longer."""

    def __init__(self) -> None:
        self._lanes: dict[InboxLane, deque[WaitingItem]] = {}
        self._held: dict[InboxLane, WaitingItem] = {}
        # The first of each free lane, by source. What has left meanwhile is passed over.
        self._ready: dict[InboxSource, list[tuple[int, InboxLane]]] = {}
        self._suspects: dict[InboxSource, list[tuple[int, InboxLane]]] = {}
        self._later: list[tuple[float, int, InboxLane]] = []
        self.waiting = 0

    @property
    def held(self) -> int:
        return len(self._held)

    def add(self, lane: InboxLane, waiting: WaitingItem) -> None:
        """At the end of its lane."""
        self.waiting += 1
        line = self._lanes.setdefault(lane, deque())
        line.append(waiting)
        if len(line) == 1 and lane not in self._held:
            self._offer(lane, line[0])

    def take(
        self, sources: Collection[InboxSource], limit: int, suspects: int, now: float
    ) -> list[tuple[InboxLane, WaitingItem]]:
        """Hold the first of free lanes, the earliest first."""
        self._wake(now)
        taken: list[tuple[InboxLane, WaitingItem]] = []
        while len(taken) < limit:
            found = self._earliest(sources, suspects=suspects > 0)
            if found is None:
                break
            waiting = self._pop(found)
            suspects -= waiting.crashes >= SUSPECT_CRASHES
            taken.append((found, waiting))
        return taken

    def holds(self, lane: InboxLane, number: int) -> bool:
        held = self._held.get(lane)
        return held is not None and held.number == number

    def free(self, lane: InboxLane, number: int, back: WaitingItem | None = None) -> bool:
        """What was held of a lane is over, or goes `back` to its head. False if it is not held."""
        if not self.holds(lane, number):
            return False
        del self._held[lane]
        line = self._lanes.setdefault(lane, deque())
        if back is not None:
            self.waiting += 1
            line.appendleft(back)
        if line:
            self._offer(lane, line[0])
        else:
            del self._lanes[lane]
        return True

    def next_at(self) -> float | None:
        """When the next one that waits for its next try may be claimed."""
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

    def _earliest(self, sources: Collection[InboxSource], *, suspects: bool) -> InboxLane | None:
        """Take it out of its heap."""
        heaps = [heap for source in sources for heap in self._heaps(source, suspects=suspects)]
        if not heaps:
            return None
        return heappop(min(heaps))[1]

    def _heaps(self, source: InboxSource, *, suspects: bool) -> Iterator[list[tuple[int, InboxLane]]]:
        for heaps in (self._ready, self._suspects) if suspects else (self._ready,):
            if heap := heaps.get(source):
                yield heap

    def _pop(self, lane: InboxLane) -> WaitingItem:
        line = self._lanes[lane]
        waiting = line.popleft()
        self.waiting -= 1
        self._held[lane] = waiting
        return waiting
