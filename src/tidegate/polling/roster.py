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

    def __contains__(self, key: str) -> bool:
        return key in self.waiting or key in self.watched or key in self.pending or key in self.unread

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

    def replace(self, kept: Sequence[Kept]) -> list[Kept]:
        """These are all. Returns those who need not be restored, to be admitted: who was polled for before,
        or subscribed here a moment ago.
        """
        before = {*self.waiting, *self.watched, *self.unread}
        self.waiting.clear()
        self.watched.clear()
        self.pending = {one.subscription.key: one for one in kept if one.subscription.key not in before}
        return [one for one in kept if one.subscription.key in before]

    def admit(self, kept: Sequence[Kept]) -> None:
        for one in kept:
            key = one.subscription.key
            self.forget([key])
            (self.watched if one.met else self.waiting)[key] = one.subscription

    def found(self, news: Sequence[News]) -> None:
        """They are told, or were unsubscribed elsewhere."""
        for one in news:
            if one.kind != "reversed":
                self.waiting.pop(one.key, None)
            if one.kind != "met":
                self.watched.pop(one.key, None)

    def told(self, kept: Kept, then: Then) -> None:
        """Who waits again has a new number, and is read; who subscribed anew meanwhile waits as he is."""
        subscription = kept.subscription
        if then == "watch" and subscription.key not in self:
            self.watched[subscription.key] = subscription

    def forget(self, keys: Collection[str]) -> None:
        for key in keys:
            self.waiting.pop(key, None)
            self.watched.pop(key, None)
            self.pending.pop(key, None)
            self.unread.discard(key)

    def clear(self) -> None:
        for known in (self.waiting, self.watched, self.pending, self.unread):
            known.clear()
