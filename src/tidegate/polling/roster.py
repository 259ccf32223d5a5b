"""Who is known to the process that polls. What it holds shrinks with those who leave."""

from collections.abc import Collection, Sequence
from typing import Final

from tidegate.polling.store.base import Kept, Then
from tidegate.polling.subscriptions import News, Subscription

MOST_UNREAD: Final = 10_000


class Roster:
    def __init__(self) -> None:
        self.waiting: dict[str, Subscription] = {}
        self.watched: dict[str, Subscription] = {}
        self.pending: dict[str, Kept] = {}  # found in the store, not yet restored
        self.unread: set[str] = set()  # subscribed here, not yet read from the store
        self.reserved: set[str] = set()  # restored here from elsewhere: their turn to be admitted comes
        self._kept: dict[str, Kept] = {}  # the watched, as they were read

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
        if len(self.unread) < MOST_UNREAD:
            self.unread.add(key)

    def watched_as(self, keys: Collection[str]) -> list[Kept]:
        """Who waits anew has another number than the one who was watched."""
        return [self._kept[key] for key in keys if key in self._kept]

    def replace(self, kept: Sequence[Kept]) -> list[Kept]:
        """These are all. Returns those who need not be restored, to be admitted: who was polled for before,
        or subscribed here a moment ago.
        """
        before = {*self.waiting, *self.watched, *self.unread}
        self.waiting.clear()
        self.watched.clear()
        self._kept.clear()
        self.pending = {one.subscription.key: one for one in kept if one.subscription.key not in before}
        return [one for one in kept if one.subscription.key in before]

    def admit(self, kept: Sequence[Kept]) -> None:
        for one in kept:
            key = one.subscription.key
            self.forget([key])
            if one.met:
                self._watch(one)
            else:
                self.waiting[key] = one.subscription

    def put_off(self, kept: Sequence[Kept]) -> None:
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

    def told(self, kept: Kept, then: Then) -> None:
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

    def _watch(self, kept: Kept) -> None:
        key = kept.subscription.key
        self.watched[key], self._kept[key] = kept.subscription, kept

    def _unwatch(self, key: str) -> None:
        self.watched.pop(key, None)
        self._kept.pop(key, None)
