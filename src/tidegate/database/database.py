"""The SQL database of a process: engines, transactions, and a schema that is up to date.

PostgreSQL, directly or through PgBouncer in transaction mode, or one SQLite file. Nothing is set for a
session, as the next transaction may have another one: what a transaction needs is set within it.
"""

import asyncio
import re
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from sqlalchemy import URL, Connection, CursorResult, Executable, RowMapping, event, inspect, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.pool import AsyncAdaptedQueuePool, NullPool

from tidegate.call_stack import StackReading, read_stack, thread_frames
from tidegate.clock import Clock
from tidegate.database import data_file
from tidegate.database.address import DRIVERS, file_of, is_sqlite, make_engine, parse_address, public_name
from tidegate.database.driver_errors import translated
from tidegate.database.migrations import VERSION_TABLE, Revision, load_upgrade
from tidegate.errors import BadInputError, ClosedError, StoreAwayError, StoreError
from tidegate.incidents import IncidentLog, SlowCalls
from tidegate.model import DailyHours
from tidegate.settings import Settings
from tidegate.stores.sqlite.file import LEFT_BEHIND, LEFT_IN_LOG, create_file, use_wal, write_anew
from tidegate.stores.sqlite.file_health import file_identity

T = TypeVar("T")

IDLE_TIMEOUT: Final = 60.0  # seconds between two statements of a transaction
NETWORK_MARGIN: Final = 5.0  # seconds after which an answer that the server should have given is missing
MIGRATION_LOCK: Final = 7_433_683_010  # any number that no other program takes for its advisory lock
_LITERAL: Final = re.compile(r"'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$|(?<![\w:$])\d[\d.]*", re.DOTALL)
PRAGMAS: Final = ("foreign_keys = ON", "synchronous = FULL", "journal_size_limit = 67108864")


class SqlTransaction:
    """A transaction that is open. Its errors are Tidegate's."""

    def __init__(self, connection: AsyncConnection, url: URL, clock: Clock, slow_calls: SlowCalls) -> None:
        self._connection = connection
        self._url = url
        self._clock = clock
        self._slow_calls = slow_calls
        self.dialect = connection.dialect.name

    async def execute(
        self, statement: Executable, parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    ) -> CursorResult[Any]:
        """Run a statement, once or once for each of several parameters. Raises StoreError."""
        began = self._clock.monotonic()
        try:
            with translated(self._url):
                return await self._connection.execute(statement, parameters)
        finally:
            self._slow_calls.note_sql(lambda: text_without_values(statement), self._clock.monotonic() - began)

    async def run(self, function: Callable[[Connection], T]) -> T:
        """Run a function that needs a connection of SQLAlchemy that is not async."""
        with translated(self._url):
            return await self._connection.run_sync(function)

    async def rows(
        self, statement: Executable, parameters: Mapping[str, Any] | None = None
    ) -> Sequence[RowMapping]:
        return (await self.execute(statement, parameters)).mappings().all()

    async def scalar(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401
        return (await self.execute(statement, parameters)).scalar()


class Database:
    """Engines and their transactions. Every verb raises StoreAwayError while the server cannot be reached."""

    def __init__(
        self,
        address: str | URL,
        clock: Clock | None = None,
        *,
        replica: str | None = None,
        pool_size: int = 5,
        max_overflow: int = 10,
        statement_timeout: float = 30.0,
        busy_timeout: float = 5.0,
        hours: DailyHours | None = None,
        slow_calls: SlowCalls | None = None,
    ) -> None:
        self.url = parse_address(address) if isinstance(address, str) else address
        self._replica_url = None if replica is None else parse_address(replica)
        self._clock = clock or Clock()
        self._pool = {"pool_size": pool_size, "max_overflow": max_overflow}
        self._statement_timeout = statement_timeout
        self._busy_timeout = busy_timeout
        self._hours = hours
        self._slow_calls = slow_calls or SlowCalls(IncidentLog(self._clock), self._clock)
        self._engine: AsyncEngine | None = None
        self._identity: tuple[int, int] | None = None  # of a file, by which it is known again
        self._replica: AsyncEngine | None = None
        self._opening = asyncio.Lock()
        self._transactions = 0
        self._idle = asyncio.Event()
        self._writer = asyncio.Lock()  # SQLite has one writer: the tasks of this process take turns

    @classmethod
    def of(
        cls,
        store: str,
        settings: Settings,
        clock: Clock | None = None,
        slow_calls: SlowCalls | None = None,
    ) -> Self:
        """Return the database of the settings, not open yet; by default a file beside the store."""
        replica = settings.database_replica_url
        return cls(
            address_for(store, settings),
            clock,
            replica=None if replica is None else replica.get_secret_value(),
            pool_size=settings.db_pool_size,
            max_overflow=settings.db_max_overflow,
            statement_timeout=settings.tidegate_statement_timeout,
            busy_timeout=settings.tidegate_busy_timeout,
            hours=settings.tidegate_analytics_hours,
            slow_calls=slow_calls,
        )

    @property
    def name(self) -> str:
        """The address without user and password."""
        return public_name(self.url)

    @property
    def replica_name(self) -> str | None:
        return None if self._replica_url is None else public_name(self._replica_url)

    @property
    def is_opening(self) -> bool:
        return self._opening.locked()

    async def exists(self) -> bool:
        """Return False if it is a SQLite file that was not made yet. Asks no server."""
        path = file_of(self.url)
        return path is None or await asyncio.to_thread(path.is_file)

    async def open(self, *, upgrade: bool = True) -> None:
        """Connect, and bring the schema up to date unless `upgrade` is False. Opens what is open already.

        Raises StoreAwayError if the server does not answer, and StoreError for a schema that is newer.
        """
        async with self._opening:
            if self._engine is None:
                await self._open(upgrade=upgrade)

    async def _open(self, *, upgrade: bool) -> None:
        path = file_of(self.url)
        if path is not None and upgrade:
            await asyncio.to_thread(self._prepare_file, path)
        elif not await self.exists():
            raise StoreError(f"there is no {path}")
        if path is not None:
            self._identity = await asyncio.to_thread(file_identity, path)
        self._engine = await asyncio.to_thread(self._new_engine, self.url)
        if self._replica_url is not None:
            self._replica = await asyncio.to_thread(self._new_engine, self._replica_url)
        try:
            if (await self.revision()).pending and upgrade:
                await self.upgrade()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Disconnect, after transactions that are open; they have as long as a statement may take."""
        engines = [engine for engine in (self._engine, self._replica) if engine is not None]
        self._engine = self._replica = None
        if self._transactions:
            self._idle.clear()
            with suppress(TimeoutError):
                async with self._clock.timeout(self._statement_timeout):
                    await self._idle.wait()
        for engine in engines:
            with translated(engine.url):
                await engine.dispose()

    async def revision(self) -> Revision:
        """Return the state of the schema. Raises StoreError if it is of a newer Tidegate."""
        async with self.read(latest=True) as transaction:
            current = await _current(transaction)
        return Revision.of(current, self.name)

    async def upgrade(self) -> Revision:
        """Bring the schema up to date, in one transaction; processes that do so at the same time wait.

        Returns the state that it had.
        """
        run = await asyncio.to_thread(load_upgrade)
        async with self._upgrading() as transaction:
            found = Revision.of(await _current(transaction), self.name)
            if found.pending:
                await transaction.run(run)
        return found

    @asynccontextmanager
    async def _upgrading(self) -> AsyncIterator[SqlTransaction]:
        """A transaction without time limits: a migration of a large table takes as long as it takes."""
        if is_sqlite(self.url):
            async with self.write() as transaction:
                yield transaction
            return
        own = await asyncio.to_thread(make_engine, self.url, poolclass=NullPool)
        lock = f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK}), set_config('statement_timeout', '0', true)"
        try:
            async with self._transaction(own, lock) as transaction:
                yield transaction
        finally:
            await own.dispose()

    @asynccontextmanager
    async def write(self) -> AsyncIterator[SqlTransaction]:
        """A transaction on the primary, committed at the end; if the body raises, nothing has changed.

        On SQLite it holds the only write lock: the body must not wait for another writer.
        """
        engine = await self._opened()
        if is_sqlite(self.url):
            async with self._transaction(engine, "BEGIN IMMEDIATE", self._turn()) as transaction:
                yield transaction
        else:
            async with self._transaction(engine, self._limits()) as transaction:
                yield transaction

    @asynccontextmanager
    async def read(self, *, latest: bool = False) -> AsyncIterator[SqlTransaction]:
        """A transaction that only reads: on the replica, if there is one, which may lag behind.

        `latest`: on the primary, which knows everything that was committed.
        """
        primary = await self._opened()
        engine = primary if latest or self._replica is None else self._replica
        begin = "BEGIN" if is_sqlite(engine.url) else self._limits("transaction_read_only")
        async with self._transaction(engine, begin) as transaction:
            yield transaction

    async def ping(self) -> None:
        """See whether the primary answers. Raises StoreError if it does not, ClosedError if not open."""
        async with self.read(latest=True):
            pass

    async def analytics_hours(self) -> None:
        """Wait for the hours in which heavy questions are asked (TIDEGATE_ANALYTICS_HOURS), if set."""
        while self._hours is not None and (wait := self._hours.seconds_until(self._clock.now())) > 0:
            await self._clock.sleep(wait)

    async def rewrite(self) -> None:
        """Write a SQLite file anew, so that nothing of deleted rows is left in it. A server does this itself.

        Other writers wait meanwhile. Raises StoreError if bytes may be left.
        """
        path = file_of(self.url)
        if path is None:
            return
        async with self._turn():
            try:
                with translated(self.url):
                    emptied = await asyncio.to_thread(self._rewrite_file, path)
            except StoreError as error:
                raise StoreError(f"{LEFT_BEHIND.format(path=path)}: {error}; then do it again") from error
        if not emptied:
            raise StoreError(LEFT_IN_LOG.format(path=path))

    def _rewrite_file(self, path: Path) -> bool:
        connection = sqlite3.connect(path, timeout=self._busy_timeout, isolation_level=None)
        with closing(connection):
            return write_anew(connection)

    @asynccontextmanager
    async def _transaction(
        self, engine: AsyncEngine, begin: str, turn: AbstractAsyncContextManager[None] | None = None
    ) -> AsyncIterator[SqlTransaction]:
        self._transactions += 1
        try:
            async with AsyncExitStack() as stack:
                if turn is not None:
                    await stack.enter_async_context(turn)
                with translated(engine.url):
                    connection = await _begin(stack, engine, begin)
                began = self._clock.monotonic()
                try:
                    yield SqlTransaction(connection, engine.url, self._clock, self._slow_calls)
                    with translated(engine.url):
                        await connection.commit()
                finally:
                    self._slow_calls.note_transaction(_user_of_transaction, self._clock.monotonic() - began)
        finally:
            self._transactions -= 1
            if not self._transactions:
                self._idle.set()

    def _limits(self, *switches: str) -> str:
        """The first statement of a transaction on PostgreSQL. These settings end with the transaction.

        A process that has stopped within a transaction loses it, so that others can have its rows.
        """
        limits = {
            "statement_timeout": self._statement_timeout,
            "idle_in_transaction_session_timeout": IDLE_TIMEOUT,
        }
        values = {name: f"{seconds * 1000:.0f}" for name, seconds in limits.items()}
        values |= dict.fromkeys(switches, "on")
        return "SELECT " + ", ".join(
            f"set_config('{name}', '{value}', true)" for name, value in values.items()
        )

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        try:
            async with self._clock.timeout(self._statement_timeout):
                await self._writer.acquire()
        except TimeoutError:
            raise StoreAwayError(
                f"another task of this process has kept {self.name} locked for {self._statement_timeout:g} s"
            ) from None
        try:
            yield
        finally:
            self._writer.release()

    async def _opened(self) -> AsyncEngine:
        path = file_of(self.url)
        if path is not None and self._engine is not None:
            with translated(self.url):
                found = await asyncio.to_thread(file_identity, path)
            if found != self._identity:
                raise StoreError(f"{path} was deleted or replaced while it was open: restart this process")
        if self._engine is None:
            raise ClosedError(f"the database {self.name} is not open")
        return self._engine

    def _new_engine(self, url: URL) -> AsyncEngine:
        """Blocks: see `make_engine`."""
        if not is_sqlite(url):
            limit = self._statement_timeout + NETWORK_MARGIN
            options = {**self._pool, "pool_timeout": self._statement_timeout}
            return make_engine(url, connect={"command_timeout": limit}, **options)
        # One in memory is gone with its connection, and another connection would have one of its own.
        pool = self._pool if file_of(url) else {"pool_size": 1, "max_overflow": 0}
        connect = {
            "timeout": self._busy_timeout,
            "isolation_level": None,  # no BEGIN but ours
            "factory": _RollingBackConnection,
        }
        engine = make_engine(url, connect=connect, poolclass=AsyncAdaptedQueuePool, **pool)
        event.listen(engine.sync_engine, "connect", _set_pragmas)
        return engine

    def _prepare_file(self, path: Path) -> None:
        """Make a SQLite file, with a write-ahead log: readers and the writer do not wait for each other."""
        create_file(path)
        with translated(self.url), closing(sqlite3.connect(path, timeout=self._busy_timeout)) as connection:
            use_wal(connection)


def address_for(store: str, settings: Settings) -> URL:
    """Return the address of DATABASE_URL; without it, that of the file beside the store."""
    if settings.database_url is None:
        path = data_file(store)
        return URL.create(DRIVERS["sqlite"], database=None if path is None else str(path))
    url = parse_address(settings.database_url.get_secret_value())
    file, own = file_of(url), Path(store.removeprefix("sqlite:///"))
    if file is not None and file.absolute() == own.absolute():
        raise BadInputError(f"{own} is the store: write another file into DATABASE_URL, or leave it out")
    return url


def text_without_values(statement: Executable) -> str:
    """Return the SQL of a statement for the log. Values that its author wrote into the text are left out."""
    return _LITERAL.sub("…", str(statement))


def _user_of_transaction() -> StackReading:
    """Return the place at which the transaction that ends now is used."""
    frames = thread_frames(sys._getframe())  # noqa: SLF001  (the documented way to a frame)
    while frames and frames[-1].f_globals.get("__name__") in {__name__, "contextlib"}:
        frames.pop()
    return read_stack(frames)


class _RollingBackConnection(sqlite3.Connection):
    """A connection that gives its locks back when it is closed.

    SQLite keeps a closed connection, and its transaction, for as long as a statement of it has rows left. A
    cancelled task leaves such a statement, and its traceback keeps it until garbage is collected.
    """

    def close(self) -> None:
        try:
            self.rollback()
        finally:
            super().close()


def _set_pragmas(connection: DBAPIConnection, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


async def _begin(stack: AsyncExitStack, engine: AsyncEngine, begin: str) -> AsyncConnection:
    """Return a connection with a transaction. One that the server has closed meanwhile is replaced."""
    connection = await stack.enter_async_context(engine.connect())
    try:
        await connection.exec_driver_sql(begin)
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
        connection = await stack.enter_async_context(engine.connect())  # the pool has dropped the others, too
        await connection.exec_driver_sql(begin)
    return connection


async def _current(transaction: SqlTransaction) -> str | None:
    if not await transaction.run(lambda connection: inspect(connection).has_table(VERSION_TABLE)):
        return None
    revision: str | None = await transaction.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))  # noqa: S608
    return revision
