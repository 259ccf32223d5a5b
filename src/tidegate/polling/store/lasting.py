"""Subscriptions that outlast the closing of a gate: those of the store that it has open now."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from tidegate.polling.store.base import Kept, Subscriptions, Then, Who
from tidegate.polling.store.packing import check_text
from tidegate.polling.subscriptions import News, Subscription


class Keeper(Protocol):
    def subscriptions(self, name: str) -> Subscriptions: ...


class LastingSubscriptions(Subscriptions):
    """A gate that is opened again has another store, and a poller is made once. `keeper`: the one of now."""

    def __init__(self, keeper: Callable[[], Keeper], name: str) -> None:
        self.name = check_text(name, "the name of a poller")
        self._keeper = keeper
        self._of = keeper()
        self._kept = self._of.subscriptions(name)

    @property
    def _now(self) -> Subscriptions:
        keeper = self._keeper()
        if keeper is not self._of:
            self._of, self._kept = keeper, keeper.subscriptions(self.name)
        return self._kept

    async def add(self, subscriptions: Sequence[Subscription], *, replace: bool = True) -> list[bool]:
        return await self._now.add(subscriptions, replace=replace)

    async def remove(self, who: Collection[Who]) -> int:
        return await self._now.remove(who)

    async def after(self, number: int, limit: int = 1_000) -> list[Kept]:
        return await self._now.after(number, limit)

    async def ready(self, news: Sequence[News]) -> list[Kept]:
        return await self._now.ready(news)

    async def told(self, who: Collection[Who], then: Then) -> None:
        await self._now.told(who, then)

    async def count(self) -> int:
        return await self._now.count()

    async def mark(self) -> str | None:
        return await self._now.mark()

    async def keep_mark(self, mark: str) -> None:
        await self._now.keep_mark(mark)

    async def lease(self, seconds: float) -> bool:
        return await self._now.lease(seconds)

    async def give_back(self) -> None:
        await self._now.give_back()
