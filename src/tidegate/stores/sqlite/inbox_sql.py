"""The SQL of the inbox: one function per step, each run inside a transaction."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tidegate.inbound.inbox import (
    DEDUP_SECONDS,
    MAX_PARKED_PER_SOURCE,
    MAX_WAITING_ITEMS,
    InboxItem,
    InboxSource,
    InboxStats,
    ParkedItem,
    check_replayable,
)
from tidegate.stores.sqlite.file import Transaction

SEEN_ROWS_CHECKED_PER_ITEM: Final = 4  # so that old keys are forgotten as fast as new ones come
ITEMS_LOADED_AT_ONCE: Final = 5_000

IsNewFlags = list[bool] | None  # None: there is no room for them
SourceAndKey = tuple[str, str]
FIRST_SEEN_KEY: Final[SourceAndKey] = ("", "")


class PlacedItem(NamedTuple):
    """The columns of an item that the lanes need."""

    number: int
    source: InboxSource
    lane: str
    crashes: int = 0
    not_before: float | None = None  # wall time


class AcceptedItems(NamedTuple):
    answers: list[IsNewFlags]
    placed: list[PlacedItem]
    forgotten_up_to: SourceAndKey  # old keys up to this one were deleted


class LoadedItems(NamedTuple):
    placed: list[PlacedItem]
    upto: int  # the number up to which nothing is missing
    more: bool


def accept(
    tx: Transaction, calls: Sequence[Sequence[InboxItem]], now: float, after: SourceAndKey
) -> AcceptedItems:
    """Accept all items of a call, or none. Also delete some old keys, from `after` on."""
    new = list[InboxItem]()
    added = Counter[InboxSource]()
    answers: list[IsNewFlags] = []
    for items in calls:
        if not _has_room(tx, items, added, now):
            answers.append(None)
            continue
        answer = [_mark_seen(tx, one, now) for one in items]
        fresh = [one for one, is_new in zip(items, answer, strict=True) if is_new]
        added.update(one.source for one in fresh)
        new += fresh
        answers.append(answer)
    placed = _place(tx, [(one, now) for one in new])
    return AcceptedItems(answers, placed, _forget(tx, after, SEEN_ROWS_CHECKED_PER_ITEM * len(new), now))


def _has_room(tx: Transaction, items: Sequence[InboxItem], added: Counter[InboxSource], now: float) -> bool:
    """Return whether the new ones of these items fit, each source after those `added` before."""
    for source, size in Counter(one.source for one in items).items():
        left = MAX_WAITING_ITEMS - _arrivals_of(tx, source) - added[source]
        if size > left:  # only then is it worth to count exactly
            of_source = [one for one in items if one.source == source]
            if _count_unseen(tx, of_source, now) > left + _handling_of(tx, source):
                return False
    return True


def _place(tx: Transaction, items: Sequence[tuple[InboxItem, float]]) -> list[PlacedItem]:
    """Write items, each with the time of its arrival, at the end of their lanes."""
    if not items:
        return []
    numbered = list(enumerate(items, _last_number(tx) + 1))
    tx.executemany(
        "INSERT INTO arrivals VALUES (?, ?, ?, ?, ?, 0, 0, NULL, ?)",
        [(number, one.source, one.key, one.lane, at, one.body) for number, (one, at) in numbered],
    )
    tx.execute("INSERT OR REPLACE INTO facts VALUES ('last_arrival', ?)", (numbered[-1][0],))
    count(tx, Counter(one.source for _, (one, _) in numbered))
    return [PlacedItem(number, one.source, one.lane) for number, (one, _) in numbered]


def _last_number(tx: Transaction) -> int:
    row = tx.execute("SELECT value FROM facts WHERE name = 'last_arrival'").fetchone()
    return 0 if row is None else int(row[0])


def _mark_seen(tx: Transaction, one: InboxItem, now: float) -> bool:
    """Return whether its key is new."""
    marked = tx.execute(
        "INSERT INTO seen VALUES (?, ?, ?)"
        " ON CONFLICT (source, key) DO UPDATE SET at = excluded.at WHERE at < ?",
        (one.source, one.key, now, now - DEDUP_SECONDS),
    )
    return marked.rowcount == 1


def _count_unseen(tx: Transaction, items: Sequence[InboxItem], now: float) -> int:
    seen = "SELECT 1 FROM seen WHERE source = ? AND key = ? AND at >= ?"
    keys = {(one.source, one.key) for one in items}
    return sum(tx.execute(seen, (*key, now - DEDUP_SECONDS)).fetchone() is None for key in keys)


def _forget(tx: Transaction, after: SourceAndKey, rows: int, now: float) -> SourceAndKey:
    """Check so many rows, delete the old ones, and return where to go on.

    There is no index by time: it would cost every item more than the check does.
    """
    if not rows:
        return after
    last: SourceAndKey | None = tx.execute(
        "SELECT source, key FROM seen WHERE (source, key) > (?, ?) ORDER BY source, key LIMIT 1 OFFSET ?",
        (*after, rows - 1),
    ).fetchone()
    delete = "DELETE FROM seen WHERE (source, key) > (?, ?) AND at < ?"
    if last is None:  # fewer are left: start over
        tx.execute(delete, (*after, now - DEDUP_SECONDS))
        return FIRST_SEEN_KEY
    tx.execute(f"{delete} AND (source, key) <= (?, ?)", (*after, now - DEDUP_SECONDS, *last))
    return last


def _waiting(tx: Transaction) -> int:
    [size] = tx.execute("SELECT ifnull((SELECT value FROM facts WHERE name = 'arrivals'), 0)").fetchone()
    return int(size) - _handling(tx)


def _handling(tx: Transaction) -> int:
    [size] = tx.execute("SELECT count(*) FROM held").fetchone()
    return int(size)


def _handling_of(tx: Transaction, source: InboxSource) -> int:
    query = "SELECT count(*) FROM held JOIN arrivals USING (number) WHERE source = ?"
    [size] = tx.execute(query, (source,)).fetchone()
    return int(size)


def _arrivals_of(tx: Transaction, source: InboxSource) -> int:
    row = tx.execute("SELECT value FROM facts WHERE name = ?", (_fact(source),)).fetchone()
    return 0 if row is None else int(row[0])


def waiting_of(tx: Transaction, source: InboxSource) -> int:
    return _arrivals_of(tx, source) - _handling_of(tx, source)


def lane_length(tx: Transaction, item: InboxItem) -> int:
    query = "SELECT count(*) FROM arrivals WHERE source = ? AND lane = ?"
    [size] = tx.execute(query, (item.source, item.lane)).fetchone()
    return int(size)


def _fact(source: InboxSource) -> str:
    return f"arrivals:{source}"


def count(tx: Transaction, changes: Counter[InboxSource], sign: int = 1) -> None:
    """Change the numbers of items: to count a hundred thousand rows for each item would be slow."""
    counted = [(_fact(source), sign * size) for source, size in changes.items()]
    tx.executemany(
        "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
        [("arrivals", sign * changes.total()), *counted],
    )


def count_anew(tx: Transaction) -> None:
    """Also forgets sources that have none."""
    tx.execute("DELETE FROM facts WHERE name = 'arrivals' OR name GLOB 'arrivals:*'")
    rows = tx.execute("SELECT source, count(*) FROM arrivals GROUP BY source").fetchall()
    count(tx, Counter(dict(rows)))


def stats(tx: Transaction) -> InboxStats:
    [parked_items] = tx.execute("SELECT count(*) FROM parked").fetchone()
    return InboxStats(_waiting(tx), _handling(tx), parked_items)


def take_over(tx: Transaction) -> None:
    """Free the items of a process that died, and count its crash."""
    tx.execute("UPDATE arrivals SET crashes = crashes + 1 WHERE number IN (SELECT number FROM held)")
    tx.execute("DELETE FROM held")
    count_anew(tx)


def load(tx: Transaction, after: int) -> LoadedItems:
    """Some of the items after a number, in order. Other processes accept, too."""
    last = _last_number(tx)  # first: what is committed between the two queries is left for the next load
    rows = tx.execute(
        "SELECT number, source, lane, crashes, not_before FROM arrivals"
        " WHERE number > ? AND number <= ? ORDER BY number LIMIT ?",
        (after, last, ITEMS_LOADED_AT_ONCE),
    ).fetchall()
    more = len(rows) == ITEMS_LOADED_AT_ONCE
    return LoadedItems([PlacedItem(*row) for row in rows], rows[-1][0] if more else last, more)


def claim(tx: Transaction, numbers: Sequence[int]) -> dict[int, Any]:
    """Return the other columns of these items by number, without those that are gone."""
    wanted = (json.dumps(numbers),)
    tx.execute(
        "INSERT OR IGNORE INTO held SELECT number FROM arrivals"
        " WHERE number IN (SELECT value FROM json_each(?))",
        wanted,
    )
    rows = tx.execute(
        "SELECT number, key, arrived_at, attempts, crashes, body FROM arrivals"
        " WHERE number IN (SELECT value FROM json_each(?))",
        wanted,
    )
    return {number: rest for number, *rest in rows}


def done(tx: Transaction, numbers: Sequence[int]) -> None:
    wanted = (json.dumps(numbers),)
    removed = tx.execute(
        "DELETE FROM arrivals WHERE number IN (SELECT value FROM json_each(?))"
        " AND number IN (SELECT number FROM held) RETURNING source",
        wanted,
    ).fetchall()
    tx.execute("DELETE FROM held WHERE number IN (SELECT value FROM json_each(?))", wanted)
    count(tx, Counter(source for (source,) in removed), -1)


def release(tx: Transaction, number: int, not_before: float | None, *, failed: bool) -> bool:
    """Return whether it was claimed."""
    if tx.execute("DELETE FROM held WHERE number = ?", (number,)).rowcount == 0:
        return False
    tx.execute(
        "UPDATE arrivals SET attempts = attempts + ?1, not_before = ?2"
        " WHERE number = ?3 AND (?1 OR not_before IS NOT ?2)",
        (failed, not_before, number),
    )
    return True


def park(tx: Transaction, number: int, source: InboxSource, now: float, reason: str) -> None:
    inserted = tx.execute(
        "INSERT OR REPLACE INTO parked (source, key, lane, arrived_at, parked_at, reason, body)"
        " SELECT source, key, lane, arrived_at, ?2, ?3, body FROM arrivals"
        " WHERE number = ?1 AND EXISTS (SELECT 1 FROM held WHERE number = ?1)",
        (number, now, reason),
    )
    if inserted.rowcount == 0:
        return
    done(tx, [number])
    tx.execute(
        "DELETE FROM parked WHERE n IN"
        " (SELECT n FROM parked WHERE source = ? ORDER BY n DESC LIMIT -1 OFFSET ?)",
        (source, MAX_PARKED_PER_SOURCE),
    )


_PARKED: Final = "SELECT source, key, lane, body, arrived_at, parked_at, reason FROM parked"


def parked(tx: Transaction, source: InboxSource | None, limit: int) -> list[ParkedItem]:
    if source is None:
        rows = tx.execute(f"{_PARKED} ORDER BY n DESC LIMIT ?", (limit,))
    else:
        rows = tx.execute(f"{_PARKED} WHERE source = ? ORDER BY n DESC LIMIT ?", (source, limit))
    return [_parked_item(row) for row in rows]


def oldest_parked(tx: Transaction, limit: int) -> list[ParkedItem]:
    return [_parked_item(row) for row in tx.execute(f"{_PARKED} ORDER BY n LIMIT ?", (limit,))]


def _parked_item(row: Any) -> ParkedItem:  # noqa: ANN401  (SQLite's)
    return ParkedItem(InboxItem(*row[:4]), *row[4:])


def replay(tx: Transaction, source: InboxSource, key: str) -> list[PlacedItem]:
    """Return nothing if it is not parked. Raises BadInputError if it cannot be read."""
    row = tx.execute(f"{_PARKED} WHERE source = ? AND key = ?", (source, key)).fetchone()
    if row is None:
        return []
    one = _parked_item(row)
    check_replayable(one)
    drop(tx, source, key)
    return _place(tx, [(one.item, one.arrived_at)])


def drop(tx: Transaction, source: InboxSource, key: str) -> bool:
    return tx.execute("DELETE FROM parked WHERE source = ? AND key = ?", (source, key)).rowcount == 1
