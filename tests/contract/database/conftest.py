"""Stores of the database: in a SQLite file, in PostgreSQL, and those that tests use in their place."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from databases import SetClock, database_file, emptied_database
from tidegate.database.database import Database


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {}  # real time: drivers use threads and sockets


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture(params=["file", "postgres", "fake"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "postgres":
        request.getfixturevalue("postgres_url")  # starts it outside of the event loop
    return str(request.param)


@pytest.fixture
async def database(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Database | None]:
    """The database of a store, which opens it; None: it needs none."""
    match kind:
        case "file":
            made = Database(await database_file(tmp_path))
        case "in memory":
            made = Database("sqlite://")
        case "postgres":
            made = Database(await emptied_database(request.getfixturevalue("postgres_url")))
        case _:
            yield None
            return
    yield made
    await made.close()
