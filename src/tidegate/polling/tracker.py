"""The subscriptions known to the polling process, kept in step with the store."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final

from tidegate.clock import Clock
from tidegate.polling.notifier import Notifier
from tidegate.polling.restorer import RestoreResult, StaggeredRestore, read_subscriptions
from tidegate.polling.subscriptions import AfterNews, News, StoredSubscription, Subscription, Subscriptions

MOST_UNREAD_KEYS: Final = 10_000


class TrackedSubscriptions:
    def __init__(self) -> None:
        self.waiting: dict[str, Subscription] = {}
        self.watched: dict[str, Subscription] = {}
        self.pending: dict[str, StoredSubscription] = {}  # found in the store, not yet restored
        self.unread: set[str] = set()  # subscribed here, not yet read from the store
        self.reserved: set[str] = set()  # restored here from elsewhere: their turn to be admitted comes
        self._kept: dict[str, StoredSubscription] = {}  # the watched, as they were read

    def __contains__(self, key: str) -> bool:
        return any(
            key in known for known in (self.waiting, self.watched, self.pending, self.unread, self.reserved)
        )

    @property
    def active(self) -> int:
        return len(self.waiting) + len(self.watched)

    def read(self) -> set[str]:
        """Whom the store has, as far as is known."""
        return {*self.waiting, *self.watched, *self.pending}

    def expect(self, key: str) -> None:
        """He is subscribed here; read he is by whoever polls, which may never be this process."""
        if len(self.unread) < MOST_UNREAD_KEYS:
            self.unread.add(key)

    def watched_as(self, keys: Collection[str]) -> list[StoredSubscription]:
        """Who waits anew has another number than the one who was watched."""
        return [self._kept[key] for key in keys if key in self._kept]

    def replace(self, kept: Sequence[StoredSubscription]) -> list[StoredSubscription]:
        """These are all. Returns those who need not be restored, to be admitted: who was polled for before,
        or subscribed here a moment ago.
        """
        before = {*self.waiting, *self.watched, *self.unread}
        self.waiting.clear()
        self.watched.clear()
        self._kept.clear()
        self.pending = {one.subscription.key: one for one in kept if one.subscription.key not in before}
        return [one for one in kept if one.subscription.key in before]

    def admit(self, kept: Sequence[StoredSubscription]) -> None:
        for one in kept:
            key = one.subscription.key
            self.forget([key])
            if one.met:
                self._watch(one)
            else:
                self.waiting[key] = one.subscription

    def put_off(self, kept: Sequence[StoredSubscription]) -> None:
        """They are admitted when they are restored."""
        for one in kept:
            key = one.subscription.key
            self.forget([key])
            self.pending[key] = one

    def found(self, news: Sequence[News]) -> None:
        """They are told, or were unsubscribed elsewhere."""
        for one in news:
            if one.kind != "reversed":
                self.waiting.pop(one.key, None)
            if one.kind != "met":
                self._unwatch(one.key)

    def told(self, kept: StoredSubscription, then: AfterNews) -> None:
        """Who waits again has a new number, and is read; who subscribed anew meanwhile waits as he is."""
        if then == "watch" and kept.subscription.key not in self:
            self._watch(kept)

    def forget(self, keys: Collection[str]) -> None:
        for key in keys:
            self.waiting.pop(key, None)
            self._unwatch(key)
            self.pending.pop(key, None)
            self.unread.discard(key)
            self.reserved.discard(key)

    def clear(self) -> None:
        for known in (self.waiting, self.watched, self.pending, self.unread, self.reserved, self._kept):
            known.clear()

    def _watch(self, kept: StoredSubscription) -> None:
        key = kept.subscription.key
        self.watched[key], self._kept[key] = kept.subscription, kept

    def _unwatch(self, key: str) -> None:
        self.watched.pop(key, None)
        self._kept.pop(key, None)


RECOUNT_EVERY: Final = 10.0  # seconds between two looks at whether others have unsubscribed somebody


class SubscriptionReader:
    """Keeps roster and teller in step with the store. `on_admitted` hears who is waited for from now on."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        clock: Clock,
        roster: TrackedSubscriptions,
        teller: Notifier,
        on_admitted: Callable[[Sequence[Subscription]], None],
    ) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._roster = roster
        self._teller = teller
        self._on_admitted = on_admitted
        self._number = 0  # up to which it was read
        self._recount_at = 0.0  # monotonic
        self._is_in_doubt = False
        self._restoring = asyncio.Lock()

    async def read_all(self) -> None:
        """What was known before may be outdated. What is to be told is told first."""
        kept = await read_subscriptions(self._subscriptions)
        self._number = kept[-1].number if kept else 0
        self._teller.keep({one.number for one in kept})
        self._admit(self._roster.replace([one for one in kept if one.news is None]))
        self._forget_others({one.subscription.key for one in kept})
        self._teller.tell(kept)

    async def read_new(self) -> None:
        """Those subscribed since, here or elsewhere, or who wait again."""
        kept = await read_subscriptions(self._subscriptions, self._number)
        for one in kept:
            self._number = one.number
            self._teller.drop_until(one.subscription.key, one.number - 1)
        self._take([one for one in kept if one.news is None])
        self._teller.tell(kept)
        if self._is_in_doubt:
            await self._tell_noted()
        if self._clock.monotonic() >= self._recount_at:
            await self._recount()

    def doubt(self) -> None:
        """There may be news in the store of which this process has not heard."""
        self._is_in_doubt = True

    def reserve(self, keys: Sequence[str]) -> list[str]:
        """Those who are not known yet: they are admitted when they are released."""
        reserved = [key for key in keys if key not in self._roster]
        self._roster.reserved.update(reserved)
        return reserved

    def release(self, keys: Collection[str]) -> None:
        """Whoever of them was read is admitted; the others are when they are."""
        self._admit([self._roster.pending[key] for key in keys if key in self._roster.pending])
        self._roster.reserved.difference_update(keys)

    async def restore(self, pace: StaggeredRestore) -> RestoreResult:
        """Those found in the store, in groups; in one go at a time."""
        async with self._restoring:
            begun, found = self._clock.monotonic(), list(self._roster.pending.values())
            admitted = 0

            async def admit(group: Sequence[StoredSubscription]) -> None:
                nonlocal admitted
                there = [one for one in group if self._roster.pending.get(one.subscription.key) is one]
                admitted += len(there)  # the others have left meanwhile, or subscribed anew
                self._admit(there)

            groups = await pace.restore(found, admit, lambda one: one.subscription)
            seconds = self._clock.monotonic() - begun
            return RestoreResult(len(found), admitted, len(found) - admitted, seconds, groups)

    def forget(self, keys: Collection[str]) -> None:
        """They are gone from the store."""
        self._roster.forget(keys)
        self._teller.forget(keys)

    def _take(self, kept: Sequence[StoredSubscription]) -> None:
        """Who was restored here is admitted in his turn, unless he has subscribed since."""
        reserved = self._roster.reserved - self._roster.unread
        self._roster.put_off([one for one in kept if one.subscription.key in reserved])
        self._admit([one for one in kept if one.subscription.key not in reserved])

    async def _tell_noted(self) -> None:
        """Those with news whom nobody tells; who was told in vain too often rests on."""
        self._is_in_doubt = False
        try:
            kept = await read_subscriptions(self._subscriptions)
        except BaseException:
            self._is_in_doubt = True
            raise
        noted = [one for one in kept if self._teller.number_of(one.subscription.key) != one.number]
        self._roster.found([one.news for one in noted if one.news is not None])
        self._teller.tell(noted)

    def _admit(self, kept: Sequence[StoredSubscription]) -> None:
        self._roster.admit(kept)
        if waiting := [one.subscription for one in kept if not one.met]:
            self._on_admitted(waiting)

    async def _recount(self) -> None:
        """Who is unsubscribed by another process leaves no trace but the number of those who are left."""
        if await self._subscriptions.count() < len(self._known()):
            self._forget_others(
                {one.subscription.key for one in await read_subscriptions(self._subscriptions)}
            )
        self._recount_at = self._clock.monotonic() + RECOUNT_EVERY

    def _known(self) -> set[str]:
        return self._roster.read() | {*self._teller.telling, *self._teller.untold}

    def _forget_others(self, present: Collection[str]) -> None:
        known = self._known() | {*self._teller.given, *self._teller.waiters.keys}
        self.forget([key for key in known if key not in present and key not in self._roster.unread])
