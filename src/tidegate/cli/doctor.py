"""`tidegate doctor`: checks this process, this machine, Redis and the database, each bounded in time.

Texts of drivers are never shown: they may repeat the password of an address.
"""

import asyncio
import os
import re
import socket
import sqlite3
import sys
import time
import zoneinfo
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final, Literal, NamedTuple

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from tidegate.access import Role
from tidegate.cli import loop, terminal
from tidegate.cli.options import AsJson, Store
from tidegate.cli.store import (
    IN_MEMORY,
    check_store_exists,
    is_redis,
    public_address,
    public_store_name,
    quietly,
)
from tidegate.clock import Clock
from tidegate.database import count_jobs, count_reminders, data_file, find_tokens
from tidegate.errors import BadInputError, TidegateError
from tidegate.jobs.record import JobState
from tidegate.outbox.port import StoreHealth
from tidegate.settings import POSTGRES_SCHEMES, SQLITE_SCHEMES, Settings, misspelt_variables
from tidegate.stores.redis.durability import RedisFacts, judge_redis, redis_facts_at

CheckState = Literal["ok", "info", "warning", "failed"]

OLDEST_PYTHON: Final = (3, 11)
RELEASE_YEAR: Final = 2026  # a clock that shows an earlier year is wrong
COARSE_CLOCK: Final = 0.005  # seconds; waits of a few milliseconds need a finer one
PORTS: Final = (8080, 8081)  # of the service and webhooks; of the gateway and of the simulator
CONNECT_SECONDS: Final = 2.0
PROBE_SECONDS: Final = 3.0
COUNT_SECONDS: Final = 2.0
MARKS: Final[dict[CheckState, tuple[str, str]]] = {
    "ok": ("✓", "green"),
    "info": ("·", "dim"),
    "warning": ("!", "bold yellow"),
    "failed": ("✗", "bold red"),
}
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+).*;.*extra == ['\"](\w+)['\"]")

app = typer.Typer(add_completion=False)


class Check(NamedTuple):
    """One finding. `info` is neither good nor bad; `advice` says what to do, if anything."""

    name: str
    state: CheckState
    found: str
    advice: str = ""


@app.command(epilog="[b]Try it:[/b]  tidegate doctor  ·  REDIS_URL=redis://localhost:6379/0 tidegate doctor")
def doctor(*, store: Store = None, as_json: AsJson = False) -> None:
    """Check that this machine has what Tidegate needs, and say what to do.

    Checks Python, the installed extras, which store is used and why (--store, else TIDEGATE_STORE, else
    REDIS_URL, else tidegate.db), the process that sends for it, Redis, the database (DATABASE_URL, else a
    file beside the store) and its replica, ports and clocks.
    Exits with 1 if a check failed.
    """
    raise typer.Exit(examine(store=store, as_json=as_json))


def examine(*, store: str | None, as_json: bool) -> int:
    """Print every check; return 1 if one failed, else 0."""
    checks = loop.run(_all_checks(store))
    failed = any(check.state == "failed" for check in checks)
    found = {"checks": [check._asdict() for check in checks], "passed": not failed}
    summary = Text(_summary(checks), style="bold red" if failed else "bold green")
    terminal.report(found, _table(checks), summary, as_json=as_json)
    return 1 if failed else 0


async def _all_checks(store: str | None) -> list[Check]:
    settings, complaints = _settings()
    named_by = "TIDEGATE_STORE"
    if store:
        settings, named_by = settings.model_copy(update={"tidegate_store": store}), "--store"
    probes = [
        _bounded("python", asyncio.to_thread(probe_machine)),
        _bounded("extras", asyncio.to_thread(probe_extras)),
        _bounded("ports", asyncio.to_thread(probe_ports)),
    ]
    for variable, url in _redis_addresses(settings, named_by).items():
        probes.append(_bounded("redis", probe_redis(url, variable)))
    if not is_redis(settings.store.place) and settings.store.place != IN_MEMORY:
        probes.append(_bounded("store", probe_store(settings)))
    probes += [
        _bounded("database", probe_database(url.get_secret_value(), variable.upper()))
        for variable in ("database_url", "database_replica_url")
        if (url := getattr(settings, variable))
    ]
    if settings.database_url is None:
        probes.append(_bounded("database", asyncio.to_thread(probe_data_file, settings.store.place)))
    probes.append(_bounded("reminders", probe_reminders(settings)))
    probes.append(_bounded("jobs", probe_jobs(settings)))
    probes.append(_bounded("API tokens", probe_tokens(settings)))
    found = [check for found in await asyncio.gather(*probes) for check in found]
    chosen = [
        store_choice_check(settings, named_by),
        database_choice_check(settings),
        *sentry_checks(settings),
    ]
    return [*complaints, *chosen, *found]


def _redis_addresses(settings: Settings, named_by: str) -> dict[str, str]:
    """Addresses by what gives them. One that is also the store is checked once, as the store."""
    place, variable = settings.store
    giver = named_by if variable == "TIDEGATE_STORE" else variable
    found: dict[str, str] = {giver: place} if giver is not None and is_redis(place) else {}
    url = settings.redis_url.get_secret_value() if settings.redis_url else None
    return found if url is None or url in found.values() else found | {"REDIS_URL": url}


def _settings() -> tuple[Settings, list[Check]]:
    """Read the settings. A bad one is a failed check; the other checks run without settings."""
    try:
        settings = Settings.read()
    except BadInputError as error:
        return Settings.model_construct(), [Check("settings", "failed", "cannot be read", str(error))]
    return settings, misspelt_checks(misspelt_variables())


async def _bounded(name: str, probe: Awaitable[list[Check]]) -> list[Check]:
    try:
        async with Clock().timeout(PROBE_SECONDS):
            return await probe
    except TimeoutError:
        found = f"no result within {PROBE_SECONDS:g} s"
        return [Check(name, "failed", found, "check whether a host name or a disk does not answer")]


def _table(checks: list[Check]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("check", no_wrap=True)
    table.add_column("found")
    table.add_column("what to do")
    for check in checks:
        mark, style = MARKS[check.state]
        # As Text: Rich would take brackets in an address for markup.
        table.add_row(Text(mark, style), Text(check.name), Text(check.found), Text(check.advice))
    return table


def _summary(checks: list[Check]) -> str:
    failed = sum(check.state == "failed" for check in checks)
    warnings = sum(check.state == "warning" for check in checks)
    if failed:
        return f"{failed} failed, {warnings} to look at."
    return f"Nothing failed, {warnings} to look at." if warnings else "All is well."


# Probes: each looks at one thing and returns its checks.


def probe_machine() -> list[Check]:
    return [
        python_check(sys.version_info[:3]),
        wall_clock_check(Clock().now()),
        monotonic_clock_check(time.get_clock_info("monotonic").resolution),
        time_zones_check(len(zoneinfo.available_timezones())),
    ]


def probe_extras() -> list[Check]:
    """Check the packages of each extra that this version of Tidegate declares."""
    declared = extras_of(requires("tidegate") or [])
    return [
        extra_check(name, {package: installed_version(package) for package in packages})
        for name, packages in declared.items()
    ]


def installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def probe_ports() -> list[Check]:
    return [port_check(number, free=port_is_free(number)) for number in PORTS]


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


async def probe_redis(url: str, variable: str = "REDIS_URL") -> list[Check]:
    """Check the Redis at `url`, which comes from this environment variable, or from --store."""
    where, name = public_address(url), "redis" if variable == "REDIS_URL" else "store"
    try:
        facts = await redis_facts_at(url, Clock(), CONNECT_SECONDS)
    except ImportError:
        advice = f"the driver is missing: {install_command('redis')}"
        return [Check(name, "failed", f"{variable} is set", advice)]
    except Exception as error:  # noqa: BLE001  (whatever a driver raises is a finding)
        advice = f"start Redis there, or correct {variable} ({failure_reason(error)})"
        return [Check(name, "failed", f"{where} cannot be used", advice)]
    return redis_checks(where, facts, name)


async def probe_store(settings: Settings) -> list[Check]:
    """Check the store in a file, and ask the process that sends for it. Never makes a file."""
    place = settings.store.place
    try:
        check_store_exists(place)
    except TidegateError as error:
        missing = "there is no store" in str(error)
        return [Check("store", "info" if missing else "failed", str(error))]
    from tidegate.gate import Tidegate  # noqa: PLC0415  (slow to import: `--help` does without)

    name = public_store_name(place)
    try:
        with quietly():
            async with Tidegate(place, settings=settings) as gate:
                own, told = gate.health(), await gate.core.store.sender_health()
    except TidegateError as error:
        return [Check("store", "failed", f"{name} cannot be used", str(error))]
    store = (
        Check("store", "ok", name) if own.ready else Check("store", "failed", name, "; ".join(own.reasons))
    )
    return [store, sender_check(told)]


async def probe_database(url: str, variable: str = "DATABASE_URL") -> list[Check]:
    """Check the database at `url`, which comes from the environment variable `variable`."""
    scheme, _, rest = url.partition("://")
    if scheme in POSTGRES_SCHEMES:
        check = await _probe_postgres(f"postgresql://{rest}", variable)
    elif scheme in SQLITE_SCHEMES:
        name = rest.partition("?")[0].removeprefix("/")
        # With an @ it may be a server's address, with its password, that has one slash too many.
        check = await asyncio.to_thread(probe_sqlite, name, shown="@" not in rest)
    else:
        advice = "write postgresql://user:password@host:5432/name or sqlite:///file.db"
        check = Check("database", "failed", f"{variable} is not the address of a database", advice)
    return [check if variable == "DATABASE_URL" else check._replace(name="database replica")]


async def _probe_postgres(url: str, variable: str) -> Check:
    where = public_address(url)
    try:
        import asyncpg  # type: ignore[import-untyped]  # noqa: PLC0415  (an extra; ships no types)

        # Without named statements, which PgBouncer would mix up.
        connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS, statement_cache_size=0)
        try:
            await connection.fetchval("select 1")
            number = await connection.fetchval("show server_version")
        finally:
            await connection.close(timeout=CONNECT_SECONDS)
    except ImportError:
        advice = f"the driver is missing: {install_command('sql')}"
        return Check("database", "failed", f"{variable} is set", advice)
    except Exception as error:  # noqa: BLE001  (likewise)
        advice = f"start PostgreSQL there, or correct {variable} ({failure_reason(error)})"
        return Check("database", "failed", f"{where} cannot be used", advice)
    return Check("database", "ok", f"{where}, PostgreSQL {number}")


def probe_data_file(store: str) -> list[Check]:
    """Check the file beside the store that holds reminders and jobs, if there is one. Blocks on the disk."""
    file = data_file(store)
    if file is None or not file.exists():
        return []
    shown = public_store_name(str(file)) == str(file)
    return [probe_sqlite(str(file), shown=shown, advice="restore a copy of it, or move it away")]


async def probe_reminders(settings: Settings) -> list[Check]:
    """Say how many there are, if any. Makes and upgrades no database."""
    clock = Clock()
    try:
        async with clock.timeout(COUNT_SECONDS):
            counts = await count_reminders(settings.store.place, settings, clock)
    except TimeoutError:
        return [Check("reminders", "info", f"there are some: counting took more than {COUNT_SECONDS:g} s")]
    except TidegateError:
        return []  # the check of the database says why
    if counts is None or not any(counts):
        return []
    found = f"{counts.active:,} active, {counts.paused:,} paused, {counts.ended:,} ended"
    return [Check("reminders", "info", found)]


async def probe_jobs(settings: Settings) -> list[Check]:
    """Say how many wait and how many are dead, if there are any. Makes and upgrades no database."""
    clock = Clock()
    try:
        async with clock.timeout(COUNT_SECONDS):
            counts = await count_jobs(settings.store.place, settings, clock)
    except TimeoutError:
        return [Check("jobs", "info", f"there are some: counting took more than {COUNT_SECONDS:g} s")]
    except TidegateError:
        return []  # the check of the database says why
    return [] if not counts else [jobs_check(counts)]


async def probe_tokens(settings: Settings) -> list[Check]:
    """Say how many can be used, if there are any. Makes and upgrades no database."""
    clock = Clock()
    try:
        tokens = await find_tokens(settings.store.place, settings, clock)
    except TidegateError:
        return []  # the check of the database says why
    if not tokens:
        return []
    usable = [token for token in tokens if token.is_usable(clock.now())]
    admins = sum(token.role is Role.ADMIN for token in usable)
    whose = "an admin's" if admins == 1 else "admins'"
    return [Check("API tokens", "info", f"{len(usable):,} that can be used, {admins:,} of them {whose}")]


def jobs_check(counts: Mapping[JobState, int]) -> Check:
    waiting = counts.get(JobState.QUEUED, 0) + counts.get(JobState.SENT, 0)
    running, dead = counts.get(JobState.RUNNING, 0), counts.get(JobState.DEAD, 0)
    found = f"{waiting:,} waiting, {running:,} running, {dead:,} dead"
    return Check("jobs", "info", found, "see why: tidegate jobs list --state dead" if dead else "")


def probe_sqlite(name: str, *, shown: bool = True, advice: str = "correct DATABASE_URL") -> Check:
    """Open the file if it exists; never create one. Blocks on the disk."""
    if name in {"", ":memory:"}:
        return Check("database", "warning", "SQLite in memory", "gone at the end: write sqlite:///file.db")
    path = Path(name)
    file, folder = (path, path.parent) if shown else ("the file given", "its folder")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        what = f"create that folder, make it writable, or {advice}"
        return Check("database", "failed", f"{folder} is not a writable folder", what)
    if not path.exists():
        return Check("database", "ok", f"{file} (does not exist yet, will be created)")
    address = f"{path.absolute().as_uri()}?mode=rw"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=1)) as connection:
            connection.execute("pragma schema_version").fetchone()
    except sqlite3.Error:
        found = f"{file} is not a SQLite file, or may not be opened"
        return Check("database", "failed", found, advice)
    return Check("database", "ok", f"{file}, SQLite {sqlite3.sqlite_version}")


def failure_reason(error: BaseException | None) -> str:
    """Describe a failure in words that hold nothing of an address."""
    kind = str(error) if isinstance(error, TidegateError) else type(error).__name__  # ours hold none either
    while error is not None:
        if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
            return f"no answer within {CONNECT_SECONDS:g} s"
        if isinstance(error, OSError) and error.strerror and error.errno:
            return os.strerror(error.errno).lower() if error.errno > 0 else "no such host"
        error = error.__cause__ or error.__context__
    return kind


# Conclusions: pure, without file, network or clock.


def python_check(number: tuple[int, ...]) -> Check:
    found = ".".join(map(str, number[:3]))
    if number < OLDEST_PYTHON:
        return Check("python", "failed", found, "install Python 3.11 or later")
    return Check("python", "ok", found)


def extras_of(requirements: Iterable[str]) -> dict[str, list[str]]:
    """The packages of each extra, from a package's metadata; without `all`, which repeats the others."""
    extras: dict[str, list[str]] = {}
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match and match[2] != "all":
            extras.setdefault(match[2], []).append(match[1])
    return extras


def extra_check(name: str, versions: Mapping[str, str | None]) -> Check:
    missing = [package for package, number in versions.items() if number is None]
    if missing:
        found = "not installed" if len(missing) == len(versions) else f"without {', '.join(missing)}"
        return Check(f"extra {name}", "info", found, f"to use it: {install_command(name)}")
    return Check(
        f"extra {name}", "ok", ", ".join(f"{package} {number}" for package, number in versions.items())
    )


def install_command(extra: str) -> str:
    return f"pip install 'tidegate[{extra}]'"


def redis_checks(where: str, facts: RedisFacts, name: str = "redis") -> list[Check]:
    """Check whether it can be used, evicts keys, and survives a restart."""
    return [
        Check(name, one.verdict, f"{where}, version {one.found}", one.advice)
        if one.about == "version"
        else Check(f"{name} {one.about}", one.verdict, one.found, one.advice)
        for one in judge_redis(facts)
    ]


def store_choice_check(settings: Settings, named_by: str = "TIDEGATE_STORE") -> Check:
    """Say which store is used if none is named, and why."""
    place, variable = settings.store
    shown = public_store_name(place)
    if place == IN_MEMORY:
        return Check("store chosen", "warning", f"{IN_MEMORY}, by {named_by}", "gone with its process")
    if variable == "TIDEGATE_STORE":
        found = f"{shown}, by {named_by}" + (", which wins over REDIS_URL" if settings.redis_url else "")
        return Check("store chosen", "info", found)
    if variable is None:
        return Check("store chosen", "info", f"{shown}, as neither TIDEGATE_STORE nor REDIS_URL is set")
    found = f"{shown}, by REDIS_URL, as TIDEGATE_STORE is not set"
    if (file := settings.overlooked_file()) is not None:
        advice = f"{file} here is not used: tidegate move {file} redis://…, or set TIDEGATE_STORE={file}"
        return Check("store chosen", "warning", found, advice)
    return Check("store chosen", "info", found)


def database_choice_check(settings: Settings) -> Check:
    """Say where reminders and jobs are kept, and why."""
    if settings.database_url is not None:
        where = public_address(settings.database_url.get_secret_value())
        return Check("database chosen", "info", f"{where}, by DATABASE_URL")
    file = data_file(settings.store.place)
    found = "memory, as the store is" if file is None else public_store_name(str(file))
    return Check("database chosen", "info", f"{found}, as DATABASE_URL is not set")


def misspelt_checks(misspelt: Mapping[str, str]) -> list[Check]:
    """Warn of variables that have no effect, each with the setting that may be meant."""
    return [
        Check("settings", "warning", f"{variable} has no effect: it is no setting", f"{meant} may be meant")
        for variable, meant in misspelt.items()
    ]


def sentry_checks(settings: Settings) -> list[Check]:
    """Say that errors are reported, if SENTRY_DSN is set. Contacts nobody."""
    if settings.sentry_dsn is None:
        return []
    number = installed_version("sentry-sdk")
    if number is None:
        advice = f"nothing is reported: {install_command('sentry')}"
        return [Check("sentry", "warning", "SENTRY_DSN is set, sentry-sdk is not installed", advice)]
    found = f"SENTRY_DSN is set, sentry-sdk {number}: worker and scheduler report there"
    return [Check("sentry", "ok", found, "an attached bot does with gate.report_to_sentry()")]


def sender_check(health: StoreHealth | None) -> Check:
    """Check the process that sends, by what it says of itself."""
    if health is None:
        return Check("sender", "info", "none runs", "to deliver: tidegate worker, or the bot itself")
    if not health.ready:
        return Check("sender", "failed", "not ready", "; ".join(health.reasons))
    return Check("sender", "info" if health.reasons else "ok", "ready", "; ".join(health.reasons))


def port_check(number: int, *, free: bool) -> Check:
    if free:
        return Check(f"port {number}", "ok", "free")
    advice = "stop what uses it, or choose another with --port or --listen"
    return Check(f"port {number}", "warning", "taken", advice)


def wall_clock_check(now: float) -> Check:
    today = datetime.fromtimestamp(now, UTC)
    shown = today.strftime("%Y-%m-%d %H:%M UTC")
    if today.year < RELEASE_YEAR:
        advice = "set the clock, for instance by NTP: timedatectl set-ntp true"
        return Check("wall clock", "failed", shown, advice)
    return Check("wall clock", "ok", shown)


def monotonic_clock_check(resolution: float) -> Check:
    found = f"steps of {resolution * 1e6:g} µs"
    if resolution > COARSE_CLOCK:
        return Check("monotonic clock", "warning", found, "short waits will take longer than asked for")
    return Check("monotonic clock", "ok", found)


def time_zones_check(count: int) -> Check:
    if count == 0:
        return Check("time zones", "warning", "no data", "local times need it: pip install tzdata")
    return Check("time zones", "ok", f"{count} known")
