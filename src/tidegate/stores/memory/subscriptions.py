"""Subscriptions in memory, for tests and where the data source itself says who waits."""

import secrets
from collections.abc import Collection, Sequence
from itertools import takewhile

import msgspec

from tidegate.clock import Clock
from tidegate.polling.subscriptions import (
    AfterNews,
    News,
    NewsKind,
    StoredSubscription,
    Subscription,
    SubscriptionRef,
    Subscriptions,
    check_text,
    key_and_number,
    pack_news,
    pack_subscription,
    unpack_news,
    unpack_subscription,
)


class _SubscriptionRow(msgspec.Struct):
    """Stored as bytes, so that changing a returned object changes nothing here."""

    number: int
    body: bytes
    met: bool = False
    news: bytes | None = None

    def read(self) -> StoredSubscription:
        news = None if self.news is None else unpack_news(self.news)
        return StoredSubscription(self.number, unpack_subscription(self.body), met=self.met, news=news)

    def concerns(self, kind: NewsKind) -> bool:
        return self.news is None and (kind == "gone" or self.met == (kind == "reversed"))


class MemorySubscriptions(Subscriptions):
    """Known to this process alone, which therefore is the leader."""

    is_durable = False

    def __init__(self, clock: Clock, name: str = "poller") -> None:
        self.name = check_text(name, "the name of a poller")
        self._clock = clock
        self._rows: dict[str, _SubscriptionRow] = {}  # by rising numbers
        # Numbers are part of effect keys: no other store and no later run may give the same ones.
        self._number = secrets.randbits(48)
        self._watermark: str | None = None

    async def add(self, subscriptions: Sequence[Subscription], *, replace: bool = True) -> list[bool]:
        packed = [(one.key, pack_subscription(one)) for one in subscriptions]
        return [(replace or key not in self._rows) and self._add(key, body) for key, body in packed]

    def _add(self, key: str, body: bytes) -> bool:
        is_new = self._rows.pop(key, None) is None
        self._number += 1
        self._rows[key] = _SubscriptionRow(self._number, body)
        return is_new

    async def remove(self, refs: Collection[SubscriptionRef]) -> int:
        pairs = [key_and_number(one) for one in refs]
        for key, _ in pairs:
            check_text(key, "the key of a subscription")
        present = [key for key, number in pairs if self._find(key, number) is not None]
        return sum(self._rows.pop(key, None) is not None for key in present)

    def _find(self, key: str, number: int | None) -> _SubscriptionRow | None:
        row = self._rows.get(key)
        return row if row is not None and number in {None, row.number} else None

    async def after(self, number: int, limit: int = 1_000) -> list[StoredSubscription]:
        newest_first = reversed(self._rows.values())
        newer = list(takewhile(lambda row: row.number > number, newest_first))[::-1]
        return [row.read() for row in newer[: max(limit, 0)]]

    async def note_news(self, news: Sequence[News]) -> list[StoredSubscription]:
        packed = [(one, pack_news(one)) for one in news]
        found: list[StoredSubscription] = []
        for one, body in packed:
            row = self._rows.get(one.key)
            if row is not None and row.concerns(one.kind):
                row.news = body
                found.append(row.read())
        return found

    async def settle_news(self, refs: Collection[SubscriptionRef], then: AfterNews) -> None:
        for key, number in [key_and_number(one) for one in refs]:
            row = self._find(key, number)
            if row is None or row.news is None:
                continue
            if then == "forget":
                del self._rows[key]
            elif then == "watch":
                row.met, row.news = True, None
            else:
                self._add(key, row.body)

    async def count(self) -> int:
        return len(self._rows)

    async def watermark(self) -> str | None:
        return self._watermark

    async def save_watermark(self, mark: str) -> None:
        self._watermark = mark

    async def lease(self, seconds: float) -> bool:  # noqa: ARG002  (there is no other process)
        return True

    async def give_back(self) -> None:
        """There is no other process."""
