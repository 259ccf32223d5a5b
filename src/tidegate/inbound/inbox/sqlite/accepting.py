"""Steps that bring arrivals into the file, and those that remember what came."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidegate.inbound.arrivals import Arrival, Source
from tidegate.inbound.inbox.base import MOST, REMEMBER
from tidegate.outbox.sqlite.file import Transaction

LOOK: Final = 4  # rows that are looked at for each arrival: what is forgotten keeps up with what comes

Answer = list[bool] | None  # None: there is no room for them
Seen = tuple[str, str]  # a source and a key
BEGINNING: Final[Seen] = ("", "")


class Placed(NamedTuple):
    """What the schedule has to know of an arrival."""

    number: int
    source: Source
    lane: str
    crashes: int = 0
    not_before: float | None = None  # wall time


class Accepted(NamedTuple):
    answers: list[Answer]
    placed: list[Placed]
    cleaned: Seen  # up to there it was looked for what can be forgotten


def accept(tx: Transaction, calls: Sequence[Sequence[Arrival]], now: float, cleaned: Seen) -> Accepted:
    """Each call has all of its arrivals taken in, or none."""
    room, fresh = MOST - waiting(tx), list[Arrival]()
    answers: list[Answer] = []
    for arrivals in calls:
        left = room - len(fresh)
        if len(arrivals) > left and _unknown(tx, arrivals, now) > left:
            answers.append(None)
            continue
        answer = [_is_new(tx, one, now) for one in arrivals]
        fresh += [one for one, new in zip(arrivals, answer, strict=True) if new]
        answers.append(answer)
    placed = place(tx, [(one, now) for one in fresh])
    return Accepted(answers, placed, _forget(tx, cleaned, LOOK * len(fresh), now))


def place(tx: Transaction, arrivals: Sequence[tuple[Arrival, float]]) -> list[Placed]:
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
    return [Placed(number, one.source, one.lane) for number, (one, _) in numbered]


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


def _is_new(tx: Transaction, one: Arrival, now: float) -> bool:
    """From now on it is known."""
    noted = tx.execute(
        "INSERT INTO seen VALUES (?, ?, ?)"
        " ON CONFLICT (source, key) DO UPDATE SET at = excluded.at WHERE at < ?",
        (one.source, one.key, now, now - REMEMBER),
    )
    return noted.rowcount == 1


def _unknown(tx: Transaction, arrivals: Sequence[Arrival], now: float) -> int:
    known = "SELECT 1 FROM seen WHERE source = ? AND key = ? AND at >= ?"
    names = {(one.source, one.key) for one in arrivals}
    return sum(tx.execute(known, (*name, now - REMEMBER)).fetchone() is None for name in names)


def _forget(tx: Transaction, after: Seen, rows: int, now: float) -> Seen:
    """Look at so many rows and remove the old ones; returns where to go on.

    There is no index by time: it would cost every arrival more than the look does.
    """
    if not rows:
        return after
    last: Seen | None = tx.execute(
        "SELECT source, key FROM seen WHERE (source, key) > (?, ?) ORDER BY source, key LIMIT 1 OFFSET ?",
        (*after, rows - 1),
    ).fetchone()
    old = "DELETE FROM seen WHERE (source, key) > (?, ?) AND at < ?"
    if last is None:  # the end is near: begin anew
        tx.execute(old, (*after, now - REMEMBER))
        return BEGINNING
    tx.execute(f"{old} AND (source, key) <= (?, ?)", (*after, now - REMEMBER, *last))
    return last
