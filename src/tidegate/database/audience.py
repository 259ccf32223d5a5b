"""An audience from an SQL query, which is read to its end at once: sending takes an hour or a day.

A cursor that is open for so long would hold a connection, keep PostgreSQL from cleaning up, and block all
writers of many SQLite files: on_dead could not mark users there.
"""

import asyncio
import pickle
import re
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from tidegate.errors import BadInputError, MissingExtraError, TidegateError
from tidegate.extras import extra

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

ROWS: Final = 1_000  # read and stored together
IN_MEMORY: Final = 16 * 1024 * 1024  # bytes; the rest goes to a temporary file
DRIVERS: Final = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}
_CLASS = re.compile(r"^<class '[^']*'>: ")


def sql(database: "str | AsyncEngine", query: str, /, **parameters: Any) -> "SqlAudience":  # noqa: ANN401
    """Return the rows of a query as an audience. The query runs each time it is iterated.

    `database`: sqlite:///app.db, postgresql://…, or an AsyncEngine of SQLAlchemy. In the query, `:name` is
    the parameter `name`, which is bound, never pasted. Needs the extra `sql`.
    """
    return SqlAudience(database, query, parameters)


class SqlAudience:
    """An async iterable of rows as mappings of column names to values. Not all rows are in memory."""

    def __init__(self, database: object, query: str, parameters: dict[str, Any]) -> None:
        self._url, self._engine = place_of(database)
        self.query = query
        self.parameters = parameters
        self._count: int | None = None

    async def __aiter__(self) -> AsyncGenerator[dict[str, Any]]:
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as kept:
            chunks = await self._keep(kept)
            await asyncio.to_thread(kept.seek, 0)
            for _ in range(chunks):
                # Pickle keeps dates and decimals; no other process can write to this file.
                for row in await asyncio.to_thread(pickle.load, kept):
                    yield row

    def __length_hint__(self) -> int:
        """The number of rows of the latest reading."""
        return NotImplemented if self._count is None else self._count

    def __repr__(self) -> str:
        return f"<audience from {_shown(self._url)}>"

    @property
    def description(self) -> str:
        """The audience in words, without a password and without parameters."""
        return f"{_shown(self._url)}: {' '.join(self.query.split())}"

    def stored_address(self, usual: str | None) -> str | None:
        """Return the address as it may be stored: "" for the usual one, None if it holds a secret."""
        if self._engine is not None:
            return None
        if usual is not None and _address(usual) == self._url:
            return ""
        return None if self._url.password or self._url.query else self._url.render_as_string()

    async def _keep(self, kept: IO[bytes]) -> int:
        """Store the rows; return the number of chunks. Raises TidegateError without a password in it."""
        from sqlalchemy import text  # noqa: PLC0415  (an extra)

        count = chunks = 0
        try:
            async with self._connection() as connection:
                result = await connection.stream(text(self.query), self.parameters)
                async for rows in result.mappings().partitions(ROWS):
                    await asyncio.to_thread(pickle.dump, [dict(row) for row in rows], kept)
                    count, chunks = count + len(rows), chunks + 1
        except MissingExtraError:
            raise
        except Exception as error:  # noqa: BLE001  (drivers raise many types)
            why = _words(error, self._url)
            raise TidegateError(f"the audience cannot be read from {_shown(self._url)}: {why}") from None
        self._count = count
        return chunks

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator["AsyncConnection"]:
        await asyncio.to_thread(_check_file, self._url)
        if self._engine is not None:
            async with self._engine.connect() as connection:
                yield connection
            return
        engine = await asyncio.to_thread(_engine_at, self._url)
        try:
            async with engine.connect() as connection:
                yield connection
        finally:
            await engine.dispose()


def place_of(database: object) -> "tuple[URL, AsyncEngine | None]":
    """Return the address or the engine, without connecting. Raises BadInputError that says what to give."""
    with extra("sql", "sqlalchemy"):
        from sqlalchemy.ext.asyncio import AsyncEngine  # noqa: PLC0415
    if isinstance(database, AsyncEngine):
        return database.url, database
    if isinstance(database, str):
        return _address(database), None
    kind = type(database).__name__
    raise BadInputError(f"give the address of a database, or an AsyncEngine of SQLAlchemy: got {kind}")


def _engine_at(url: "URL") -> "AsyncEngine":
    """Make an engine. Blocks: it imports a driver and reads files."""
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415  (an extra)

    with extra("sql", "asyncpg"), extra("sql", "aiosqlite"):
        return create_async_engine(url)


def _address(database: str) -> "URL":
    from sqlalchemy import make_url  # noqa: PLC0415  (an extra)
    from sqlalchemy.exc import ArgumentError  # noqa: PLC0415

    try:
        url = make_url(database.strip())
        url = url.set(drivername=DRIVERS[url.drivername.lower()])
    except (ArgumentError, KeyError, ValueError):
        hint = "special characters of a password are written as %40 and the like"
        raise BadInputError(
            "not the address of a database: write sqlite:///app.db or"
            f" postgresql://user:password@host/name ({hint}), or give an AsyncEngine of SQLAlchemy"
        ) from None
    mode = url.query.get("sslmode")  # asyncpg calls it ssl
    if mode is not None:
        url = url.difference_update_query(["sslmode"]).update_query_dict({"ssl": str(mode)})
    return url


def _check_file(url: "URL") -> None:
    """Raise FileNotFoundError: SQLite would create an empty file."""
    path = url.database
    named = url.get_backend_name() == "sqlite" and path and not path.startswith((":memory:", "file:"))
    if named and not Path(str(path)).is_file():
        raise FileNotFoundError("there is no such file")


def _shown(url: "URL") -> str:
    """Return the address without user and parameters, which may hold secrets."""
    host = f"{url.host or ''}{f':{url.port}' if url.port else ''}"
    return f"{url.get_backend_name()}://{host}/{url.database or ''}"


def _words(error: Exception, url: "URL") -> str:
    """Return the driver's message, without SQLAlchemy's additions: they contain values of parameters."""
    cause = getattr(error, "orig", None) or error
    text = _CLASS.sub("", str(cause)).splitlines()[0].partition(" (Background")[0] if str(cause) else ""
    if url.password:
        text = text.replace(str(url.password), "***")
    return text or type(cause).__name__
