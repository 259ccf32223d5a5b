"""Other queues in a SQLite file, for `outbox.py`: huey, and the table that people write themselves.

Both commit for each row, to the disk, as they have no verb for many. Neither paces anything.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.outbox_subject import TEXT, Figures, Watch

SECONDS: Final = 1.5  # of puts
Put = Callable[[int], object]
Cycle = Callable[[], object]


def figures(put: Put, cycle: Cycle | None = None) -> Figures:
    """Puts a second; or, with a `cycle` of claim and end, those, and all three together."""
    filling, cycling = Watch(), Watch()
    number, until = 0, time.perf_counter() + SECONDS
    with filling:
        while time.perf_counter() < until:
            put(number)
            number += 1
    if cycle is None:
        return filling.figures(number)
    with cycling:
        for _ in range(number):
            cycle()
    return {**cycling.figures(number), "with_its_put": number / (filling.seconds + cycling.seconds)}


def huey(folder: Path, *, cycle: bool) -> Figures:
    """Without results, which would be one more commit. It deletes a task before it runs: a crash loses it."""
    from huey import SqliteHuey  # noqa: PLC0415  (its runs alone pay for it)

    queue = SqliteHuey(filename=str(folder / "huey.db"), fsync=True, results=False)

    def deliver(chat_id: int, text: str) -> None:
        pass

    send: Any = queue.task()(deliver)
    try:
        return figures(lambda i: send(i, TEXT), (lambda: _execute(queue)) if cycle else None)
    finally:
        queue.storage.close()


def _execute(queue: Any) -> None:  # noqa: ANN401  (it has no types)
    task = queue.dequeue()
    assert task is not None
    queue.execute(task)


def plain(folder: Path, *, cycle: bool) -> Figures:
    """A row is inserted, marked as taken, deleted: a commit for each."""
    with _table(folder) as rows:

        def end() -> None:
            taken = rows.execute(
                "UPDATE messages SET state = 'sending' WHERE id ="
                " (SELECT id FROM messages WHERE state = 'queued' ORDER BY id LIMIT 1) RETURNING id, text"
            ).fetchall()
            assert len(taken) == 1
            rows.execute("DELETE FROM messages WHERE id = ?", taken[0][:1])

        return figures(lambda i: rows.execute(INSERT, (i, TEXT)), end if cycle else None)


def bare(folder: Path, number: int, size: int) -> Figures:
    """The same table, many rows in each commit: what SQLite itself can."""
    batches = [[(i, TEXT) for i in range(start, start + size)] for start in range(0, number, size)]
    watch = Watch()
    with _table(folder) as rows, watch:
        for batch in batches:
            rows.execute("BEGIN")
            rows.executemany(INSERT, batch)
            rows.execute("COMMIT")
    return watch.figures(number)


INSERT = "INSERT INTO messages (chat_id, text) VALUES (?, ?)"


@contextmanager
def _table(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(folder / "plain.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, chat_id INTEGER NOT NULL, text TEXT NOT NULL,"
            " state TEXT NOT NULL DEFAULT 'queued')"
        )
        connection.execute("CREATE INDEX waiting ON messages (id) WHERE state = 'queued'")
        yield connection
