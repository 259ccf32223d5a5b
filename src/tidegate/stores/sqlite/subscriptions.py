"""Subscriptions and their news in the SQLite file, one transaction per step."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
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
    UnreadableSubscriptions,
    check_text,
    key_and_number,
    pack_news,
    pack_subscription,
)
from tidegate.stores.sqlite.file import StoreFile, Transaction
from tidegate.stores.sqlite.leases import SqliteLeases, held_by_another

_MET_CONCERNED: Final[dict[NewsKind, tuple[int, int]]] = {"met": (0, 0), "reversed": (1, 1), "gone": (0, 1)}
_THIS: Final = "poller = ? AND key = ? AND number = coalesce(?, number)"
_WITH_NEWS: Final = f"{_THIS} AND news IS NOT NULL"
_INSERT: Final = "INSERT INTO subscriptions (poller, key, met, body) VALUES (?, ?, 0, ?)"
_COLUMNS: Final = "number, key, body, met, news"
_PAGE: Final = f"SELECT {_COLUMNS} FROM subscriptions WHERE poller = ? AND number > ? ORDER BY number LIMIT ?"
_NOTE_NEWS: Final = (
    "UPDATE subscriptions SET news = ? WHERE poller = ? AND key = ? AND news IS NULL AND met IN (?, ?)"
    f" RETURNING {_COLUMNS}"
)
_SAVE_WATERMARK: Final = (
    "INSERT INTO pollers (name, mark) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET mark = excluded.mark"
)


class SqliteSubscriptions(Subscriptions):
    """The subscriptions of one poller; any process that has the file may add. `file` is open already."""

    is_durable = True

    def __init__(self, file: StoreFile, clock: Clock, name: str) -> None:
        self.name = check_text(name, "the name of a poller")
        self.unreadable = UnreadableSubscriptions(self.name)
        self.leases = SqliteLeases(file, clock)
        self._file = file
        self._clock = clock

    async def add(self, subscriptions: Sequence[Subscription], *, replace: bool = True) -> list[bool]:
        packed = [(one.key, pack_subscription(one)) for one in subscriptions]
        if not packed:
            return []
        if not replace:
            await self.remove(self.unreadable.keys & {key for key, _ in packed})
        self.unreadable.forget([key for key, _ in packed])
        step = _add if replace else _add_missing
        return await self._file.write(lambda tx: step(tx, self.name, packed))

    async def remove(self, refs: Collection[SubscriptionRef]) -> int:
        rows = [(self.name, *key_and_number(one)) for one in refs]
        for _, key, _ in rows:
            check_text(key, "the key of a subscription")
        if not rows:
            return 0
        delete = f"DELETE FROM subscriptions WHERE {_THIS}"
        self.unreadable.forget([key for _, key, _ in rows])
        return await self._file.write(lambda tx: tx.executemany(delete, rows).rowcount)

    async def after(self, number: int, limit: int = 1_000) -> list[StoredSubscription]:
        found: list[StoredSubscription] = []
        self.unreadable.begin(number)
        while (left := limit - len(found)) > 0:
            rows = await self._file.read(partial(_page, name=self.name, after=number, limit=left))
            found += self._readable(rows)
            if len(rows) < left:
                break
            number = rows[-1][0]
        return found

    def _readable(self, rows: Iterable[Any]) -> list[StoredSubscription]:
        read = [
            self.unreadable.read(number, key, body, met=bool(met), news=news)
            for number, key, body, met, news in rows
        ]
        return [one for one in read if one is not None]

    async def note_news(self, news: Sequence[News]) -> list[StoredSubscription]:
        rows = [(pack_news(one), self.name, one.key, *_MET_CONCERNED[one.kind]) for one in news]
        if not rows:
            return []
        found = await self._write_as_leader(
            lambda tx: [changed for row in rows for changed in tx.execute(_NOTE_NEWS, row).fetchall()]
        )
        return self._readable(found)

    async def settle_news(self, refs: Collection[SubscriptionRef], then: AfterNews) -> None:
        rows = [(self.name, *key_and_number(one)) for one in refs]
        if rows:
            await self._write_as_leader(lambda tx: _settle_news(tx, rows, then))

    async def _write_as_leader(self, step: Callable[[Transaction], Any]) -> Any:  # noqa: ANN401  (the step's)
        """Run a step, unless another process is the leader at the moment of the transaction."""
        now = self._clock.now()

        def make(tx: Transaction) -> tuple[bool, Any]:
            is_late = held_by_another(tx, self.name, self.leases.holder, now) is not None
            return is_late, None if is_late else step(tx)

        is_late, result = await self._file.write(make)
        if is_late:
            raise NotTheSenderError(f"another process polls for {self.name} now")
        return result

    async def count(self) -> int:
        query = "SELECT count(*) FROM subscriptions WHERE poller = ?"
        return await self._file.read(lambda tx: tx.execute(query, (self.name,)).fetchone()[0])

    async def watermark(self) -> str | None:
        query = "SELECT mark FROM pollers WHERE name = ?"
        row = await self._file.read(lambda tx: tx.execute(query, (self.name,)).fetchone())
        return None if row is None else row[0]

    async def save_watermark(self, mark: str) -> None:
        await self._file.write(lambda tx: tx.execute(_SAVE_WATERMARK, (self.name, mark)))


def _page(tx: Transaction, name: str, after: int, limit: int) -> list[Any]:
    return tx.execute(_PAGE, (name, after, limit)).fetchall()


def _add(tx: Transaction, name: str, packed: Sequence[tuple[str, bytes]]) -> list[bool]:
    """Delete and insert, not update: a subscription that is added again gets a new number."""
    fresh = []
    for key, body in packed:
        removed = tx.execute("DELETE FROM subscriptions WHERE poller = ? AND key = ?", (name, key)).rowcount
        tx.execute(_INSERT, (name, key, body))
        fresh.append(not removed)
    return fresh


def _add_missing(tx: Transaction, name: str, packed: Sequence[tuple[str, bytes]]) -> list[bool]:
    insert = f"{_INSERT} ON CONFLICT (poller, key) DO NOTHING"
    return [tx.execute(insert, (name, key, body)).rowcount > 0 for key, body in packed]


def _settle_news(tx: Transaction, rows: Sequence[tuple[str, str, int | None]], then: AfterNews) -> None:
    if then == "forget":
        tx.executemany(f"DELETE FROM subscriptions WHERE {_WITH_NEWS}", rows)
    elif then == "watch":
        tx.executemany(f"UPDATE subscriptions SET met = 1, news = NULL WHERE {_WITH_NEWS}", rows)
    else:
        find = f"SELECT body FROM subscriptions WHERE {_WITH_NEWS}"
        for row in rows:
            for (body,) in tx.execute(find, row).fetchall():
                _add(tx, row[0], [(row[1], body)])
