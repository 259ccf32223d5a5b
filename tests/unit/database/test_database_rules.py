"""Which database is used, when heavy questions are asked, and which migrations are missing."""

import datetime as dt
import sys
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from hypothesis import assume, given
from hypothesis import strategies as st

from tidegate.cli.reminders.options import naming_the_database
from tidegate.database import make_database, make_reminders, migrations
from tidegate.database.database import Database, address_for
from tidegate.database.migrations import NEWEST, REVISIONS, Revision, load_upgrade
from tidegate.database.reminders import SqlReminders
from tidegate.errors import BadInputError, MissingExtraError, StoreError
from tidegate.model import DailyHours
from tidegate.reminders.port import ReminderStore
from tidegate.settings import Settings
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.reminders import MemoryReminders


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "DATABASE_REPLICA_URL", "TIDEGATE_ANALYTICS_HOURS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("store", "file"),
    [
        ("tidegate.db", "tidegate-data.db"),
        ("/var/lib/bot.sqlite", "/var/lib/bot-data.sqlite"),
        ("sqlite:///shop.db", "shop-data.db"),
        ("what?50%.db", "what?50%-data.db"),
        ("redis://:secret@host/0", "tidegate-data.db"),
        ("memory://", None),
    ],
)
def test_without_an_address_the_database_is_a_file_beside_the_store(store: str, file: str | None) -> None:
    url = address_for(store, Settings.read())
    assert (url.drivername, url.database) == ("sqlite+aiosqlite", file)


def test_the_address_of_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://me:secret@host/name")
    for store in ("tidegate.db", "redis://host/0", "memory://"):
        url = address_for(store, Settings.read())
        assert (url.drivername, url.host, url.database) == ("postgresql+asyncpg", "host", "name")


def test_the_database_is_not_the_file_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{Path.cwd()}/tidegate.db")
    with pytest.raises(BadInputError, match=r"tidegate\.db is the store"):
        address_for("tidegate.db", Settings.read())


def test_a_database_shows_neither_user_nor_password() -> None:
    database = Database("postgresql://bob:secret@host:5433/shop?password=secret")
    assert database.name == "postgresql://host:5433/shop"


def test_reminders_beside_a_store_in_memory_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock.__new__(VirtualClock)

    def reminders_of(store: str) -> ReminderStore:
        return make_reminders(store, Settings.read(), clock, lambda: Database("sqlite://"))

    assert isinstance(reminders_of("memory://"), MemoryReminders)
    assert isinstance(reminders_of("tidegate.db"), SqlReminders)
    monkeypatch.setenv("DATABASE_URL", "postgresql://host/name")
    assert isinstance(reminders_of("memory://"), SqlReminders)


@pytest.mark.parametrize(
    ("missing", "address"), [("aiosqlite", "sqlite://"), ("asyncpg", "postgresql://host/name")]
)
async def test_a_missing_driver_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, missing: str, address: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(
        MissingExtraError, match=rf'{missing} is not installed: pip install "tidegate\[sql\]"'
    ):
        await Database(address).open()


def test_missing_libraries_are_named_with_their_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "alembic.config", None)
    with pytest.raises(MissingExtraError, match=r"alembic is not installed: .*tidegate\[sql\]"):
        load_upgrade()
    monkeypatch.delitem(sys.modules, "tidegate.database.database")
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(MissingExtraError, match=r"sqlalchemy is not installed: .*tidegate\[sql\]"):
        make_database("tidegate.db", Settings.read())


SUMMER = dt.datetime(2026, 7, 1, 12, 0, tzinfo=dt.UTC)


def seconds(hours: str, clock: str) -> float:
    at = dt.datetime.combine(SUMMER.date(), dt.time.fromisoformat(clock), dt.UTC)
    return DailyHours.parse(hours).seconds_until(at.timestamp())


@pytest.mark.parametrize(
    ("hours", "now", "wait"),
    [
        ("02:00-05:00", "01:00", 3600),
        ("02:00-05:00", "02:00", 0),
        ("02:00-05:00", "04:59", 0),
        ("02:00-05:00", "05:00", 21 * 3600),
        ("22:00-05:00", "23:00", 0),
        ("22:00-05:00", "04:00", 0),
        ("22:00-05:00", "21:00", 3600),
        ("02:00-05:00 Europe/Berlin", "00:30", 0),  # 02:30 there
        ("02:00-05:00 Europe/Berlin", "03:00", 21 * 3600),
    ],
)
def test_heavy_questions_wait_for_their_hours(hours: str, now: str, wait: float) -> None:
    assert seconds(hours, now) == wait


minutes = st.integers(0, 24 * 60 - 1)


@given(minutes, minutes, st.integers(0, 366 * 24 * 60))
def test_a_wait_ends_when_the_hours_begin_and_takes_less_than_a_day(start: int, end: int, now: int) -> None:
    assume(start != end)
    hours = DailyHours(dt.time(*divmod(start, 60)), dt.time(*divmod(end, 60)))
    day = 24 * 60

    wait = hours.seconds_until(SUMMER.timestamp() - 12 * 3600 + now * 60) / 60

    within = (now - start) % day < (end - start) % day
    assert wait == (0 if within else (start - now) % day)


def test_hours_that_begin_when_the_clocks_are_put_forward_begin_an_hour_later() -> None:
    at = dt.datetime(2026, 3, 29, 0, 0, tzinfo=dt.UTC)  # in Berlin, 02:00 becomes 03:00 at 01:00 UTC
    hours = DailyHours.parse("02:30-05:00 Europe/Berlin")
    assert hours.seconds_until(at.timestamp()) == 5400
    assert hours.seconds_until(at.timestamp() + 5400) == 0


@pytest.mark.parametrize(
    "text", ["", "02:00", "02:00-02:00", "25:00-26:00", "02:00-05:00 Mars/Base", "2-5 /etc/passwd", "-"]
)
def test_what_is_no_part_of_a_day_is_refused_with_an_example(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    with pytest.raises(BadInputError, match="02:00-05:00 Europe/Berlin"):
        DailyHours.parse(text)
    if text:
        monkeypatch.setenv("TIDEGATE_ANALYTICS_HOURS", text)
        with pytest.raises(BadInputError, match=r"TIDEGATE_ANALYTICS_HOURS .* is no part of a day"):
            Settings.read()


async def test_a_caller_waits_on_the_clock_for_the_hours_that_are_set(clock: VirtualClock) -> None:
    clock.epoch = SUMMER.timestamp()

    await Database("sqlite://", clock).analytics_hours()
    assert clock.now() == SUMMER.timestamp()
    await Database("sqlite://", clock, hours=DailyHours.parse("13:00-14:00")).analytics_hours()

    assert clock.now() == SUMMER.timestamp() + 3600


def test_missing_migrations_are_those_after_the_current_one() -> None:
    assert Revision.of(None, "x") == (None, list(REVISIONS))
    assert Revision.of(NEWEST, "x") == (NEWEST, [])


def test_a_newer_database_is_refused() -> None:
    with pytest.raises(StoreError, match=r"x is of a newer Tidegate.*9999.*Install that version"):
        Revision.of("9999", "x")


def test_the_list_of_revisions_is_that_of_the_files() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    scripts = ScriptDirectory.from_config(config)
    assert [script.revision for script in scripts.walk_revisions()] == list(reversed(REVISIONS))


def test_a_database_of_another_kind_is_named() -> None:
    with pytest.raises(BadInputError, match=r"supports: MySQL is none of them") as refused:
        Database("mysql://bob:secret@host/shop")
    assert "secret" not in str(refused.value)
    with pytest.raises(BadInputError, match=r"^DATABASE_URL .* is not the address"), naming_the_database():
        Database("mysql://bob:secret@host/shop")
