"""The environment is read in one place, and its secrets stay there."""

import pytest

from tidegate.errors import BadInputError
from tidegate.gate import Tidegate
from tidegate.settings import Settings


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REDIS_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)


def test_nothing_needs_to_be_set() -> None:
    settings = Settings.read()

    assert settings.redis_url is None
    assert settings.database_url is None


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("REDIS_URL", "redis://localhost:6379/0"),
        ("REDIS_URL", "rediss://user:secret@redis.example:6380/1"),
        ("REDIS_URL", "unix:///run/redis.sock"),
        ("DATABASE_URL", "postgresql://user:secret@db.example/name"),
        ("DATABASE_URL", "postgresql+asyncpg://user:secret@db.example:5432/name"),
        ("DATABASE_URL", "postgres://user:secret@db.example/name"),
        ("DATABASE_URL", "sqlite:///tidegate.db"),
        ("DATABASE_REPLICA_URL", "postgresql://user:secret@copy.example/name"),
    ],
)
def test_addresses_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, name: str, url: str) -> None:
    monkeypatch.setenv(name, url)

    secret = getattr(Settings.read(), name.lower())

    assert secret.get_secret_value() == url


@pytest.mark.parametrize(
    ("name", "url", "normal"),
    [
        ("DATABASE_URL", " postgresql://user:secret@host/db\n", "postgresql://user:secret@host/db"),
        ("DATABASE_URL", "POSTGRESQL://user:secret@Host/Db", "postgresql://user:secret@Host/Db"),
        ("DATABASE_URL", "SQLite:////var/Tide.db", "sqlite:////var/Tide.db"),
        ("REDIS_URL", "\tRediss://host", "rediss://host"),
    ],
)
def test_spaces_and_capitals_do_not_make_another_address(
    monkeypatch: pytest.MonkeyPatch, name: str, url: str, normal: str
) -> None:
    monkeypatch.setenv(name, url)

    assert getattr(Settings.read(), name.lower()).get_secret_value() == normal


@pytest.mark.parametrize(
    ("store", "redis", "choice"),
    [
        ("", "", ("tidegate.db", None)),
        ("", "redis://host/0", ("redis://host/0", "REDIS_URL")),
        ("bot.db", "redis://host/0", ("bot.db", "TIDEGATE_STORE")),
        ("redis://other/0", "redis://host/0", ("redis://other/0", "TIDEGATE_STORE")),
    ],
)
def test_the_store_is_that_of_tidegate_store_else_of_redis_url_else_a_file(
    monkeypatch: pytest.MonkeyPatch, store: str, redis: str, choice: tuple[str, str | None]
) -> None:
    monkeypatch.setenv("TIDEGATE_STORE", store)
    monkeypatch.setenv("REDIS_URL", redis)

    assert Settings.read().store == choice


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "")

    assert Settings.read().redis_url is None


def test_passwords_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:secret@localhost/0")

    assert "secret" not in f"{Settings.read()!r} {Settings.read()}"


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("REDIS_URL", "localhost:6379"),
        ("REDIS_URL", "postgresql://:secret@localhost"),
        ("REDIS_URL", "redis://user:secret"),
        ("REDIS_URL", "redis://[secret"),
        ("REDIS_URL", "redis://"),
        ("REDIS_URL", "redis:///0"),
        ("DATABASE_REPLICA_URL", "sqlite://root:secret@localhost/x"),
        ("DATABASE_URL", "sqlite://user:secret@host/x"),
        ("DATABASE_URL", "postgresql:user:secret@host/x"),
        ("DATABASE_URL", "postgresql://user:sec\nret@host/x"),
    ],
)
def test_a_bad_address_is_one_line_with_the_variable_and_without_the_value(
    monkeypatch: pytest.MonkeyPatch, name: str, url: str
) -> None:
    monkeypatch.setenv(name, url)

    with pytest.raises(BadInputError) as caught:
        Settings.read()

    line = str(caught.value)
    assert line.startswith(f"{name} is not an address that can be used: write ")
    assert "\n" not in line
    assert "secret" not in line
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("TIDEGATE_HANDLERS", "-1", "TIDEGATE_HANDLERS is too small: write 1 or more"),
        ("DB_POOL_SIZE", "0", "DB_POOL_SIZE is too small: write 1 or more"),
        ("DB_MAX_OVERFLOW", "many", "DB_MAX_OVERFLOW is not a whole number"),
        ("TIDEGATE_HANDLERS", "many", "TIDEGATE_HANDLERS is not a whole number: write digits, such as 8"),
        ("TIDEGATE_HANDLERS", "1.5", "TIDEGATE_HANDLERS is not a whole number"),
        ("TIDEGATE_HANDLERS", "100001", "TIDEGATE_HANDLERS is too large: write 100,000 or less"),
        ("TELEGRAM_TIMEOUT", "0", "TELEGRAM_TIMEOUT is too small: write more than 0"),
        ("TELEGRAM_TIMEOUT", "soon", "TELEGRAM_TIMEOUT is not a number: write one, such as 1.5"),
        ("TELEGRAM_TIMEOUT", "nan", "TELEGRAM_TIMEOUT "),
        ("TIDEGATE_REPEAT_UPDATES", "maybe", "TIDEGATE_REPEAT_UPDATES is neither yes nor no: write 1 or 0"),
    ],
)
def test_a_bad_value_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(BadInputError) as caught:
        Settings.read()

    assert str(caught.value).startswith(told)
    assert "Input should" not in str(caught.value)


def test_the_database_of_an_application_that_is_no_postgresql_keeps_no_bot_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://root:secret@localhost/shop")

    assert "secret" not in repr(Settings.read())


@pytest.mark.parametrize(("value", "seconds"), [("0", 0.0), ("0.02", 0.02), ("0.5", 0.5)])
def test_the_watchdog_can_be_set_and_switched_off(
    monkeypatch: pytest.MonkeyPatch, value: str, seconds: float
) -> None:
    monkeypatch.setenv("TIDEGATE_LOOP_WARN", value)
    assert Settings.read().tidegate_loop_warn == seconds


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIDEGATE_LOOP_WARN", "0.001"),
        ("TIDEGATE_LOOP_WARN", "-1"),
        ("TIDEGATE_SLOW_SQL", "soon"),
        ("TIDEGATE_ERROR_SPIKE", "2.5"),
    ],
)
def test_a_threshold_that_makes_no_sense_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BadInputError, match=name):
        Settings.read()


@pytest.mark.parametrize("url", ["garbage", "redis://127.0.0.1:abc/0", "redis:///7", "amqp://host:99999//"])
def test_a_broker_that_cannot_be_used_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", url)
    with pytest.raises(BadInputError, match="CELERY_BROKER_URL is not an address that can be used") as error:
        Settings.read()
    assert url not in str(error.value)


@pytest.mark.parametrize("url", ["amqp://guest:guest@host:5672//", "redis://host:6379/1", "sqs://own"])
def test_a_broker_that_can_be_used_or_is_the_application_s_own_is_taken(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", url)
    found = Settings.read().celery_broker_url
    assert found is not None
    assert found.get_secret_value() == url


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("TIDEGATE_BOT_RAET", "TIDEGATE_BOT_RATE"),
        ("TIDEGATE_USER_RATES", "TIDEGATE_USER_RATE"),
    ],
)
def test_a_misspelt_setting_is_named_in_the_log_with_the_one_that_may_be_meant(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str, meant: str
) -> None:
    monkeypatch.setenv(variable, "secret")

    Tidegate("memory://")

    [line] = caplog.messages
    assert line == f"{variable} is no setting and has no effect: {meant} may be meant"


def test_variables_of_the_application_are_not_called_misspelt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for variable in (
        "TIDEGATE_TOKEN",
        "TELEGRAM_API_URL",
        "TELEGRAM_CHANNEL",
        "TELEGRAM_BOT_TOKEN_2",
        "BOT_RATE",
        "TIDEGATE_BOT_RATE",
    ):
        monkeypatch.setenv(variable, "20/1")

    Tidegate("memory://")

    assert caplog.messages == []
