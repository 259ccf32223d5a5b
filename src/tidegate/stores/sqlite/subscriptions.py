"""Subscriptions and their news in the SQLite file, one transaction per step."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.errors import NotTheSenderError
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
from tidegate.stores.sqlite.file import StoreFile, Transaction
from tidegate.stores.sqlite.leases import SqliteLeases, held_by_another

_MET_CONCERNED: Final[dict[NewsKind, tuple[int, int]]] = {"met": (0, 0), "reversed": (1, 1), "gone": (0, 1)}
_THIS_SUBSCRIPTION: Final = "poller = ? AND key = ? AND number = coalesce(?, number)"


class SqliteSubscriptions(Subscriptions):
    """The subscriptions of one poller; any process that has the file may add. `file` is open already."""

    is_durable = True

    def __init__(self, file: StoreFile, clock: Clock, name: str) -> None:
        self._file = file
        self._clock = clock
        self.name = self._name = check_text(name, "the name of a poller")
        self.leases = SqliteLeases(file, clock)

    async def add(self, subscriptions: Sequence[Subscription], *, replace: bool = True) -> list[bool]:
        packed = [(one.key, pack_subscription(one)) for one in subscriptions]
        if not packed:
            return []
        step = _add if replace else _add_missing
        fresh: list[bool] = await self._file.write(lambda tx: step(tx, self._name, packed))
        return fresh

    async def remove(self, refs: Collection[SubscriptionRef]) -> int:
        rows = [(self._name, *key_and_number(one)) for one in refs]
        for _, key, _ in rows:
            check_text(key, "the key of a subscription")
        if not rows:
            return 0
        delete = f"DELETE FROM subscriptions WHERE {_THIS_SUBSCRIPTION}"
        removed: int = await self._file.write(lambda tx: tx.executemany(delete, rows).rowcount)
        return removed

    async def after(self, number: int, limit: int = 1_000) -> list[StoredSubscription]:
        rows = await self._file.read(lambda tx: _after(tx, self._name, number, max(limit, 0)))
        return [_stored(*row) for row in rows]

    async def note_news(self, news: Sequence[News]) -> list[StoredSubscription]:
        packed = [(one.key, one.kind, pack_news(one)) for one in news]
        if not packed:
            return []
        rows = await self._write_as_leader(lambda tx: _note_news(tx, self._name, packed))
        return [_stored(*row) for row in rows]

    async def settle_news(self, refs: Collection[SubscriptionRef], then: AfterNews) -> None:
        rows = [(self._name, *key_and_number(one)) for one in refs]
        if rows:
            await self._write_as_leader(lambda tx: _settle_news(tx, rows, then))

    async def _write_as_leader(self, step: Callable[[Transaction], Any]) -> Any:  # noqa: ANN401  (the step's)
        """Run a step, unless another process is the leader at the moment of the transaction."""
        now = self._clock.now()

        def make(tx: Transaction) -> tuple[bool, Any]:
            is_late = held_by_another(tx, self._name, self.leases.holder, now) is not None
            return is_late, None if is_late else step(tx)

        is_late, result = await self._file.write(make)
        if is_late:
            raise NotTheSenderError(f"another process polls for {self._name} now")
        return result

    async def count(self) -> int:
        query = "SELECT count(*) FROM subscriptions WHERE poller = ?"
        size: int = await self._file.read(lambda tx: tx.execute(query, (self._name,)).fetchone()[0])
        return size

    async def watermark(self) -> str | None:
        query = "SELECT mark FROM pollers WHERE name = ?"
        row = await self._file.read(lambda tx: tx.execute(query, (self._name,)).fetchone())
        return None if row is None else row[0]

    async def save_watermark(self, mark: str) -> None:
        await self._file.write(lambda tx: _save_watermark(tx, self._name, mark))


def _stored(number: int, body: bytes, met: int, news: bytes | None) -> StoredSubscription:
    return StoredSubscription(
        number, unpack_subscription(body), met=bool(met), news=None if news is None else unpack_news(news)
    )


def _add(tx: Transaction, name: str, packed: Sequence[tuple[str, bytes]]) -> list[bool]:
    """Delete and insert, not update: a subscription that is added again gets a new number."""
    fresh = []
    for key, body in packed:
        removed = tx.execute("DELETE FROM subscriptions WHERE poller = ? AND key = ?", (name, key)).rowcount
        tx.execute(
            "INSERT INTO subscriptions (poller, key, met, body) VALUES (?, ?, 0, ?)", (name, key, body)
        )
        fresh.append(not removed)
    return fresh


def _add_missing(tx: Transaction, name: str, packed: Sequence[tuple[str, bytes]]) -> list[bool]:
    insert = (
        "INSERT INTO subscriptions (poller, key, met, body) VALUES (?, ?, 0, ?)"
        " ON CONFLICT (poller, key) DO NOTHING"
    )
    return [tx.execute(insert, (name, key, body)).rowcount > 0 for key, body in packed]


def _after(tx: Transaction, name: str, number: int, limit: int) -> list[Any]:
    return tx.execute(
        "SELECT number, body, met, news FROM subscriptions WHERE poller = ? AND number > ?"
        " ORDER BY number LIMIT ?",
        (name, number, limit),
    ).fetchall()


def _note_news(tx: Transaction, name: str, packed: Sequence[tuple[str, NewsKind, bytes]]) -> list[Any]:
    update = (
        "UPDATE subscriptions SET news = ? WHERE poller = ? AND key = ? AND news IS NULL AND met IN (?, ?)"
        " RETURNING number, body, met, news"
    )
    found = []
    for key, kind, news in packed:
        found += tx.execute(update, (news, name, key, *_MET_CONCERNED[kind])).fetchall()
    return found


def _settle_news(tx: Transaction, rows: Sequence[tuple[str, str, int | None]], then: AfterNews) -> None:
    if then == "forget":
        tx.executemany(f"DELETE FROM subscriptions WHERE {_THIS_SUBSCRIPTION} AND news IS NOT NULL", rows)
        return
    if then == "watch":
        update = (
            f"UPDATE subscriptions SET met = 1, news = NULL WHERE {_THIS_SUBSCRIPTION} AND news IS NOT NULL"
        )
        tx.executemany(update, rows)
        return
    find = f"SELECT body FROM subscriptions WHERE {_THIS_SUBSCRIPTION} AND news IS NOT NULL"
    for name, key, number in rows:
        for (body,) in tx.execute(find, (name, key, number)).fetchall():
            _add(tx, name, [(key, body)])


def _save_watermark(tx: Transaction, name: str, mark: str) -> None:
    tx.execute(
        "INSERT INTO pollers (name, mark) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET mark = excluded.mark",
        (name, mark),
    )
