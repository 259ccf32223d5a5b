"""`tidegate database` and what `tidegate doctor` says of the database."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from databases import new_database, run_sql
from tidegate.cli.app import run
from tidegate.database.migrations import NEWEST, REVISIONS

PASSWORD = "hush-hush"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and an environment that names no database."""
    for name in ("DATABASE_URL", "DATABASE_REPLICA_URL", "REDIS_URL", "TIDEGATE_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def postgres(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    address = asyncio.run(new_database(postgres_url))
    monkeypatch.setenv("DATABASE_URL", address.replace("postgres@", f"postgres:{PASSWORD}@"))
    return address


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert run([*arguments, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_file_beside_the_store_is_shown_and_made_by_upgrade_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = told(capsys, "database", "status")
    assert list(here.iterdir()) == []
    upgraded = told(capsys, "database", "upgrade")
    after = told(capsys, "database", "status")

    assert before == {
        "database": "sqlite:///tidegate-data.db",
        "replica": None,
        "revision": None,
        "newest": NEWEST,
        "pending": list(REVISIONS),
    }
    assert (upgraded["revision"], upgraded["upgraded"]) == (NEWEST, list(REVISIONS))
    assert after == before | {"revision": NEWEST, "pending": []}
    assert (here / "tidegate-data.db").exists()
    assert told(capsys, "database", "upgrade")["upgraded"] == []


def test_a_server_is_shown_without_its_password(postgres: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = postgres.replace("postgres@", "")
    assert run(["database", "status"]) == 0
    before = capsys.readouterr().out
    assert run(["database", "upgrade"]) == 0
    assert run(["database", "status"]) == 0
    after = capsys.readouterr().out

    assert f"database  {shown}\nschema    no tables yet, {', '.join(REVISIONS)} are pending" in before
    assert f"schema    {NEWEST}, upgraded by {', '.join(REVISIONS)}\n" in after
    assert after.endswith(f"database  {shown}\nschema    {NEWEST}, up to date\n")
    assert PASSWORD not in before + after


def test_a_newer_schema_is_one_line_on_stderr(postgres: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["database", "upgrade"]) == 0
    capsys.readouterr()
    asyncio.run(run_sql(postgres, "UPDATE tidegate_version SET version_num = '9999'"))

    for command in ("status", "upgrade"):
        assert run(["database", command]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "is of a newer Tidegate" in captured.err
        assert len(captured.err.splitlines()) == 1


def test_a_server_that_is_away_is_one_line_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", f"postgresql://me:{PASSWORD}@127.0.0.1:1/shop")
    assert run(["database", "status"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("tidegate: postgresql://127.0.0.1:1/shop cannot be reached: start it there")
    assert len(error.splitlines()) == 1
    assert PASSWORD not in error


def test_a_store_in_memory_has_no_database(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["database", "status", "--store", "memory://"]) == 2
    assert "beside memory:// there is no database" in capsys.readouterr().err


def checks(capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in told(capsys, "doctor", code=code)["checks"]}


@pytest.mark.usefixtures("a_command_may_block")
def test_doctor_says_which_database_is_used_and_whether_it_answers(
    postgres: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_REPLICA_URL", f"postgresql://me:{PASSWORD}@127.0.0.1:1/copy")
    found = checks(capsys, code=1)

    assert found["database chosen"]["found"] == postgres.partition("@")[2] + ", by DATABASE_URL"
    assert found["database"]["state"] == "ok"
    assert found["database replica"]["state"] == "failed"
    assert "correct DATABASE_REPLICA_URL" in found["database replica"]["advice"]
    assert PASSWORD not in str(found)


@pytest.mark.usefixtures("a_command_may_block")
def test_doctor_looks_at_the_file_beside_the_store_if_there_is_one(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = checks(capsys)
    assert run(["database", "upgrade"]) == 0
    capsys.readouterr()
    after = checks(capsys)
    (here / "tidegate-data.db").write_text("not a database, but long enough" * 50)
    spoilt = checks(capsys, code=1)

    assert before["database chosen"]["found"] == "tidegate-data.db, as DATABASE_URL is not set"
    assert "database" not in before
    assert after["database"]["state"] == "ok"
    assert spoilt["database"]["advice"] == "restore a copy of it, or move it away"
