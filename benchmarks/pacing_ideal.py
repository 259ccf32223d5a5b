"""How fast a scenario could be at best: the yardstick of `pacing.py`."""

import heapq
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from tidegate.model import Rate
from tidegate.sim.telegram import Limits


class Job(NamedTuple):
    """One message of a scenario. Its text ends with a tag: the simulator checks order and doubles by it."""

    bot: int
    chat: int
    text: str


class _Slots:
    """A limit as slots that are busy for a round trip and then cool for the window."""

    def __init__(self, rate: Rate, round_trip: float) -> None:
        self._count = rate.count
        self._busy = rate.seconds + round_trip
        self._free_at: list[float] = []

    def wait_until(self, now: float) -> float:
        return now if len(self._free_at) < self._count else max(now, self._free_at[0])

    def take(self, now: float) -> None:
        if len(self._free_at) == self._count:
            heapq.heappop(self._free_at)
        heapq.heappush(self._free_at, now + self._busy)


def ideal_seconds(jobs: Sequence[Job], limits: Limits, round_trip: float, *, spaced: bool) -> float:
    """Seconds until the last answer, for a sender that costs nothing and never hesitates.

    Each limit of n in W gives n slots that are free again W + r after they were taken, so that it runs at
    n/(W+r). Whoever came first and may go, goes; every call takes exactly r, the mean round trip. `spaced`:
    a bot's calls leave (W+r)/n apart. If not, a bot fires each window at once, the first too.
    """
    by_bot: dict[int, list[Job]] = defaultdict(list)
    for job in jobs:
        by_bot[job.bot].append(job)
    return max(_one_bot(mine, limits, round_trip, spaced=spaced) for mine in by_bot.values())


def _one_bot(jobs: Sequence[Job], limits: Limits, round_trip: float, *, spaced: bool) -> float:
    lines: dict[int, list[int]] = defaultdict(list)  # places in `jobs`, the next one last
    for at in reversed(range(len(jobs))):
        lines[jobs[at].chat].append(at)
    whole = _Slots(limits.bot, round_trip)
    own = {chat: _Slots(limits.private if chat > 0 else limits.group, round_trip) for chat in lines}
    ready = sorted((line[-1], chat) for chat, line in lines.items())  # a sorted list is a heap
    waiting: list[tuple[float, int]] = []  # when a chat may go again
    apart = (limits.bot.seconds + round_trip) / limits.bot.count if spaced else 0.0
    now, next_at = 0.0, 0.0
    while ready or waiting:
        if not ready:
            now = max(now, waiting[0][0])
        now = whole.wait_until(max(now, next_at))
        while waiting and waiting[0][0] <= now:
            _, chat = heapq.heappop(waiting)
            heapq.heappush(ready, (lines[chat][-1], chat))
        if not ready:
            continue
        _, chat = heapq.heappop(ready)
        next_at = now + apart
        whole.take(now)
        own[chat].take(now)
        lines[chat].pop()
        if lines[chat]:
            heapq.heappush(waiting, (own[chat].wait_until(now), chat))
    return now + round_trip
