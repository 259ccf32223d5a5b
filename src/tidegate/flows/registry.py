"""The flows that this process runs, and how many people are in each state of them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from tidegate.clock import Clock
from tidegate.flows.executor.stats import FlowStats
from tidegate.flows.flow import Flow
from tidegate.flows.port import FlowSessionStore

COUNT_AT_MOST_EVERY: Final = 2.0  # seconds, however many ask
COUNTING_SHARE: Final = 0.05  # of the time, at most, goes into counting

PeopleByState = Mapping[tuple[int, str], int]  # by bot and state


class RunningFlow:
    """A flow that an executor runs, of `bot` in the first place: its dispatcher may serve others, too."""

    def __init__(
        self, flow: Flow, bot: int, store: FlowSessionStore, stats: Callable[[], FlowStats], clock: Clock
    ) -> None:
        self.flow = flow
        self.bot = bot
        self.stats = stats
        self._store = store
        self._clock = clock
        self._lock = asyncio.Lock()
        self._people: PeopleByState = {}
        self._good_until = float("-inf")

    async def people(self, bot: int | None = None) -> dict[str, int]:
        """Return how many sessions are in each state, of one bot or of all, as of some seconds ago at most.

        A count that took long is good for longer.
        """
        async with self._lock:  # those who ask meanwhile get the same
            began = self._clock.monotonic()
            if began >= self._good_until:
                self._people = await self._store.count_states()
                ended = self._clock.monotonic()
                self._good_until = ended + max(COUNT_AT_MOST_EVERY, (ended - began) / COUNTING_SHARE)
        found: Counter[str] = Counter()
        for (whose, state), count in self._people.items():
            if bot in {None, whose}:
                found[state] += count
        return dict(found)


class FlowRegistry:
    """The flows that run, by name and bot. Two executors of one flow may follow each other."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, int], RunningFlow] = {}

    def add(self, flow: RunningFlow) -> None:
        self._running[flow.flow.name, flow.bot] = flow

    def remove(self, flow: RunningFlow) -> None:
        """Forget it, unless another one has taken its place."""
        key = flow.flow.name, flow.bot
        if self._running.get(key) is flow:
            del self._running[key]

    def all(self, bot: int | None = None) -> list[RunningFlow]:
        """Return those of a bot, or all, by name."""
        return [one for (_, whose), one in sorted(self._running.items()) if bot in {None, whose}]
