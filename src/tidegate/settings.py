"""The only reader of the environment. Secrets stay out of every text that is made from it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import Field, PlainValidator, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from tidegate.errors import BadInputError
from tidegate.model import MAX_ATTEMPTS, DailyHours, Rate
from tidegate.pacing.rules import Rules
from tidegate.scrubber import hide, hide_password

REDIS_SCHEMES = ("redis", "rediss", "unix")
AMQP_SCHEMES = ("amqp", "amqps", "pyamqp")
POSTGRES_SCHEMES = ("postgresql", "postgresql+asyncpg", "postgres")
SQLITE_SCHEMES = ("sqlite", "sqlite+aiosqlite")
SHORTEST_LOOP_WARN: Final = 0.02  # seconds: for less, the loop would have to be looked at too often
STORE_FILE: Final = "tidegate.db"  # in the working directory, if no store is named


def _rate(value: object) -> Rate:
    return value if isinstance(value, Rate) else Rate.parse(str(value))


def _hours(value: object) -> DailyHours:
    return value if isinstance(value, DailyHours) else DailyHours.parse(str(value))


Seconds = Annotated[float, Field(gt=0, le=86_400)]
Threshold = Annotated[float, Field(ge=0, le=86_400)]  # seconds; 0: off
Limit = Annotated[Rate, PlainValidator(_rate)]
Hours = Annotated[DailyHours, PlainValidator(_hours)]


class StoreChoice(NamedTuple):
    """The store to use if none is named, and the variable that gives it; None: no variable does."""

    place: str
    variable: Literal["TIDEGATE_STORE", "REDIS_URL"] | None


class Settings(BaseSettings):
    """The settings of this process. Use `read`: it reports a bad value in one line."""

    # An empty variable counts as unset. No file is read: .env belongs to whoever starts the process.
    model_config = SettingsConfigDict(env_ignore_empty=True, extra="ignore", frozen=True)

    telegram_bot_token: SecretStr | None = None  # of a bot that is to be registered
    # How a message is retried is the setting of the process that sends it, not of the one that puts it.
    telegram_max_retries: Annotated[int, Field(ge=1, le=1000)] = MAX_ATTEMPTS
    telegram_base_delay: Seconds = 1.0
    telegram_max_delay: Seconds = 60.0
    telegram_timeout: Seconds = 20.0
    telegram_rate_limit_wait: Seconds | None = (
        None  # what a direct call waits for its turn; None: as it takes
    )
    tidegate_bot_rate: Limit = Rules().bot
    tidegate_chat_rate: Limit = Rules().private
    tidegate_reply_burst: Annotated[int, Field(ge=1, le=100)] = Rules().burst  # to one chat; 1: none
    tidegate_group_rate: Limit = Rules().group
    # What a 429 may close a chat or a bot for; one that asks for more is tried again after it.
    tidegate_longest_closure: Seconds = 3600.0
    # How long messages wait for a bot that cannot send before they die; None: until they expire.
    tidegate_outage_limit: Annotated[float, Field(gt=0)] | None = None
    tidegate_handlers: Annotated[int, Field(ge=1, le=100_000)] = 256  # updates that are handled at once
    tidegate_handler_deadline: Seconds = 120.0  # then a handler is cancelled, and its update parked
    tidegate_repeat_updates: bool = False  # those whose handler was cut off by a stop: again, not parked
    tidegate_user_rate: Limit | None = None  # of updates of one user; more are dropped. None: 30/60
    tidegate_busy_text: str | None = None  # the notice about dropped updates; None: the usual text
    tidegate_store: Annotated[str | None, Field(repr=False)] = None  # an address may hold a password
    tidegate_busy_timeout: Seconds = 5.0  # then a file that another process keeps locked is reported
    tidegate_spool: str = "tidegate-spool"  # a folder: what waits here while Redis cannot be reached
    tidegate_key: SecretStr | None = None  # opens the stored tokens; "new,old" while it is changed
    redis_url: SecretStr | None = None  # the store, unless TIDEGATE_STORE is set
    database_url: SecretStr | None = None  # reminders and audiences; None: a SQLite file beside the store
    database_replica_url: SecretStr | None = None  # a copy for questions that only read
    db_pool_size: Annotated[int, Field(ge=1, le=1000)] = 5  # connections that are kept
    db_max_overflow: Annotated[int, Field(ge=0, le=1000)] = 10  # more, while they are needed
    tidegate_statement_timeout: Seconds = 30.0  # then PostgreSQL gives a statement up
    tidegate_analytics_hours: Hours | None = None  # in which heavy questions are asked; None: at any time
    # These may be the application's own: they are checked only where Tidegate reports to Sentry itself.
    sentry_dsn: SecretStr | None = None  # None: nothing is reported
    sentry_environment: str | None = None
    sentry_release: str | None = None
    sentry_traces_sample_rate: str | None = None  # a share of requests, from 0 to 1, that is measured
    sentry_profiles_sample_rate: str | None = None  # a share of those
    tidegate_sentry_texts: bool = False  # the texts of exceptions and log lines, too; they may quote users
    # What exists when a gate begins to deliver is not searched for garbage: that would stop the event loop.
    tidegate_gc_freeze: bool = True
    celery_broker_url: SecretStr | None = None  # RabbitMQ or Redis: jobs run on Celery's workers
    tidegate_jobs: str | None = None  # modules with jobs, between commas, for a worker of Celery
    tidegate_job_workers: Annotated[int, Field(ge=1, le=1000)] | None = None  # None: one for each core
    tidegate_keep_jobs: Annotated[float, Field(gt=0)] = 7 * 86_400.0  # seconds after their end
    # The watchdog: each of these is reported in a line of the log, and changes nothing else.
    tidegate_loop_warn: Threshold = 0.1  # an event loop that is blocked
    tidegate_slow_handler: Threshold = 3.0
    tidegate_slow_http: Threshold = 0.5
    tidegate_slow_sql: Threshold = 0.1
    tidegate_slow_transaction: Threshold = 5.0
    tidegate_memory_growth: Annotated[float, Field(ge=0, le=100_000)] = (
        50.0  # percent, 100 MB at least; 0: off
    )
    tidegate_error_spike: Annotated[int, Field(ge=0, le=1_000_000)] = 20  # errors within a minute; 0: off

    @classmethod
    def read(cls) -> Self:
        """The settings of the environment. Raises BadInputError that names the variable, never its value."""
        try:
            return cls()
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            name = "_".join(map(str, first["loc"])).upper()
            reason = _in_words(first["type"], first.get("ctx", {})) or first["msg"]
        raise BadInputError(f"{name} {reason.removeprefix('Value error, ')}")

    def model_post_init(self, context: object, /) -> None:  # noqa: ARG002  (pydantic's)
        """Keep these values out of every text from now on."""
        hide(*_secrets_in(self.telegram_bot_token), *_secrets_in(self.tidegate_key))
        hide(*_secrets_in(self.sentry_dsn))
        addresses = (self.redis_url, self.database_url, self.database_replica_url, self.celery_broker_url)
        for url in (self.tidegate_store or "", *(url for secret in addresses for url in _secrets_in(secret))):
            hide_password(url)

    def rules(self) -> Rules:
        """The limits that are set, the usual ones where none is."""
        return Rules(
            bot=self.tidegate_bot_rate,
            private=self.tidegate_chat_rate,
            group=self.tidegate_group_rate,
            burst=self.tidegate_reply_burst,
        )

    @property
    def store(self) -> StoreChoice:
        """The store of a gate or command that names none."""
        if self.tidegate_store is not None:
            return StoreChoice(self.tidegate_store, "TIDEGATE_STORE")
        if self.redis_url is not None:
            return StoreChoice(self.redis_url.get_secret_value(), "REDIS_URL")
        return StoreChoice(STORE_FILE, None)

    def overlooked_file(self) -> Path | None:
        """Return the default file if it exists and REDIS_URL alone has chosen another store."""
        file = Path(STORE_FILE)
        return file if self.store.variable == "REDIS_URL" and file.exists() else None

    @field_validator("tidegate_loop_warn")
    @classmethod
    def _check_loop_warn(cls, seconds: float) -> float:
        if 0 < seconds < SHORTEST_LOOP_WARN:
            raise ValueError(f"is too small: write {SHORTEST_LOOP_WARN:g} or more, or 0 to switch it off")
        return seconds

    @field_validator("redis_url")
    @classmethod
    def _check_redis(cls, url: SecretStr | None) -> SecretStr | None:
        return _normal(url, REDIS_SCHEMES, "redis://host:6379/0 (rediss:// with TLS)")

    @field_validator("celery_broker_url")
    @classmethod
    def _check_broker(cls, url: SecretStr | None) -> SecretStr | None:
        example = "amqp://user:password@host:5672// or redis://host:6379/0"
        scheme, slashes, _ = ("", "", "") if url is None else url.get_secret_value().strip().partition("://")
        if slashes and scheme.lower() not in AMQP_SCHEMES + REDIS_SCHEMES:
            return url  # the application's own, such as sqs://: refused where jobs are run
        return _normal(url, AMQP_SCHEMES + REDIS_SCHEMES, example)

    @field_validator("database_url", "database_replica_url")
    @classmethod
    def _check_database(cls, url: SecretStr | None) -> SecretStr | None:
        example = "postgresql://user:password@host:5432/name or sqlite:///file.db"
        schemes = POSTGRES_SCHEMES + SQLITE_SCHEMES
        scheme, slashes, _ = ("", "", "") if url is None else url.get_secret_value().strip().partition("://")
        if slashes and scheme.lower() not in schemes:
            return url  # the application's own, such as mysql://: refused where a database is needed
        return _normal(url, schemes, example)


_SENTENCES = {
    "int_parsing": "is not a whole number: write digits, such as 8",
    "int_from_float": "is not a whole number: write digits, such as 8",
    "float_parsing": "is not a number: write one, such as 1.5",
    "bool_parsing": "is neither yes nor no: write 1 or 0",
    "greater_than_equal": "is too small: write {ge:,} or more",
    "greater_than": "is too small: write more than {gt:g}",
    "less_than_equal": "is too large: write {le:,} or less",
}


def _in_words(kind: str, bound: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a value, without it; None if pydantic's own text says it."""
    known = _SENTENCES.get(kind)
    return None if known is None else known.format_map(bound)


def _secrets_in(value: SecretStr | None) -> list[str]:
    """One, or several between commas, as the keys of TIDEGATE_KEY are."""
    return [] if value is None else [one.strip() for one in value.get_secret_value().split(",")]


def _normal(url: SecretStr | None, schemes: tuple[str, ...], example: str) -> SecretStr | None:
    """The address in the one spelling that everybody else may expect: no space around, a small scheme."""
    if url is None:
        return None
    scheme, _, rest = url.get_secret_value().strip().partition("://")
    normal = f"{scheme.lower()}://{rest}"
    if scheme.lower() not in schemes or not _is_usable(normal):
        hint = "special characters of a password are written as %40 and the like"
        raise ValueError(f"is not an address that can be used: write {example}; {hint}")
    return SecretStr(normal)


def _is_usable(url: str) -> bool:
    """Return whether it names what its scheme needs: a host for a server, none for a file."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # an impossible port is found when it is asked for
    except ValueError:
        return False
    if parts.scheme in SQLITE_SCHEMES:
        return not parts.netloc and url.isprintable()
    needs_host = parts.scheme in {"redis", "rediss"}
    return url.isprintable() and bool(host or not needs_host)
