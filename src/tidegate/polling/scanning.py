"""A look at every record, a page at a time, for what a delta cannot see: reversals, deletions, quiet changes.

What one page shows may be outdated when the last one is read, and a key may have several records. So the
scan itself only tells what came true. Whatever speaks against a subscriber is a doubt, settled by a look at
the records of that key alone.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from tidegate.polling.source import Row
from tidegate.polling.subscriptions import News, Subscription

Known = dict[str, dict[str, float | None]]
"""The keys whose records were there: for the id of each, the time of its last change, if it has one."""


class People(msgspec.Struct, frozen=True):
    """Who is there now."""

    waiting: Mapping[str, Subscription]
    watched: Mapping[str, Subscription]

    def __contains__(self, key: str) -> bool:
        return key in self.waiting or key in self.watched

    def __iter__(self) -> Iterator[str]:
        return chain(self.waiting, self.watched)


class Scan:
    """One pass over the table. Remembers only those who were there at its first page, or came since."""

    def __init__(self, began: float) -> None:
        self.began = began  # monotonic
        self.after: str | None = None  # where the next page begins
        self.known: Known = {}
        self.late: list[
            tuple[float, float]
        ] = []  # of those no delta could see: the time, when it was heard of
        self._expected: frozenset[str] | None = None
        self._unmet: set[str] = set()

    @property
    def has_begun(self) -> bool:
        return self._expected is not None

    def note(self, rows: Iterable[Row], people: People) -> None:
        if self._expected is None:
            self._expected = frozenset(people)
        for row in rows:
            if row.key in self._expected or row.key in people:
                note(self.known, row)
                if not row.met:
                    self._unmet.add(row.key)

    def doubts(self, people: People) -> list[str]:
        """After the last page: whose record was not there, and whose did not stay true."""
        absent = sorted(key for key in self._expected or () if key in people and key not in self.known)
        return absent + sorted(key for key in self._unmet if key in people.watched)


def note(known: Known, row: Row) -> None:
    known.setdefault(row.key, {})[row.id] = row.changed


def met_by(rows: Iterable[Row], waiting: Collection[str]) -> list[News]:
    """For whom it came true; once for each, though a key may have several records."""
    found = {row.key: row for row in rows if row.met and row.key in waiting}
    return [News(key, row.value) for key, row in found.items()]


def settle(keys: Iterable[str], rows: Iterable[Row], people: People, expected: Collection[str]) -> list[News]:
    """All records of these keys, read just now. `expected`: the keys whose record must be there."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.key, []).append(row)
    news = (_judge(key, found.get(key, []), people, expected) for key in keys)
    return [each for each in news if each is not None]


def _judge(key: str, rows: Sequence[Row], people: People, expected: Collection[str]) -> News | None:
    met = next((row for row in rows if row.met), None)
    if met is not None:
        return News(key, met.value) if key in people.waiting else None
    if rows:
        return News(key, rows[0].value, "reversed") if key in people.watched else None
    is_gone = key in people.watched or (key in people.waiting and key in expected)
    return News(key, kind="gone") if is_gone else None
