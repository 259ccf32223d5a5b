"""The SQL of the inbox: one function per step, each run inside a transaction."""

import json
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
)
from tidegate.stores.sqlite.file import Transaction

SEEN_ROWS_CHECKED_PER_ITEM: Final = (
    4  # rows that are looked at for each arrival: what is forgotten keeps up with what comes
)

IsNewFlags = list[bool] | None  # None: there is no room for them
SeenKey = tuple[str, str]  # a source and a key
FIRST_SEEN_KEY: Final[SeenKey] = ("", "")


class PlacedItem(NamedTuple):
    """What the schedule has to know of an arrival."""

    number: int
    source: InboxSource
    lane: str
    crashes: int = 0
    not_before: float | None = None  # wall time


class AcceptedItems(NamedTuple):
    answers: list[IsNewFlags]
    placed: list[PlacedItem]
    cleaned: SeenKey  # up to there it was looked for what can be forgotten


def accept(
    tx: Transaction, calls: Sequence[Sequence[InboxItem]], now: float, cleaned: SeenKey
) -> AcceptedItems:
    """Each call has all of its arrivals taken in, or none."""
    room, fresh = MAX_WAITING_ITEMS - waiting(tx), list[InboxItem]()
    answers: list[IsNewFlags] = []
    for arrivals in calls:
        left = room - len(fresh)
        if len(arrivals) > left and _unknown(tx, arrivals, now) > left:
            answers.append(None)
            continue
        answer = [_is_new(tx, one, now) for one in arrivals]
        fresh += [one for one, new in zip(arrivals, answer, strict=True) if new]
        answers.append(answer)
    placed = place(tx, [(one, now) for one in fresh])
    return AcceptedItems(answers, placed, _forget(tx, cleaned, SEEN_ROWS_CHECKED_PER_ITEM * len(fresh), now))


def place(tx: Transaction, arrivals: Sequence[tuple[InboxItem, float]]) -> list[PlacedItem]:
    """At the end of their lanes, with the time at which they arrived."""
    if not arrivals:
        return []
    first = last_number(tx) + 1
    numbered = list(enumerate(arrivals, first))
    tx.executemany(
        "INSERT INTO arrivals VALUES (?, ?, ?, ?, ?, 0, 0, NULL, ?)",
        [(number, one.source, one.key, one.lane, at, one.body) for number, (one, at) in numbered],
    )
    tx.execute("INSERT OR REPLACE INTO facts VALUES ('last_arrival', ?)", (numbered[-1][0],))
    count(tx, len(numbered))
    return [PlacedItem(number, one.source, one.lane) for number, (one, _) in numbered]


def last_number(tx: Transaction) -> int:
    row = tx.execute("SELECT value FROM facts WHERE name = 'last_arrival'").fetchone()
    return 0 if row is None else int(row[0])


# --- how many ---


def waiting(tx: Transaction) -> int:
    [size] = tx.execute("SELECT ifnull((SELECT value FROM facts WHERE name = 'arrivals'), 0)").fetchone()
    return int(size) - handling(tx)


def handling(tx: Transaction) -> int:
    [size] = tx.execute("SELECT count(*) FROM held").fetchone()
    return int(size)


def count(tx: Transaction, change: int) -> None:
    """Counting a hundred thousand rows for each arrival would be slow."""
    tx.execute(
        "INSERT INTO facts VALUES ('arrivals', ?)"
        " ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
        (change,),
    )


# --- what came before ---


def _is_new(tx: Transaction, one: InboxItem, now: float) -> bool:
    """From now on it is known."""
    noted = tx.execute(
        "INSERT INTO seen VALUES (?, ?, ?)"
        " ON CONFLICT (source, key) DO UPDATE SET at = excluded.at WHERE at < ?",
        (one.source, one.key, now, now - DEDUP_SECONDS),
    )
    return noted.rowcount == 1


def _unknown(tx: Transaction, arrivals: Sequence[InboxItem], now: float) -> int:
    known = "SELECT 1 FROM seen WHERE source = ? AND key = ? AND at >= ?"
    names = {(one.source, one.key) for one in arrivals}
    return sum(tx.execute(known, (*name, now - DEDUP_SECONDS)).fetchone() is None for name in names)


def _forget(tx: Transaction, after: SeenKey, rows: int, now: float) -> SeenKey:
    """Look at so many rows and remove the old ones; returns where to go on.

    There is no index by time: it would cost every arrival more than the look does.
    """
    if not rows:
        return after
    last: SeenKey | None = tx.execute(
        "SELECT source, key FROM seen WHERE (source, key) > (?, ?) ORDER BY source, key LIMIT 1 OFFSET ?",
        (*after, rows - 1),
    ).fetchone()
    old = "DELETE FROM seen WHERE (source, key) > (?, ?) AND at < ?"
    if last is None:  # the end is near: begin anew
        tx.execute(old, (*after, now - DEDUP_SECONDS))
        return FIRST_SEEN_KEY
    tx.execute(f"{old} AND (source, key) <= (?, ?)", (*after, now - DEDUP_SECONDS, *last))
    return last


ITEMS_LOADED_AT_ONCE: Final = 5_000


class LoadedItems(NamedTuple):
    placed: list[PlacedItem]
    upto: int  # the number up to which nothing is missing
    more: bool


def take_over(tx: Transaction) -> None:
    """Whoever held something has died over it."""
    tx.execute("UPDATE arrivals SET crashes = crashes + 1 WHERE number IN (SELECT number FROM held)")
    tx.execute("DELETE FROM held")
    [size] = tx.execute("SELECT count(*) FROM arrivals").fetchone()
    tx.execute("INSERT OR REPLACE INTO facts VALUES ('arrivals', ?)", (size,))


def load(tx: Transaction, after: int) -> LoadedItems:
    """Some of those that come after a number, in order. Other processes accept, too."""
    last = last_number(tx)  # first: what is committed between two looks is left for the next
    rows = tx.execute(
        "SELECT number, source, lane, crashes, not_before FROM arrivals"
        " WHERE number > ? AND number <= ? ORDER BY number LIMIT ?",
        (after, last, ITEMS_LOADED_AT_ONCE),
    ).fetchall()
    more = len(rows) == ITEMS_LOADED_AT_ONCE
    return LoadedItems([PlacedItem(*row) for row in rows], rows[-1][0] if more else last, more)


def hold(tx: Transaction, numbers: Sequence[int]) -> dict[int, Any]:
    """The rest of these arrivals by number, without those that are gone."""
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
    rows = [(number,) for number in numbers]
    removed = tx.executemany(
        "DELETE FROM arrivals WHERE number = ?1 AND EXISTS (SELECT 1 FROM held WHERE number = ?1)", rows
    ).rowcount
    tx.executemany("DELETE FROM held WHERE number = ?", rows)
    count(tx, -removed)


def release(tx: Transaction, number: int, not_before: float | None, *, failed: bool) -> bool:
    """Whether it was held."""
    if tx.execute("DELETE FROM held WHERE number = ?", (number,)).rowcount == 0:
        return False
    tx.execute(
        "UPDATE arrivals SET attempts = attempts + ?1, not_before = ?2"
        " WHERE number = ?3 AND (?1 OR not_before IS NOT ?2)",
        (failed, not_before, number),
    )
    return True


# --- parked ---


def park(tx: Transaction, number: int, source: InboxSource, now: float, reason: str) -> None:
    kept = tx.execute(
        "INSERT OR REPLACE INTO parked (source, key, lane, arrived_at, parked_at, reason, body)"
        " SELECT source, key, lane, arrived_at, ?2, ?3, body FROM arrivals"
        " WHERE number = ?1 AND EXISTS (SELECT 1 FROM held WHERE number = ?1)",
        (number, now, reason),
    )
    if kept.rowcount == 0:
        return
    done(tx, [number])
    tx.execute(
        "DELETE FROM parked WHERE n IN"
        " (SELECT n FROM parked WHERE source = ? ORDER BY n DESC LIMIT -1 OFFSET ?)",
        (source, MAX_PARKED_PER_SOURCE),
    )


def parked(tx: Transaction, source: InboxSource | None, limit: int) -> list[ParkedItem]:
    columns = "SELECT source, key, lane, body, arrived_at, parked_at, reason FROM parked"
    if source is None:
        rows = tx.execute(f"{columns} ORDER BY n DESC LIMIT ?", (limit,))
    else:
        rows = tx.execute(f"{columns} WHERE source = ? ORDER BY n DESC LIMIT ?", (source, limit))
    return [ParkedItem(InboxItem(*of), *rest) for *of, a, b, c in rows for rest in [(a, b, c)]]


def replay(tx: Transaction, source: InboxSource, key: str) -> list[PlacedItem]:
    """Nothing if it is not parked."""
    row = tx.execute(
        "DELETE FROM parked WHERE source = ? AND key = ? RETURNING lane, body, arrived_at", (source, key)
    ).fetchone()
    return [] if row is None else place(tx, [(InboxItem(source, key, row[0], row[1]), row[2])])


def drop(tx: Transaction, source: InboxSource, key: str) -> bool:
    return tx.execute("DELETE FROM parked WHERE source = ? AND key = ?", (source, key)).rowcount == 1


def stats(tx: Transaction) -> InboxStats:
    [kept] = tx.execute("SELECT count(*) FROM parked").fetchone()
    return InboxStats(waiting(tx), handling(tx), kept)
