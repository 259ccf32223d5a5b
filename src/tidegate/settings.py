"""The only reader of the environment. Secrets stay out of every text that is made from it."""

import difflib
import logging
import os
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

log = logging.getLogger("tidegate")

REDIS_SCHEMES = ("redis", "rediss", "unix")
AMQP_SCHEMES = ("amqp", "amqps", "pyamqp")
POSTGRES_SCHEMES = ("postgresql", "postgresql+asyncpg", "postgres")
SQLITE_SCHEMES = ("sqlite", "sqlite+aiosqlite")
LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LOG_FORMATS: Final = ("auto", "text", "json")
SHORTEST_LOOP_WARN: Final = 0.02  # seconds: for less, the loop would have to be looked at too often
LONGEST_HISTORY: Final = 36_500.0  # days
STORE_FILE: Final = "tidegate.db"  # in the working directory, if no store is named
OWN_PREFIX: Final = "TIDEGATE_"
LIKENESS: Final = 0.8  # of a misspelt variable, without its prefix


def _rate(value: object) -> Rate:
    return value if isinstance(value, Rate) else Rate.parse(str(value))


def _hours(value: object) -> DailyHours:
    return value if isinstance(value, DailyHours) else DailyHours.parse(str(value))


def _history_days(value: object) -> float:
    text = str(value).strip().lower()
    try:
        days = 0.0 if text == "off" else float(text.removesuffix("d"))
    except ValueError:
        days = -1.0
    if not 0 <= days <= LONGEST_HISTORY:
        raise ValueError("is neither off nor a number of days: write 30, 90d or off")
    return days


def _log_level(value: object) -> str:
    return _one_of(str(value).strip().upper(), LOG_LEVELS)


def _log_format(value: object) -> str:
    return _one_of(str(value).strip().lower(), LOG_FORMATS)


def _one_of(word: str, known: tuple[str, ...]) -> str:
    if word not in known:
        raise ValueError(f"is not known: write {', '.join(known[:-1])} or {known[-1]}")
    return word


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

    # The text below each variable, and the name above each section, make docs/reference/settings.md
    # (make settings-page). Python keeps none of them at run time.

    # --- Limits ---
    tidegate_bot_rate: Limit = Rules().bot
    """Calls of one bot in so many seconds: `30/1`. `25/1` throttles all producers together."""
    tidegate_chat_rate: Limit = Rules().private
    """Messages to one private chat."""
    tidegate_reply_burst: Annotated[int, Field(ge=1, le=100)] = Rules().burst
    """Replies to one private chat that may leave at once, at the same average; 1: no bursts."""
    tidegate_group_rate: Limit = Rules().group
    """Messages to one group or channel."""
    tidegate_longest_closure: Seconds = 3600.0
    """Seconds for which a 429 closes a chat or a bot at most; one that asks for more is tried again after
    it."""

    # --- Attempts ---
    telegram_max_retries: Annotated[int, Field(ge=1, le=1000)] = MAX_ATTEMPTS
    """Attempts in all, of a message without `max_attempts` of its own and of a direct call. Refusals (429)
    and outages do not count for a message."""
    telegram_base_delay: Seconds = 1.0
    """Seconds; the bound of the random pause after the first attempt, which doubles with each further one.
    An outage waits this long before its first probe."""
    telegram_max_delay: Seconds = 60.0
    """Seconds; the longest bound of that pause."""
    telegram_timeout: Seconds = 20.0
    """Seconds from the last byte of a request to its answer."""
    telegram_rate_limit_wait: Seconds | None = None
    """Seconds that a direct call waits for its turn. Not set: as long as it takes."""
    tidegate_outage_limit: Annotated[float, Field(gt=0)] | None = None
    """Seconds that an outage may last; then the message that finds out whether it is over dies (`outage`).
    Not set: messages wait until they expire."""

    # --- Store and bots ---
    tidegate_store: Annotated[str | None, Field(repr=False)] = None  # an address may hold a password
    """The store where none is named: a file, or `redis://host:6379/0`. Not set: `REDIS_URL`, else
    `tidegate.db` in the working folder. An argument wins: `Tidegate("bot.db")`, `--store bot.db`. `tidegate
    doctor` says which it is, and why."""
    redis_url: SecretStr | None = None
    """The store, unless `TIDEGATE_STORE` is set. A `tidegate.db` in the folder is then not used, and the
    log says so."""
    tidegate_spool: str = "tidegate-spool"
    """A folder: what is put while Redis cannot be reached, and history while the SQL database cannot."""
    tidegate_busy_timeout: Seconds = 5.0
    """Seconds that a step waits for a file that another process has locked, of the store or of the
    database."""
    telegram_bot_token: SecretStr | None = None
    """The token of a bot that a command is to register or run."""
    tidegate_key: SecretStr | None = None
    """Opens the stored tokens; `new,old` while it is changed. Not set: the file `tidegate.db.key` beside
    the store; in Redis it is required."""

    # --- Updates ---
    tidegate_handlers: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Updates that are handled at once."""
    tidegate_handler_deadline: Seconds = 120.0
    """Seconds; then a handler of durable updates is cancelled, and its update parked."""
    tidegate_repeat_updates: bool = False
    """1: updates whose handler was cut off by a stop are handled again, instead of parked."""
    tidegate_user_rate: Limit | None = None
    """Updates of one user that are handled; more are dropped, where a throttle is switched on. Not set:
    `30/60`."""
    tidegate_busy_text: str | None = None
    """The notice that the user then gets once; `{seconds}` in it is replaced. Not set: "That was a lot at
    once: …"."""

    # --- SQL database ---
    database_url: SecretStr | None = None
    """Reminders, jobs, history, audiences and access: `postgresql://user:password@host:5432/name`, or
    `sqlite:///file.db`. Not set: a file beside the store."""
    database_replica_url: SecretStr | None = None
    """A copy of it, for questions that only read and may lag behind."""
    db_pool_size: Annotated[int, Field(ge=1, le=1000)] = 5
    """Connections that each process keeps."""
    db_max_overflow: Annotated[int, Field(ge=0, le=1000)] = 10
    """Connections that it opens beyond, while they are needed."""
    tidegate_statement_timeout: Seconds = 30.0
    """Seconds after which PostgreSQL stops a statement; also the wait for a free connection."""
    tidegate_analytics_hours: Hours | None = None
    """Hours in which heavy questions are asked: `02:00-05:00` (UTC), `02:00-05:00 Europe/Berlin`. Not set:
    any time."""

    # --- Jobs ---
    tidegate_job_workers: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Processes of this machine that run jobs, for each process that delivers. Not set: one for each
    core."""
    tidegate_keep_jobs: Annotated[float, Field(gt=0)] = 7 * 86_400.0
    """Seconds that a job is remembered after its end."""
    celery_broker_url: SecretStr | None = None
    """`redis://…` or `amqp://…`: jobs run on workers of Celery instead."""
    tidegate_jobs: str | None = None
    """The modules with jobs, between commas, for a worker of Celery."""

    # --- History ---
    tidegate_history: Annotated[float, PlainValidator(_history_days)] | None = None
    """Days for which messages in and out are recorded: `90`, `90d`, or `off`. Not set: 30 in commands of
    the service; off in a bot that does not call `gate.record_history()`."""
    tidegate_history_texts: bool = True
    """0: messages are recorded without their texts."""

    # --- Watchdog ---
    # Each of these is reported in a line of the log, and changes nothing else.
    tidegate_loop_warn: Threshold = 0.1
    """Seconds; a longer block of the event loop is logged with its line. 0 (here and below): off."""
    tidegate_slow_handler: Threshold = 3.0
    """Seconds; a handler that takes longer is logged."""
    tidegate_slow_http: Threshold = 0.5
    """Seconds; a request to Telegram or an upstream API that takes longer is logged."""
    tidegate_slow_sql: Threshold = 0.1
    """Seconds; a statement of the database that takes longer is logged."""
    tidegate_slow_transaction: Threshold = 5.0
    """Seconds; a transaction that takes longer is logged."""
    tidegate_memory_growth: Annotated[float, Field(ge=0, le=100_000)] = 50.0
    """Percent, and 100 MB at least, above the lowest of the last hour: logged."""
    tidegate_error_spike: Annotated[int, Field(ge=0, le=1_000_000)] = 20
    """More errors than this within a minute are logged in one line."""
    tidegate_gc_freeze: bool = True
    """Objects that exist when a gate begins to deliver, and ten seconds later, are left out of Python's
    search for garbage, which would stop the event loop for a quarter of a second. 0: off."""

    # --- Log and metrics ---
    # The log is that of Tidegate's own commands. A program that uses Tidegate has a log of its own.
    tidegate_log_level: Annotated[str, PlainValidator(_log_level)] = "INFO"
    """`DEBUG`, `INFO`, `WARNING`, `ERROR` or `CRITICAL`."""
    tidegate_log_format: Annotated[str, PlainValidator(_log_format)] = "auto"
    """`text` or `json`; `auto`: text in a terminal, else JSON."""
    prometheus_multiproc_dir: Path | None = None
    """A folder by which processes of one machine answer for each other's metrics. Not set: each has its
    own."""

    # --- Sentry ---
    # These may be the application's own: they are checked only where Tidegate reports to Sentry itself.
    sentry_dsn: SecretStr | None = None
    """The project that errors and incidents are reported to: by `tidegate worker` and `tidegate scheduler`,
    and by a bot that calls `gate.report_to_sentry()`. Not set: nothing is reported."""
    sentry_environment: str | None = None
    """The environment that Sentry shows. Not set: `production`."""
    sentry_release: str | None = None
    """The release that Sentry shows. Not set: the commit of the folder."""
    sentry_traces_sample_rate: str | None = None
    """The share of requests, from 0 to 1, of which Sentry measures the time. Not set: 0."""
    sentry_profiles_sample_rate: str | None = None
    """The share of those that is profiled. Not set: 0."""
    tidegate_sentry_texts: bool = False
    """1: reports hold the texts of exceptions and log lines, which may quote users."""

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


def misspelt_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that have no effect but look like a setting, each with the setting's name.

    Only those with Tidegate's own prefix: TELEGRAM_BOT_TOKEN_2 is one of the application.
    """
    known = {name.upper() for name in Settings.model_fields}
    ends = [name.removeprefix(OWN_PREFIX) for name in known if name.startswith(OWN_PREFIX)]
    found: dict[str, str] = {}
    for variable in sorted(environment):
        name = variable.upper()
        if not name.startswith(OWN_PREFIX) or name in known:
            continue
        if near := difflib.get_close_matches(name.removeprefix(OWN_PREFIX), ends, 1, LIKENESS):
            found[variable] = OWN_PREFIX + near[0]
    return found


def log_misspelt_variables() -> None:
    """Name each of them: whoever set it expects an effect."""
    for variable, meant in misspelt_variables().items():
        log.warning("%s is no setting and has no effect: %s may be meant", variable, meant)


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
