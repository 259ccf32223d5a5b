"""A source that can be paid into, and fails on demand; and a store that is shared by two processes."""

from collections.abc import Sequence
from typing import Any

from tidegate.errors import NotTheSenderError, StoreAwayError
from tidegate.leader_lease import LeaseStore
from tidegate.polling.subscriptions import (
    AfterNews,
    MemorySubscriptions,
    News,
    StoredSubscription,
    Subscription,
)
from tidegate.sim.virtual_time import VirtualClock


class Source:
    """Fetches from `paid`. `failing`: raised for a batch that holds the key."""

    def __init__(self, clock: VirtualClock, takes: float = 0.1) -> None:
        self.clock = clock
        self.takes = takes
        self.paid: dict[str, Any] = {}
        self.failing: dict[str, Exception] = {}
        self.asked: list[tuple[float, list[str]]] = []
        self.now = self.most_at_once = 0

    async def fetch(self, keys: Sequence[str]) -> dict[str, Any]:
        self.asked.append((self.clock.monotonic(), list(keys)))
        self.now += 1
        self.most_at_once = max(self.most_at_once, self.now)
        try:
            await self.clock.sleep(self.takes)
        finally:
            self.now -= 1
        for key in keys:
            if key in self.failing:
                raise self.failing[key]
        return {key: self.paid[key] for key in keys if key in self.paid}

    async def fetch_one(self, key: str) -> object:
        return (await self.fetch([key])).get(key)

    def times_of(self, key: str) -> list[float]:
        return [at for at, keys in self.asked if key in keys]


class Heard:
    """A notify that writes down whom it was called for, and fails for some."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.calls: list[tuple[str, Any]] = []
        self.at: dict[str, float] = {}
        self.failing: set[str] = set()

    async def notify(self, subscription: Subscription, news: News) -> None:
        await self.clock.sleep(0)
        if subscription.key in self.failing:
            raise ValueError(f"no luck with {subscription.key}")
        self.calls.append((subscription.key, news.value))
        self.at[subscription.key] = self.clock.monotonic()

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.calls]


class Disk:
    """A store that two processes share; while `is_away`, it cannot be reached."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.kept = MemorySubscriptions(clock)
        self.is_away = False
        self.leader: object = None
        self.until = 0.0

    def process(self) -> "SharedSubscriptions":
        return SharedSubscriptions(self)


class SharedSubscriptions(MemorySubscriptions, LeaseStore):
    """The store as one process sees it. After `die` nothing that it does is written."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk.clock)
        self._disk = disk
        self.leases: LeaseStore = self
        self.is_dead = False

    def die(self) -> None:
        self.is_dead = True

    async def _reach(self) -> MemorySubscriptions:
        await self._disk.clock.sleep(0)
        if self._disk.is_away or self.is_dead:
            raise StoreAwayError("the disk is away")
        return self._disk.kept

    async def add(self, subscriptions: Sequence[Subscription], *, replace: bool = True) -> list[bool]:
        return await (await self._reach()).add(subscriptions, replace=replace)

    async def remove(self, who: Any) -> int:  # noqa: ANN401
        return await (await self._reach()).remove(who)

    async def after(self, number: int, limit: int = 1_000) -> list[StoredSubscription]:
        return await (await self._reach()).after(number, limit)

    async def note_news(self, news: Sequence[News]) -> list[StoredSubscription]:
        return await (await self._lead()).note_news(news)

    async def settle_news(self, who: Any, then: AfterNews) -> None:  # noqa: ANN401
        await (await self._lead()).settle_news(who, then)

    async def _lead(self) -> MemorySubscriptions:
        kept = await self._reach()
        if self._another_leads:
            raise NotTheSenderError("another process polls now")
        return kept

    @property
    def _another_leads(self) -> bool:
        return self._disk.leader is not self and self._disk.clock.monotonic() < self._disk.until

    async def count(self) -> int:
        return await (await self._reach()).count()

    async def lease(self, name: str, seconds: float) -> bool:  # noqa: ARG002  (it has one)
        await self._reach()
        if self._another_leads:
            return False
        self._disk.leader, self._disk.until = self, self._disk.clock.monotonic() + seconds
        return True

    async def give_back(self, name: str) -> None:  # noqa: ARG002
        await self._reach()
        if self._disk.leader is self:
            self._disk.until = 0.0
