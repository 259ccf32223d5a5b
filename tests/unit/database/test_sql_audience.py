"""Addresses of databases: what is taken, and what is said without giving a password away."""

import sys
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from tidegate.database.audience import place_of, sql
from tidegate.errors import BadInputError, MissingExtraError

QUERY = "SELECT chat_id FROM users"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("sqlite:///app.db", "sqlite+aiosqlite:///app.db"),
        ("postgresql://bob:secret@host:5433/shop", "postgresql+asyncpg://bob:***@host:5433/shop"),
        (" postgres://bob:secret@host/shop\n", "postgresql+asyncpg://bob:***@host/shop"),
        ("postgresql+asyncpg://host/shop?sslmode=require", "postgresql+asyncpg://host/shop?ssl=require"),
    ],
)
def test_an_address_gets_a_driver_that_does_not_block(given: str, used: str) -> None:
    url, engine = place_of(given)
    assert (str(url), engine) == (used, None)


def test_an_engine_is_taken_as_it_is() -> None:
    engine = create_async_engine("sqlite+aiosqlite://")
    assert place_of(engine) == (engine.url, engine)


@pytest.mark.parametrize(
    "database",
    [
        "",
        "users.db",
        "mysql://bob:secret@host/shop",
        "postgresql://bob:secret@host:port/shop",
        "redis://secret",
    ],
)
def test_what_is_no_address_is_refused_without_being_shown(database: str) -> None:
    with pytest.raises(BadInputError, match=r"sqlite:///app\.db or postgresql://") as caught:
        sql(database, QUERY)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_engine_that_blocks_is_refused() -> None:
    engine = create_engine("sqlite://")
    with pytest.raises(BadInputError, match="an AsyncEngine of SQLAlchemy: got Engine"):
        sql(engine, QUERY)  # type: ignore[arg-type]
    engine.dispose()


@pytest.mark.parametrize(
    ("missing", "database", "command"),
    [
        (
            "sqlalchemy.ext.asyncio",
            "sqlite:///app.db",
            r"sqlalchemy is not installed: .*tidegate\[sql\]",
        ),
        ("aiosqlite", "sqlite://", r"aiosqlite is not installed: .*tidegate\[sql\]"),
        ("asyncpg", "postgresql://host/shop", r"asyncpg is not installed: .*tidegate\[sql\]"),
    ],
)
async def test_a_missing_extra_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, missing: str, database: str, command: str
) -> None:
    broken: Any = None
    monkeypatch.setitem(sys.modules, missing, broken)
    with pytest.raises(MissingExtraError, match=command):
        await anext(aiter(sql(database, QUERY)))


def test_an_audience_shows_neither_user_nor_password() -> None:
    audience = sql("postgresql://bob:secret@host/shop?password=secret", QUERY, town="Rye")
    assert repr(audience) == "<audience from postgresql://host/shop>"
