"""SQLite files are looked at without being made; reasons hold nothing of an address."""

import asyncio
import errno
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli import doctor
from tidegate.cli.doctor import failure_reason, installed_version, probe_sqlite
from tidegate.errors import BadInputError
from tidegate.settings import Settings


def test_the_store_that_is_named_to_the_doctor_wins_and_is_said_to_be_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEGATE_STORE", "another.db")

    assert doctor.examine(store="redis://127.0.0.1:1/0", as_json=True) == 1

    found = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert found["store chosen"]["found"] == "redis://127.0.0.1:1/0, by --store"
    assert found["store"]["state"] == "failed"
    assert "correct --store" in found["store"]["advice"]


def test_a_missing_sqlite_file_is_fine_and_stays_missing(tmp_path: Path) -> None:
    path = tmp_path / "new.db"

    assert probe_sqlite(str(path)).state == "ok"
    assert not path.exists()


def test_a_sqlite_file_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "old #1.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table things (id)")

    check = probe_sqlite(str(path))

    assert (check.state, sqlite3.sqlite_version in check.found) == ("ok", True)


def test_a_file_that_is_no_database_fails(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("not a database, but long enough to look at" * 50)

    assert probe_sqlite(str(path)).state == "failed"


def test_a_missing_folder_fails_and_says_what_to_do(tmp_path: Path) -> None:
    check = probe_sqlite(str(tmp_path / "none" / "new.db"))

    assert check.state == "failed"
    assert "create that folder" in check.advice


def test_sqlite_in_memory_is_a_warning() -> None:
    assert probe_sqlite(":memory:").state == "warning"


def test_a_package_that_is_not_there_has_no_version() -> None:
    assert installed_version("no-such-package") is None
    assert installed_version("tidegate") is not None


def test_reasons_are_found_behind_a_drivers_error() -> None:
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('hush', 1)")
    wrapped = RuntimeError("redis://:hush@host")
    wrapped.__cause__ = refused

    assert failure_reason(wrapped) == "connection refused"
    assert failure_reason(TimeoutError()) == "no answer within 2 s"
    assert failure_reason(RuntimeError("hush")) == "RuntimeError"


async def test_a_setting_whose_driver_is_missing_fails_with_its_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for driver in ("redis", "redis.asyncio", "tidegate.stores.redis.connection", "asyncpg"):
        monkeypatch.setitem(sys.modules, driver, None)

    (redis,) = await doctor.probe_redis("redis://host/0")
    (database,) = await doctor.probe_database("postgresql://host/name")

    assert (redis.state, database.state) == ("failed", "failed")
    assert "pip install 'tidegate[redis]'" in redis.advice
    assert "pip install 'tidegate[sql]'" in database.advice


PASSWORD = "S3CRET"
schemes = st.sampled_from(
    ("postgresql", "POSTGRESQL", "postgresql+asyncpg", "sqlite", "SQLite", "sqlite+aiosqlite", "mysql", "")
)
around = st.sampled_from(("", " ", "\t", "\n", "\u00a0"))
slashes = st.sampled_from(("://", ":///", "://///", ":/", ":"))
inside = st.text("ab/?#@:%[ \n", max_size=4)


async def _refuse(*_: object, **__: object) -> None:
    raise ConnectionRefusedError(errno.ECONNREFUSED, PASSWORD)


@given(around, schemes, slashes, inside, inside)
def test_no_database_password_shows_however_the_address_is_written(
    space: str, scheme: str, slash: str, before: str, after: str
) -> None:
    url = f"{space}{scheme}{slash}user:{before}{PASSWORD}{after}@host/x{space}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "asyncpg", SimpleNamespace(connect=_refuse))
        patch.setenv("DATABASE_URL", url)
        shown = str(asyncio.run(doctor.probe_database(url)))
        try:
            known = Settings.read().database_url
        except BadInputError as error:
            shown += str(error)
        else:
            assert known is not None
            shown += str(asyncio.run(doctor.probe_database(known.get_secret_value())))

    assert PASSWORD not in shown


@given(around, st.sampled_from(("redis", "REDIS", "rediss", "unix")), slashes, inside, inside)
def test_no_redis_password_shows_however_the_address_is_written(
    space: str, scheme: str, slash: str, before: str, after: str
) -> None:
    url = f"{space}{scheme}{slash}:{before}{PASSWORD}{after}@host/0{space}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "redis_facts_at", _refuse)
        patch.setenv("REDIS_URL", url)
        try:
            known = Settings.read().redis_url
        except BadInputError as error:
            shown = str(error)
        else:
            assert known is not None
            shown = str(asyncio.run(doctor.probe_redis(known.get_secret_value())))

    assert PASSWORD not in shown


async def test_what_is_no_database_is_not_taken_for_a_file() -> None:
    (check,) = await doctor.probe_database("mysql://user:hush@host/name")

    assert (check.state, "hush" in str(check)) == ("failed", False)
