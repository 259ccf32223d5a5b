"""Addresses of databases, and the engines that connect to them."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import BadInputError
from tidegate.extras import extra

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.ext.asyncio import AsyncEngine

DRIVERS: Final = {
    "sqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
}
NOT_SUPPORTED: Final = {
    "mysql": "MySQL",
    "mariadb": "MariaDB",
    "mssql": "SQL Server",
    "oracle": "Oracle",
    "mongodb": "MongoDB",
}
CONNECT_TIMEOUT: Final = 5.0  # seconds
# PgBouncer in transaction mode gives each transaction another connection: a statement that was prepared
# before is not there. Without these caches asyncpg prepares each one anew, without a name.
_POSTGRES_ARGUMENTS: Final = {
    "timeout": CONNECT_TIMEOUT,
    "statement_cache_size": 0,
    "prepared_statement_cache_size": 0,
}
_CLASS = re.compile(r"^<class '[^']*'>: ")


def parse_address(database: str) -> "URL":
    """Return an address with the driver that is used. Raises BadInputError, which does not quote it."""
    with extra("sqlalchemy"):
        from sqlalchemy import make_url  # noqa: PLC0415  (an extra)
        from sqlalchemy.exc import ArgumentError  # noqa: PLC0415

    try:
        url = make_url(database.strip())
        url = url.set(drivername=DRIVERS[url.get_backend_name().lower()])  # whatever driver it names
    except (ArgumentError, KeyError, ValueError):
        scheme = database.strip().partition(":")[0].partition("+")[0].lower()
        if scheme in NOT_SUPPORTED:
            raise BadInputError(
                f"not the address of a database that Tidegate supports: {NOT_SUPPORTED[scheme]} is none of"
                " them; write sqlite:///app.db or postgresql://user:password@host/name"
            ) from None
        hint = "special characters of a password are written as %40 and the like"
        raise BadInputError(
            "not the address of a database: write sqlite:///app.db or"
            f" postgresql://user:password@host/name ({hint}), or give an AsyncEngine of SQLAlchemy"
        ) from None
    mode = url.query.get("sslmode")  # asyncpg calls it ssl
    if mode is not None:
        url = url.difference_update_query(["sslmode"]).update_query_dict({"ssl": str(mode)})
    return url


def is_sqlite(url: "URL") -> bool:
    return url.get_backend_name() == "sqlite"


def file_of(url: "URL") -> Path | None:
    """Return the file of a SQLite database; None for a server, and for one in memory."""
    path = url.database
    named = is_sqlite(url) and path and not path.startswith((":memory:", "file:"))
    return Path(str(path)) if named else None


def public_name(url: "URL") -> str:
    """Return the address without user and parameters, which may hold secrets."""
    host = f"{url.host or ''}{f':{url.port}' if url.port else ''}"
    return f"{url.get_backend_name()}://{host}/{url.database or ''}"


def driver_text(error: BaseException, url: "URL") -> str:
    """Return the driver's message, without SQLAlchemy's additions: they contain values of parameters."""
    cause = getattr(error, "orig", None) or error
    text = _CLASS.sub("", str(cause)).splitlines()[0].partition(" (Background")[0] if str(cause) else ""
    if url.password:
        text = text.replace(str(url.password), "***")
    return text or type(cause).__name__


def make_engine(url: "URL", *, connect: dict[str, Any] | None = None, **options: Any) -> "AsyncEngine":  # noqa: ANN401
    """Make an engine. Blocks: it imports a driver and reads files."""
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415  (an extra)

    arguments = connect or {}
    if not is_sqlite(url):
        arguments = _POSTGRES_ARGUMENTS | arguments
    with extra("asyncpg"), extra("aiosqlite"):
        return create_async_engine(url, connect_args=arguments, hide_parameters=True, **options)
