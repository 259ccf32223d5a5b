"""The doctor's conclusions, without looking at anything."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli import doctor
from tidegate.cli.doctor import CheckState
from tidegate.cli.store import public_address
from tidegate.settings import Settings
from tidegate.stores.redis.durability import RedisFacts

GOOD_REDIS = RedisFacts(version="7.2.4", policy="noeviction", appends=True, saves=True)


@pytest.mark.parametrize(
    ("version", "state"), [((3, 10, 14), "failed"), ((3, 11, 0), "ok"), ((3, 13, 1), "ok")]
)
def test_python_is_recent_enough_or_fails(version: tuple[int, ...], state: CheckState) -> None:
    assert doctor.python_check(version).state == state


@pytest.mark.parametrize(
    ("settings", "state", "found"),
    [
        ({}, "info", "tidegate.db, as neither TIDEGATE_STORE nor REDIS_URL is set"),
        (
            {"redis_url": "redis://:hush@host:6379/0"},
            "info",
            "redis://host:6379/0, by REDIS_URL, as TIDEGATE_STORE is not set",
        ),
        ({"tidegate_store": "bot.db"}, "info", "bot.db, by TIDEGATE_STORE"),
        (
            {"tidegate_store": "bot.db", "redis_url": "redis://:hush@host/0"},
            "info",
            "bot.db, by TIDEGATE_STORE, which wins over REDIS_URL",
        ),
        ({"tidegate_store": "memory://"}, "warning", "memory://, by TIDEGATE_STORE"),
    ],
)
def test_which_store_is_used_is_said_with_the_reason(
    settings: dict[str, str], state: CheckState, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    check = doctor.store_choice_check(Settings.model_validate(settings))

    assert (check.state, check.found) == (state, found)


def test_a_file_that_redis_url_overlooks_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tidegate.db").touch()

    check = doctor.store_choice_check(Settings.model_validate({"redis_url": "redis://host/0"}))

    assert (check.state, "set TIDEGATE_STORE=tidegate.db" in check.advice) == ("warning", True)


def test_extras_come_from_the_metadata_without_all() -> None:
    requirements = [
        "aiohttp>=3.12",
        "uvloop>=0.21; sys_platform != 'win32'",
        "redis[hiredis]>=5.2; extra == 'redis'",
        'asyncpg>=0.30 ; extra == "postgres"',
        "alembic>=1.14; (python_version > '3') and extra == 'postgres'",
        "redis[hiredis]>=5.2; extra == 'all'",
    ]

    assert doctor.extras_of(requirements) == {"redis": ["redis"], "postgres": ["asyncpg", "alembic"]}


def test_a_missing_extra_is_information_with_its_command() -> None:
    check = doctor.extra_check("redis", {"redis": None})

    assert (check.state, check.found) == ("info", "not installed")
    assert "pip install 'tidegate[redis]'" in check.advice


def test_half_an_extra_says_what_is_missing() -> None:
    assert doctor.extra_check("postgres", {"asyncpg": "0.30", "alembic": None}).found == "without alembic"


def test_a_good_redis_is_ok_throughout() -> None:
    assert {check.state for check in doctor.redis_checks("host:1/0", GOOD_REDIS)} == {"ok"}


@pytest.mark.parametrize("version", ["6.0.20", "5.0.14"])
def test_an_old_redis_fails(version: str) -> None:
    found = doctor.redis_checks("host:1/0", GOOD_REDIS._replace(version=version))

    assert [check.state for check in found] == ["failed"]
    assert "6.2" in found[0].advice


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_redis_that_evicts_is_warned_about(policy: str) -> None:
    _, memory, _ = doctor.redis_checks("host:1/0", GOOD_REDIS._replace(policy=policy))

    assert memory.state == "warning"
    assert "noeviction" in memory.advice


@pytest.mark.parametrize(
    ("appends", "saves", "state"),
    [
        (True, None, "ok"),
        (False, True, "warning"),
        (False, False, "warning"),
        (False, None, "info"),
        (None, None, "info"),
    ],
)
def test_what_a_restart_of_redis_would_lose(
    appends: bool | None,  # noqa: FBT001
    saves: bool | None,  # noqa: FBT001
    state: CheckState,
) -> None:
    *_, persistence = doctor.redis_checks("host:1/0", GOOD_REDIS._replace(appends=appends, saves=saves))

    assert persistence.state == state


def test_a_redis_whose_file_is_written_whenever_is_warned_about() -> None:
    *_, persistence = doctor.redis_checks("host:1/0", GOOD_REDIS._replace(fsync="no"))

    assert (persistence.state, "everysec" in persistence.advice) == ("warning", True)


def test_the_store_s_redis_is_named_as_the_store() -> None:
    names = [check.name for check in doctor.redis_checks("host:1/0", GOOD_REDIS, "store")]

    assert names == ["store", "store memory", "store persistence"]


def test_a_taken_port_is_a_warning_with_a_way_out() -> None:
    assert doctor.port_check(8081, free=True).state == "ok"
    taken = doctor.port_check(8081, free=False)
    assert (taken.state, "--port" in taken.advice) == ("warning", True)


def test_a_clock_from_before_the_release_fails() -> None:
    assert doctor.wall_clock_check(0).state == "failed"
    assert doctor.wall_clock_check(1_900_000_000).state == "ok"


def test_a_coarse_clock_is_a_warning() -> None:
    assert doctor.monotonic_clock_check(1e-9).state == "ok"
    assert doctor.monotonic_clock_check(0.0156).state == "warning"


def test_missing_time_zones_are_a_warning() -> None:
    assert doctor.time_zones_check(599).state == "ok"
    assert "tzdata" in doctor.time_zones_check(0).advice


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://127.0.0.1:6379/0", "127.0.0.1:6379/0"),
        ("redis://:hush@host:6379/0", "host:6379/0"),
        ("postgresql://me:hush@host/name?password=hush", "host/name"),
        ("redis://:hu/sh@host", "the address given"),
        ("redis://:hu#sh@host", "the address given"),
        ("postgresql://[", "the address given"),
        ("redis://:hush@[::1/0", "the address given"),
        ("unix:///run/redis.sock", "/run/redis.sock"),
    ],
)
def test_addresses_show_host_port_and_database_only(url: str, shown: str) -> None:
    assert public_address(url) == shown


@given(st.text("abc/?#@:%[]", min_size=1))
def test_no_password_shows_whatever_its_characters(tail: str) -> None:
    assert "HUSH" not in public_address(f"redis://user:HUSH{tail}@host:6379/0")


def test_sentry_is_named_only_if_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.sentry_checks(Settings.model_validate({})) == []
    given = Settings.model_validate({"sentry_dsn": "https://key@sentry.example.org/1"})

    [check] = doctor.sentry_checks(given)
    assert (check.state, "key" in check.found) == ("ok", False)

    monkeypatch.setattr(doctor, "installed_version", lambda _: None)
    [check] = doctor.sentry_checks(given)
    assert check.state == "warning"
    assert "pip install 'tidegate[sentry]'" in check.advice


def test_a_misspelt_setting_is_a_warning_that_names_the_one_that_may_be_meant() -> None:
    assert doctor.misspelt_checks({}) == []

    [check] = doctor.misspelt_checks({"TIDEGATE_BOT_RAET": "TIDEGATE_BOT_RATE"})

    assert (check.state, check.advice) == ("warning", "TIDEGATE_BOT_RATE may be meant")
    assert "TIDEGATE_BOT_RAET" in check.found
