"""An audience from an SQL query, which is read to its end at once: sending takes an hour or a day.

A cursor that is open for so long would hold a connection, keep PostgreSQL from cleaning up, and block all
writers of many SQLite files: on_dead could not mark users there.
"""

import asyncio
import pickle
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING, Any, Final

from tidegate.database.address import driver_text, file_of, make_engine, parse_address, public_name
from tidegate.errors import BadInputError, MissingExtraError, TidegateError
from tidegate.extras import extra

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

ROWS: Final = 1_000  # read and stored together
IN_MEMORY: Final = 16 * 1024 * 1024  # bytes; the rest goes to a temporary file


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
        return f"<audience from {public_name(self._url)}>"

    @property
    def description(self) -> str:
        """The audience in words, without a password and without parameters."""
        return f"{public_name(self._url)}: {' '.join(self.query.split())}"

    def stored_address(self, usual: str | None) -> str | None:
        """Return the address as it may be stored: "" for the usual one, None if it holds a secret."""
        if self._engine is not None:
            return None
        if usual is not None and parse_address(usual) == self._url:
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
            why = driver_text(error, self._url)
            raise TidegateError(f"the audience cannot be read from {public_name(self._url)}: {why}") from None
        self._count = count
        return chunks

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator["AsyncConnection"]:
        await asyncio.to_thread(_check_file, self._url)
        if self._engine is not None:
            async with self._engine.connect() as connection:
                yield connection
            return
        engine = await asyncio.to_thread(make_engine, self._url)
        try:
            async with engine.connect() as connection:
                yield connection
        finally:
            await engine.dispose()


def place_of(database: object) -> "tuple[URL, AsyncEngine | None]":
    """Return the address or the engine, without connecting. Raises BadInputError that says what to give."""
    with extra("sqlalchemy"):
        from sqlalchemy.ext.asyncio import AsyncEngine  # noqa: PLC0415
    if isinstance(database, AsyncEngine):
        return database.url, database
    if isinstance(database, str):
        return parse_address(database), None
    kind = type(database).__name__
    raise BadInputError(f"give the address of a database, or an AsyncEngine of SQLAlchemy: got {kind}")


def _check_file(url: "URL") -> None:
    """Raise FileNotFoundError: SQLite would create an empty file."""
    path = file_of(url)
    if path is not None and not path.is_file():
        raise FileNotFoundError("there is no such file")
