"""Databases for the tests: in files, and on one PostgreSQL for a run (the fixture `postgres_url`)."""

import asyncio
import functools
import itertools
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # ships none
from sqlalchemy import event

from tidegate.clock import Clock
from tidegate.database.database import Database

_numbers = itertools.count(1)
_shared: dict[str, str] = {}  # by server


class SetClock(Clock):
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.at = 1_000.0

    def now(self) -> float:
        return self.at


async def new_database(postgres_url: str) -> str:
    """Create an empty database on the server, and return its address. Takes a tenth of a second."""
    name = f"test_{next(_numbers)}"
    await run_sql(postgres_url, f"CREATE DATABASE {name}")
    return postgres_url.removesuffix("/postgres") + f"/{name}"


async def emptied_database(postgres_url: str) -> str:
    """Return the address of the same database each time, with tables that are empty."""
    if postgres_url not in _shared:
        _shared[postgres_url] = await new_database(postgres_url)
    tables = "SELECT string_agg(tablename, ',') FROM pg_tables WHERE tablename ~ '^tidegate_(?!version)'"
    connection = await asyncpg.connect(_shared[postgres_url])
    try:
        if filled := await connection.fetchval(tables):
            await connection.execute(f"TRUNCATE {filled} RESTART IDENTITY")
    finally:
        await connection.close()
    return _shared[postgres_url]


async def database_file(folder: Path) -> str:
    """Return the address of a new file in which all tables are empty. To copy one is ten times as quick."""
    path = folder / "data.db"
    await asyncio.to_thread(lambda: path.write_bytes(_empty_tables()))
    return f"sqlite:///{path}"


@functools.cache
def _empty_tables() -> bytes:
    async def make() -> None:
        database = Database(f"sqlite:///{path}")
        await database.open()
        await database.close()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.db")
        asyncio.run(make())
        return path.read_bytes()


async def run_sql(address: str, statement: str) -> None:
    connection = await asyncpg.connect(address)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@asynccontextmanager
async def recorded(database: Database, wanted: Callable[[str], bool]) -> AsyncIterator[list[tuple[str, Any]]]:
    """Yield the statements that are made meanwhile, with their parameters."""
    seen: list[tuple[str, Any]] = []
    engine = database._engine  # noqa: SLF001  (what the database is asked, not what the store says)
    assert engine is not None

    def note(_c: object, _k: object, statement: str, parameters: Any, _x: object, many: bool) -> None:  # noqa: ANN401, FBT001
        if wanted(statement):
            seen.append((statement, parameters[0] if many else parameters))

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine.sync_engine, "before_cursor_execute", note)


async def plan(database: Database, kind: str, statement: str, parameters: Any) -> str:  # noqa: ANN401
    """Return how the database would run a statement."""
    explain = "EXPLAIN QUERY PLAN " if kind == "sqlite" else "EXPLAIN "
    async with database.write() as transaction:
        connection = transaction._connection  # noqa: SLF001  (likewise)
        return str((await connection.exec_driver_sql(explain + statement, parameters)).all())
