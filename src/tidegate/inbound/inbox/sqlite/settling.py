"""Steps of what was accepted: held, done, back, parked, and what a crash left."""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tidegate.inbound.arrivals import Arrival, Parked, Source
from tidegate.inbound.inbox.base import PARKED_AT_MOST, InboxStats
from tidegate.inbound.inbox.sqlite.accepting import Placed, count, handling, last_number, place, waiting
from tidegate.outbox.sqlite.file import Transaction

LOADED_AT_ONCE: Final = 5_000


class Loaded(NamedTuple):
    placed: list[Placed]
    upto: int  # the number up to which nothing is missing
    more: bool


def take_over(tx: Transaction) -> None:
    """Whoever held something has died over it."""
    tx.execute("UPDATE arrivals SET crashes = crashes + 1 WHERE number IN (SELECT number FROM held)")
    tx.execute("DELETE FROM held")
    [size] = tx.execute("SELECT count(*) FROM arrivals").fetchone()
    tx.execute("INSERT OR REPLACE INTO facts VALUES ('arrivals', ?)", (size,))


def load(tx: Transaction, after: int) -> Loaded:
    """Some of those that come after a number, in order. Other processes accept, too."""
    last = last_number(tx)  # first: what is committed between two looks is left for the next
    rows = tx.execute(
        "SELECT number, source, lane, crashes, not_before FROM arrivals"
        " WHERE number > ? AND number <= ? ORDER BY number LIMIT ?",
        (after, last, LOADED_AT_ONCE),
    ).fetchall()
    more = len(rows) == LOADED_AT_ONCE
    return Loaded([Placed(*row) for row in rows], rows[-1][0] if more else last, more)


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


def park(tx: Transaction, number: int, source: Source, now: float, reason: str) -> None:
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
        (source, PARKED_AT_MOST),
    )


def parked(tx: Transaction, source: Source | None, limit: int) -> list[Parked]:
    columns = "SELECT source, key, lane, body, arrived_at, parked_at, reason FROM parked"
    if source is None:
        rows = tx.execute(f"{columns} ORDER BY n DESC LIMIT ?", (limit,))
    else:
        rows = tx.execute(f"{columns} WHERE source = ? ORDER BY n DESC LIMIT ?", (source, limit))
    return [Parked(Arrival(*of), *rest) for *of, a, b, c in rows for rest in [(a, b, c)]]


def replay(tx: Transaction, source: Source, key: str) -> list[Placed]:
    """Nothing if it is not parked."""
    row = tx.execute(
        "DELETE FROM parked WHERE source = ? AND key = ? RETURNING lane, body, arrived_at", (source, key)
    ).fetchone()
    return [] if row is None else place(tx, [(Arrival(source, key, row[0], row[1]), row[2])])


def drop(tx: Transaction, source: Source, key: str) -> bool:
    return tx.execute("DELETE FROM parked WHERE source = ? AND key = ?", (source, key)).rowcount == 1


def stats(tx: Transaction) -> InboxStats:
    [kept] = tx.execute("SELECT count(*) FROM parked").fetchone()
    return InboxStats(waiting(tx), handling(tx), kept)
