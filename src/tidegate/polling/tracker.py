"""The subscriptions known to the polling process, kept in step with the store."""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.failure import describe_error
from tidegate.polling.notifier import Notifier
from tidegate.polling.restorer import (
    RestoreResult,
    StaggeredRestore,
    SubscriptionSource,
    read_subscriptions,
    source_pages,
)
from tidegate.polling.subscriptions import AfterNews, News, StoredSubscription, Subscription, Subscriptions

log = logging.getLogger("tidegate.polling")

MOST_UNREAD_KEYS: Final = 10_000
RECOUNT_EVERY: Final = 10.0  # seconds between two checks for keys that others have unsubscribed


class TrackedSubscriptions:
    """The subscriptions in memory, by key. What it holds shrinks with those that leave."""

    def __init__(self) -> None:
        self.waiting: dict[str, Subscription] = {}
        self.watched: dict[str, Subscription] = {}
        self.unrestored: dict[str, StoredSubscription] = {}  # found in the store, not yet admitted
        self.unread: set[str] = set()  # subscribed here, not yet read from the store
        self.reserved: set[str] = set()  # added here from a restore source, not yet admitted
        self._watched_stored: dict[str, StoredSubscription] = {}

    def __contains__(self, key: str) -> bool:
        known = (self.waiting, self.watched, self.unrestored, self.unread, self.reserved)
        return any(key in keys for keys in known)

    @property
    def active(self) -> int:
        return len(self.waiting) + len(self.watched)

    def find(self, key: str) -> Subscription | None:
        """Return a subscription that was read from the store."""
        found = self.waiting.get(key) or self.watched.get(key)
        if found is None and key in self.unrestored:
            return self.unrestored[key].subscription
        return found

    def read_keys(self) -> set[str]:
        """Return the keys that were read from the store."""
        return {*self.waiting, *self.watched, *self.unrestored}

    def expect(self, key: str) -> None:
        """Note a key that was subscribed here. The leader reads it, which may never be this process."""
        if len(self.unread) < MOST_UNREAD_KEYS:
            self.unread.add(key)

    def watched_as_stored(self, keys: Collection[str]) -> list[StoredSubscription]:
        """Return them with their numbers: a key that was subscribed again has another one."""
        return [self._watched_stored[key] for key in keys if key in self._watched_stored]

    def replace_all(self, stored: Sequence[StoredSubscription]) -> list[StoredSubscription]:
        """Track exactly these. Returns those to admit at once: polled before, or subscribed here just now."""
        before = {*self.waiting, *self.watched, *self.unread}
        self.waiting.clear()
        self.watched.clear()
        self._watched_stored.clear()
        self.unrestored = {one.subscription.key: one for one in stored if one.subscription.key not in before}
        return [one for one in stored if one.subscription.key in before]

    def admit(self, stored: Sequence[StoredSubscription]) -> None:
        """Poll for them, or watch them, from now on."""
        for one in stored:
            key = one.subscription.key
            self.forget([key])
            if one.met:
                self._watch(one)
            else:
                self.waiting[key] = one.subscription

    def put_off(self, stored: Sequence[StoredSubscription]) -> None:
        """Admit them when they are restored."""
        for one in stored:
            key = one.subscription.key
            self.forget([key])
            self.unrestored[key] = one

    def note_news(self, news: Sequence[News]) -> None:
        """Stop polling for them: their news is delivered, or they were unsubscribed elsewhere."""
        for one in news:
            if one.kind != "reversed":
                self.waiting.pop(one.key, None)
            if one.kind != "met":
                self._unwatch(one.key)

    def note_settled(self, stored: StoredSubscription, then: AfterNews) -> None:
        """Note what a settled subscription becomes: one that waits again has a new number, and is read."""
        if then == "watch" and stored.subscription.key not in self:
            self._watch(stored)

    def forget(self, keys: Collection[str]) -> None:
        for key in keys:
            self.waiting.pop(key, None)
            self._unwatch(key)
            self.unrestored.pop(key, None)
            self.unread.discard(key)
            self.reserved.discard(key)

    def clear(self) -> None:
        for keys in (
            self.waiting,
            self.watched,
            self.unrestored,
            self.unread,
            self.reserved,
            self._watched_stored,
        ):
            keys.clear()

    def _watch(self, stored: StoredSubscription) -> None:
        key = stored.subscription.key
        self.watched[key], self._watched_stored[key] = stored.subscription, stored

    def _unwatch(self, key: str) -> None:
        self.watched.pop(key, None)
        self._watched_stored.pop(key, None)


class SubscriptionReader:
    """Keeps the tracked subscriptions and the notifier in step with the store.

    All subscriptions are read when this process becomes the leader, then those that came or went since.
    `on_admitted` is called with those that are polled for from now on.
    """

    def __init__(
        self,
        subscriptions: Subscriptions,
        clock: Clock,
        tracked: TrackedSubscriptions,
        notifier: Notifier,
        on_admitted: Callable[[Sequence[Subscription]], None],
    ) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._tracked = tracked
        self._notifier = notifier
        self._on_admitted = on_admitted
        self._read_number = 0  # up to this number everything was read
        self._recount_at = 0.0  # monotonic
        self._may_have_missed_news = False
        self._restoring = asyncio.Lock()

    async def read_all(self) -> None:
        """Read everything anew. Stored news is delivered."""
        stored = await read_subscriptions(self._subscriptions)
        self._read_number = stored[-1].number if stored else 0
        self._notifier.keep_only({one.number for one in stored})
        self._admit(self._tracked.replace_all([one for one in stored if one.news is None]))
        self._forget_others({one.subscription.key for one in stored})
        self._notifier.deliver(stored)

    async def read_new(self) -> None:
        """Read those that were subscribed since by any process, or wait again."""
        stored = await read_subscriptions(self._subscriptions, self._read_number)
        for one in stored:
            self._read_number = one.number
            self._notifier.drop_until(one.subscription.key, one.number - 1)
        self._track([one for one in stored if one.news is None])
        self._notifier.deliver(stored)
        if self._may_have_missed_news:
            await self._read_missed_news()
        if self._clock.monotonic() >= self._recount_at:
            await self._recount()

    def expect_missed_news(self) -> None:
        """There may be news in the store that this process does not know of."""
        self._may_have_missed_news = True

    async def restore(self, restore: StaggeredRestore) -> RestoreResult:
        """Admit the subscriptions found in the store, in groups. One call at a time."""
        async with self._restoring:
            begun, found = self._clock.monotonic(), list(self._tracked.unrestored.values())
            admitted = 0

            async def admit(group: Sequence[StoredSubscription]) -> None:
                nonlocal admitted
                unchanged = [
                    one for one in group if self._tracked.unrestored.get(one.subscription.key) is one
                ]
                admitted += len(unchanged)  # the others left meanwhile, or were subscribed again
                self._admit(unchanged)

            groups = await restore.run(found, admit, lambda one: one.subscription)
            seconds = self._clock.monotonic() - begun
            return RestoreResult(len(found), admitted, len(found) - admitted, seconds, groups)

    async def restore_from(self, source: SubscriptionSource, restore: StaggeredRestore) -> RestoreResult:
        """Store at once what is in the source and not in the store, and admit it in groups.

        If the source fails, what was read before is restored, then its error is raised: call it again for the
        rest.
        """
        begun, found, failure = self._clock.monotonic(), 0, None
        missing: dict[str, Subscription] = {}

        async def admit(group: Sequence[Subscription]) -> None:
            self._release([one.key for one in group])

        try:
            async with aclosing(source_pages(source)) as pages:
                async for page, failure in pages:  # noqa: B007  (the last one is used)
                    found += len(page)
                    missing |= await self._add_missing(page)
            groups = await restore.run(list(missing.values()), admit, lambda one: one)
        finally:
            self._release(missing.keys())
        if failure is not None:
            text = f"{len(missing)} of {found} read before are restored: call restore() again for the rest"
            log.error("the source of subscriptions failed: %s; %s", describe_error(failure), text)
            failure.add_note(text)
            raise failure
        seconds = self._clock.monotonic() - begun
        return RestoreResult(found, len(missing), found - len(missing), seconds, groups)

    async def _add_missing(self, page: Sequence[Subscription]) -> dict[str, Subscription]:
        """Add those that are not in the store, whose own are newer; return them, not to be admitted yet."""
        unknown = {one.key for one in page if one.key not in self._tracked}
        self._tracked.reserved.update(unknown)
        added: dict[str, Subscription] = {}
        now = self._clock.now()
        try:
            dated = [one if one.since else msgspec.structs.replace(one, since=now) for one in page]
            fresh = await self._subscriptions.add(dated, replace=False)
            added = {one.key: one for one, is_new in zip(page, fresh, strict=True) if is_new}
        finally:
            self._release(unknown - added.keys())
        return added

    def _release(self, keys: Collection[str]) -> None:
        """Admit those that were read already; the others are admitted when they are read."""
        self._admit([self._tracked.unrestored[key] for key in keys if key in self._tracked.unrestored])
        self._tracked.reserved.difference_update(keys)

    def forget(self, keys: Collection[str]) -> None:
        """They are gone from the store."""
        self._tracked.forget(keys)
        self._notifier.forget(keys)

    def _track(self, stored: Sequence[StoredSubscription]) -> None:
        """Admit them; those that are being restored here only in their turn."""
        reserved = self._tracked.reserved - self._tracked.unread
        self._tracked.put_off([one for one in stored if one.subscription.key in reserved])
        self._admit([one for one in stored if one.subscription.key not in reserved])

    async def _read_missed_news(self) -> None:
        self._may_have_missed_news = False
        try:
            stored = await read_subscriptions(self._subscriptions)
        except BaseException:
            self._may_have_missed_news = True
            raise
        # News that is undelivered because its callback failed too often has the same number: it stays so.
        missed = [one for one in stored if self._notifier.number_of(one.subscription.key) != one.number]
        self._tracked.note_news([one.news for one in missed if one.news is not None])
        self._notifier.deliver(missed)

    def _admit(self, stored: Sequence[StoredSubscription]) -> None:
        self._tracked.admit(stored)
        if waiting := [one.subscription for one in stored if not one.met]:
            self._on_admitted(waiting)

    async def _recount(self) -> None:
        """Another process that unsubscribes a key leaves no trace but the smaller count."""
        readable = await self._subscriptions.count() - len(self._subscriptions.unreadable)
        if readable < len(self._known_keys()):
            stored = await read_subscriptions(self._subscriptions)
            self._forget_others({one.subscription.key for one in stored})
        self._recount_at = self._clock.monotonic() + RECOUNT_EVERY

    def _known_keys(self) -> set[str]:
        return self._tracked.read_keys() | {*self._notifier.pending, *self._notifier.undelivered}

    def _forget_others(self, present: Collection[str]) -> None:
        known = self._known_keys() | {*self._notifier.callbacks, *self._notifier.waiters.keys}
        self.forget([key for key in known if key not in present and key not in self._tracked.unread])
