"""Subscriptions that outlast the gate's closing: those of the store that it has open now."""

from collections.abc import Collection, Sequence

from tidegate.flows.executor.ports import Gate
from tidegate.polling.store.base import Kept, Subscriptions, Then
from tidegate.polling.subscriptions import News, Subscription


class LastingSubscriptions(Subscriptions):
    """A gate that is opened again has another store object, and pollers are made once."""

    def __init__(self, gate: Gate, name: str) -> None:
        self.name = name
        self._gate = gate
        self._outbox: object = None
        self._kept: Subscriptions | None = None

    @property
    def _now(self) -> Subscriptions:
        outbox = self._gate.outbox
        if self._kept is None or self._outbox is not outbox:
            self._kept, self._outbox = self._gate.subscriptions(self.name), outbox
        return self._kept

    async def add(self, subscriptions: Sequence[Subscription]) -> list[bool]:
        return await self._now.add(subscriptions)

    async def remove(self, keys: Collection[str]) -> int:
        return await self._now.remove(keys)

    async def after(self, number: int, limit: int = 1_000) -> list[Kept]:
        return await self._now.after(number, limit)

    async def ready(self, news: Sequence[News]) -> list[Kept]:
        return await self._now.ready(news)

    async def told(self, keys: Collection[str], then: Then) -> None:
        await self._now.told(keys, then)

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
