"""SQL through SQLAlchemy: reminders, jobs, history, access, audiences, uploaded or from a query."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tidegate.access import AccessStore, TokenRecord
from tidegate.clock import Clock
from tidegate.errors import MissingExtraError
from tidegate.extras import extra
from tidegate.history import HistoryStore
from tidegate.incidents import SlowCalls
from tidegate.jobs.port import JobStore
from tidegate.jobs.record import JobState
from tidegate.reminders.port import ReminderCounts, ReminderStore
from tidegate.settings import STORE_FILE, Settings
from tidegate.stores import is_redis
from tidegate.stores.memory.reminders import MemoryReminders

if TYPE_CHECKING:  # slow to import
    from tidegate.broadcast.stored_audience import AudienceStore

if TYPE_CHECKING:  # an extra
    from tidegate.database.database import Database

__all__ = [
    "count_jobs",
    "count_reminders",
    "data_file",
    "find_tokens",
    "make_access",
    "make_audiences",
    "make_database",
    "make_history",
    "make_jobs",
    "make_reminders",
    "tables_exist",
]

T = TypeVar("T")


def make_reminders(
    store: str, settings: Settings, clock: Clock, database: Callable[[], "Database"]
) -> ReminderStore:
    """Return the reminders beside the store with this name, not open yet.

    Those of `memory://` are in memory, unless DATABASE_URL is set; all others in `database()`. Raises
    MissingExtraError.
    """
    if store == "memory://" and settings.database_url is None:
        return MemoryReminders(clock)
    found = database()
    from tidegate.database.reminders import SqlReminders  # noqa: PLC0415  (an extra)

    return SqlReminders(found, clock)


def make_jobs(database: Callable[[], "Database"], clock: Clock) -> JobStore:
    """Return the jobs of the database, not open yet; those of `memory://` are in one in memory.

    Raises MissingExtraError.
    """
    found = database()
    from tidegate.database.jobs import SqlJobs  # noqa: PLC0415  (an extra)

    return SqlJobs(found, clock)


def make_access(database: Callable[[], "Database"]) -> AccessStore:
    """Return tokens, sessions and the audit log of the database, not open yet. Raises MissingExtraError."""
    found = database()
    from tidegate.database.access import SqlAccess  # noqa: PLC0415  (an extra)

    return SqlAccess(found)


def make_history(database: Callable[[], "Database"]) -> HistoryStore:
    """Return the history of the database, not open yet. Raises MissingExtraError."""
    found = database()
    from tidegate.database.history import SqlHistory  # noqa: PLC0415  (an extra)

    return SqlHistory(found)


def make_audiences(database: Callable[[], "Database"], clock: Clock) -> "AudienceStore":
    """Return the audiences of the database, not open yet; those of `memory://` are in one in memory.

    Raises MissingExtraError.
    """
    found = database()
    from tidegate.database.stored_audiences import SqlAudiences  # noqa: PLC0415  (an extra)

    return SqlAudiences(found, clock)


async def tables_exist(store: str, settings: Settings, clock: Clock) -> bool:
    """Look whether the database was made, without creating anything. Raises StoreAwayError.

    Without the libraries for it, there is none.
    """
    if settings.database_url is None:
        file = data_file(store)
        return file is not None and await asyncio.to_thread(file.is_file)
    try:
        return await _have_tables(await asyncio.to_thread(make_database, store, settings, clock))
    except MissingExtraError:
        return False


async def count_reminders(store: str, settings: Settings, clock: Clock) -> ReminderCounts | None:
    """Count the reminders, and change nothing; None if there are no tables, or those of an older Tidegate."""

    async def count(database: "Database") -> ReminderCounts:
        from tidegate.database.reminders import SqlReminders  # noqa: PLC0415  (an extra)

        return await SqlReminders(database, clock).counts(clock.now())

    return await _if_current(store, settings, clock, count)


async def count_jobs(store: str, settings: Settings, clock: Clock) -> Counter[JobState] | None:
    """Likewise, the jobs in each state."""

    async def count(database: "Database") -> Counter[JobState]:
        found = await make_jobs(lambda: database, clock).counts()
        counts = Counter[JobState]()
        for (_, state), number in found.items():
            counts[state] += number
        return counts

    return await _if_current(store, settings, clock, count)


async def find_tokens(store: str, settings: Settings, clock: Clock) -> list[TokenRecord] | None:
    """Likewise, the API tokens."""
    return await _if_current(store, settings, clock, lambda database: make_access(lambda: database).tokens())


async def _if_current(
    store: str, settings: Settings, clock: Clock, ask: "Callable[[Database], Awaitable[T]]"
) -> T | None:
    if not await tables_exist(store, settings, clock):
        return None
    database = await asyncio.to_thread(make_database, store, settings, clock)
    await database.open(upgrade=False)
    try:
        return await ask(database) if not (await database.revision()).pending else None
    finally:
        await database.close()


async def _have_tables(database: "Database") -> bool:
    if not await database.exists():
        return False
    await database.open(upgrade=False)
    try:
        return (await database.revision()).current is not None
    finally:
        await database.close()


def make_database(
    store: str, settings: Settings, clock: Clock | None = None, slow_calls: SlowCalls | None = None
) -> "Database":
    """Return the database beside the store with this name, not open yet. Raises MissingExtraError.

    Imports what it needs, which blocks for a moment.
    """
    with extra("sqlalchemy"):
        from tidegate.database.database import Database  # noqa: PLC0415

    return Database.of(store, settings, clock, slow_calls)


def data_file(store: str) -> Path | None:
    """Return the SQLite file that is used if DATABASE_URL is not set: tidegate-data.db beside tidegate.db.

    Of a store in Redis it is in the working directory. None: it is in memory, as the store is.
    """
    if store == "memory://":
        return None
    path = Path(STORE_FILE if is_redis(store) else store.removeprefix("sqlite:///"))
    return path.with_name(f"{path.stem}-data{path.suffix}")
