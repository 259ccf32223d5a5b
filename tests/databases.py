"""Databases for the tests, on one PostgreSQL for a run (the fixture `postgres_url`)."""

import itertools

import asyncpg  # type: ignore[import-untyped]  # ships none

_numbers = itertools.count(1)
_shared: dict[str, str] = {}  # by server


async def new_database(postgres_url: str) -> str:
    """Create an empty database on the server, and return its address. Takes a tenth of a second."""
    name = f"test_{next(_numbers)}"
    await run_sql(postgres_url, f"CREATE DATABASE {name}")
    return postgres_url.removesuffix("/postgres") + f"/{name}"


async def emptied_database(postgres_url: str) -> str:
    """Return the address of the same database each time, with tables that are empty."""
    if postgres_url not in _shared:
        _shared[postgres_url] = await new_database(postgres_url)
    tables = "SELECT string_agg(tablename, ',') FROM pg_tables WHERE tablename LIKE 'tidegate_%s'"
    connection = await asyncpg.connect(_shared[postgres_url])
    try:
        if filled := await connection.fetchval(tables):
            await connection.execute(f"TRUNCATE {filled} RESTART IDENTITY")
    finally:
        await connection.close()
    return _shared[postgres_url]


async def run_sql(address: str, statement: str) -> None:
    connection = await asyncpg.connect(address)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
