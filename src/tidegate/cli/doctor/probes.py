"""What the doctor looks at: this process, this machine, Redis, the database. Each probe returns its checks.

Texts of drivers are never shown: they may hold what was in an address.
"""

import asyncio
import os
import secrets
import socket
import sqlite3
import sys
import time
import zoneinfo
from contextlib import closing
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from tidegate.cli.doctor import checks
from tidegate.cli.doctor.checks import Check
from tidegate.clock import Clock
from tidegate.errors import TidegateError
from tidegate.settings import POSTGRES_SCHEMES, SQLITE_SCHEMES
from tidegate.stores.redis.durability import RedisFacts, read_redis_facts

PORTS = (8080, 8081)  # of the gateway and of the simulator
CONNECT_SECONDS = 2.0


def machine() -> list[Check]:
    return [
        checks.python(sys.version_info[:3]),
        checks.wall_clock(Clock().now()),
        checks.monotonic_clock(time.get_clock_info("monotonic").resolution),
        checks.time_zones(len(zoneinfo.available_timezones())),
    ]


def extras() -> list[Check]:
    known = checks.extras_of(requires("tidegate") or [])
    return [
        checks.extra_part(name, {package: installed(package) for package in packages})
        for name, packages in known.items()
    ]


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def ports() -> list[Check]:
    return [checks.port(number, free=is_free(number)) for number in PORTS]


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


async def redis(url: str, variable: str = "REDIS_URL") -> list[Check]:
    """`variable` says where the address comes from: that of the store is called so."""
    where, name = checks.address(url), "store" if variable == "TIDEGATE_STORE" else "redis"
    try:
        facts = await _ask_redis(url)
    except ImportError:
        advice = f"the driver is missing: {checks.install('redis')}"
        return [Check(name, "failed", f"{variable} is set", advice)]
    except Exception as error:  # noqa: BLE001  (whatever a driver raises is a finding)
        advice = f"start Redis there, or correct {variable} ({reason(error)})"
        return [Check(name, "failed", f"{where} cannot be used", advice)]
    return checks.redis(where, facts, name)


async def _ask_redis(url: str) -> RedisFacts:
    from tidegate.stores.redis.connection import RedisPyConnection  # noqa: PLC0415  (its driver is an extra)

    link = await asyncio.to_thread(RedisPyConnection, url, Clock(), secrets.token_hex(6))  # which reads files
    try:
        async with Clock().timeout(CONNECT_SECONDS):
            return await read_redis_facts(link)
    finally:
        await link.close()


async def database(url: str) -> list[Check]:
    scheme, _, rest = url.partition("://")
    if scheme in POSTGRES_SCHEMES:
        return [await _postgres(f"postgresql://{rest}")]
    if scheme in SQLITE_SCHEMES:
        name = rest.partition("?")[0].removeprefix("/")
        # With an @ it may be the address of a server, and its password, with a slash too many.
        return [await asyncio.to_thread(sqlite, name, shown="@" not in rest)]
    advice = "write postgresql://user:password@host:5432/name or sqlite:///file.db"
    return [Check("database", "failed", "DATABASE_URL is no address of a database", advice)]


async def _postgres(url: str) -> Check:
    where = checks.address(url)
    try:
        import asyncpg  # type: ignore[import-untyped]  # noqa: PLC0415  (an extra; ships no types)

        connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS)
        try:
            await connection.fetchval("select 1")
            number = await connection.fetchval("show server_version")
        finally:
            await connection.close(timeout=CONNECT_SECONDS)
    except ImportError:
        advice = f"the driver is missing: {checks.install('postgres')}"
        return Check("database", "failed", "DATABASE_URL is set", advice)
    except Exception as error:  # noqa: BLE001  (likewise)
        advice = f"start PostgreSQL there, or correct DATABASE_URL ({reason(error)})"
        return Check("database", "failed", f"{where} cannot be used", advice)
    return Check("database", "ok", f"{where}, PostgreSQL {number}")


def sqlite(name: str, *, shown: bool = True) -> Check:
    """Opens an existing file and creates none. Blocks."""
    if name in {"", ":memory:"}:
        return Check("database", "warning", "SQLite in memory", "gone at the end: write sqlite:///file.db")
    path = Path(name)
    file, folder = (path, path.parent) if shown else ("the file given", "its folder")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        advice = "create that folder, make it writable, or correct DATABASE_URL"
        return Check("database", "failed", f"{folder} is no folder to write to", advice)
    if not path.exists():
        return Check("database", "ok", f"{file} (not there yet, will be created)")
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=1)
        ) as connection:
            connection.execute("pragma schema_version").fetchone()
    except sqlite3.Error:
        return Check(
            "database", "failed", f"{file} is no SQLite file, or is closed to us", "correct DATABASE_URL"
        )
    return Check("database", "ok", f"{file}, SQLite {sqlite3.sqlite_version}")


def reason(error: BaseException | None) -> str:
    """Why, in words that hold nothing of the address."""
    kind = str(error) if isinstance(error, TidegateError) else type(error).__name__  # ours hold none either
    while error is not None:
        if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
            return f"no answer within {CONNECT_SECONDS:g} s"
        if isinstance(error, OSError) and error.strerror and error.errno:
            return os.strerror(error.errno).lower() if error.errno > 0 else "no such host"
        error = error.__cause__ or error.__context__
    return kind
