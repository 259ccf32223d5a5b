"""Subscriptions that stay usable when their gate is closed and opened again."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from tidegate.leader_lease import LeaseStore
from tidegate.polling.subscriptions import (
    AfterNews,
    News,
    StoredSubscription,
    Subscription,
    SubscriptionRef,
    Subscriptions,
    check_text,
)


class SubscriptionsProvider(Protocol):
    def subscriptions(self, name: str) -> Subscriptions: ...


class ReopenableSubscriptions(Subscriptions, LeaseStore):
    """The subscriptions in the store that a gate has open now.

    A poller is made once, but a gate that is opened again has a new store object.
    """

    def __init__(self, open_store: Callable[[], SubscriptionsProvider], name: str) -> None:
        self.name = check_text(name, "the name of a poller")
        self._open_store = open_store
        self._store = open_store()
        self._subscriptions = self._store.subscriptions(name)
        self.is_durable = self._subscriptions.is_durable
        self.leases: LeaseStore = self

    @property
    def _current(self) -> Subscriptions:
        store = self._open_store()
        if store is not self._store:
            self._store, self._subscriptions = store, store.subscriptions(self.name)
        return self._subscriptions

    async def add(self, subscriptions: Sequence[Subscription], *, replace: bool = True) -> list[bool]:
        return await self._current.add(subscriptions, replace=replace)

    async def remove(self, refs: Collection[SubscriptionRef]) -> int:
        return await self._current.remove(refs)

    async def after(self, number: int, limit: int = 1_000) -> list[StoredSubscription]:
        return await self._current.after(number, limit)

    async def note_news(self, news: Sequence[News]) -> list[StoredSubscription]:
        return await self._current.note_news(news)

    async def settle_news(self, refs: Collection[SubscriptionRef], then: AfterNews) -> None:
        await self._current.settle_news(refs, then)

    async def count(self) -> int:
        return await self._current.count()

    async def watermark(self) -> str | None:
        return await self._current.watermark()

    async def save_watermark(self, mark: str) -> None:
        await self._current.save_watermark(mark)

    async def lease(self, name: str, seconds: float) -> bool:
        return await self._current.leases.lease(name, seconds)

    async def give_back(self, name: str) -> None:
        await self._current.leases.give_back(name)
