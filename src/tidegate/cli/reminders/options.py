"""The options that describe a reminder, shared by `tidegate reminders import` and `change`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal

import typer

from tidegate.cli.send import shared_params
from tidegate.errors import BadInputError
from tidegate.reminders.schedule_parser import (
    parse_cron,
    parse_date,
    parse_date_and_time,
    parse_days,
    parse_every,
    parse_moment,
    parse_quiet_hours,
    parse_span,
    parse_time,
    parse_window,
    parse_zone,
)

WHEN, MESSAGE, LINES = "When", "Message", "Lines"


def _when(name: str, metavar: str, text: str) -> Any:  # noqa: ANN401  (Typer's, not exported)
    return typer.Option(f"--{name}", metavar=metavar, rich_help_panel=WHEN, help=text)


At = Annotated[str | None, _when("at", "TIME", "09:00; with a date, 2026-12-31 09:00, it is once.")]
Every = Annotated[str | None, _when("every", "DAYS", "day, 2 days, week, 3 weeks.")]
Days = Annotated[str | None, _when("days", "DAYS", "mon,wed, mon-fri, weekdays, weekend.")]
Cron = Annotated[str | None, _when("cron", "FIELDS", "Five fields, without --at: '0 9 * * mon-fri'.")]
Date = Annotated[str | None, _when("date", "DATE", "Once: 2026-12-31.")]
Zone = Annotated[str | None, _when("zone", "ZONE", "The time zone of the user: Europe/Berlin.")]
SpreadOption = Annotated[
    str | None, _when("spread", "WINDOW", "Leave within this time, not all at once: 30m, or 08:00-10:00.")
]
SpreadOrderOption = Annotated[
    Literal["stable", "random", "engagement"] | None,
    typer.Option("--spread-order", rich_help_panel=WHEN, help="Who goes first in the window."),
]
Quiet = Annotated[str | None, _when("quiet", "HOURS", "Nothing is sent then: 22:00-07:00, local time.")]
Start = Annotated[str | None, _when("start", "DATE", "Not before: 2026-12-01, or with its time.")]
Until = Annotated[str | None, _when("until", "DATE", "Not after: 2026-12-31, or with its time.")]
Count = Annotated[str | None, _when("count", "N", "This many times in all.")]
Late = Annotated[
    Literal["fire", "skip", "merge"] | None,
    typer.Option("--late", rich_help_panel=WHEN, help="After downtime: each, none, or one for all."),
]
ExpiresIn = Annotated[
    str | None,
    _when("expires-in", "TIME", "Do not send it any more after: 2h. Default: when the next one comes."),
]
Handler = Annotated[
    str | None,
    typer.Option(
        "--handler",
        metavar="NAME",
        rich_help_panel=MESSAGE,
        help="The function of your bot that makes the message when it is due.",
    ),
]
Params = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="NAME=VALUE",
        rich_help_panel=MESSAGE,
        help="A parameter of the message; the value is JSON, or else text; repeatable.",
    ),
]
ParseModeOption = Annotated[
    Literal["HTML", "MarkdownV2"] | None,
    typer.Option("--parse-mode", rich_help_panel=MESSAGE, help="How Telegram reads the text."),
]

# How parameters of the message that have an option are given.
ELSEWHERE: Final = {
    "text": "use --text",
    "parse_mode": "use --parse-mode",
    "expires_in": "use --expires-in",
    "key": "use --key",
}
TEXTS_ONLY: Final = (
    "these commands send texts, or what a handler makes: add reminders of another method, such as sendPhoto,"
    " in Python with gate.reminders.add, or give --handler"
)
KINDS: Final[tuple[str, ...]] = ("every", "days", "date", "cron")


def message_params(given: Sequence[str] | None) -> dict[str, Any]:
    """Read the --param of a reminder. Raises BadInputError for a method: its message is a text."""
    if any(text.partition("=")[0].strip() == "method" for text in given or ()):
        raise BadInputError(f"--param: method is not possible here: {TEXTS_ONLY}")
    return shared_params(given or [], ELSEWHERE)


@contextmanager
def naming_the_database() -> Iterator[None]:
    """Name the variable in an error about the address of the database."""
    try:
        yield
    except BadInputError as error:
        if not str(error).startswith("not the address of a database"):
            raise
        raise BadInputError(f"DATABASE_URL (or DATABASE_REPLICA_URL, if it is set) is {error}") from None


def _check_at(text: str) -> object:
    return parse_date_and_time(text) or parse_time(text)


def _check_spread(text: str) -> object:
    return parse_window(text) if ":" in text else parse_span("spread", text)


def _check_count(text: str) -> object:
    if not text.isdecimal():
        raise BadInputError(f"{text!r} is not a whole number: write it in digits")
    return int(text)


_CHECKS: Final[Mapping[str, Callable[[str], object]]] = {
    "at": _check_at,
    "every": parse_every,
    "days": parse_days,
    "cron": parse_cron,
    "date": parse_date,
    "zone": parse_zone,
    "spread": _check_spread,
    "quiet": parse_quiet_hours,
    "start": lambda text: parse_moment("start", text, "UTC", 0.0),
    "until": lambda text: parse_moment("until", text, "UTC", 0.0),
    "count": _check_count,
    "expires_in": lambda text: parse_span("expires_in", text),
}


def given_options(**options: str | None) -> dict[str, str]:
    """Return the options that were written. Raises BadInputError that names a bad one."""
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        try:
            _CHECKS.get(name, str)(value)
        except BadInputError as error:
            raise BadInputError(f"{written(name)}: {str(error).removeprefix(f'{name}: ')}") from None
    kinds = [name for name in KINDS if name in given]
    if "cron" in given and "at" in given:
        kinds = ["cron", "at"]
    if len(kinds) > 1 and kinds != ["every", "days"]:  # --every week --days mon
        raise BadInputError(f"{written(kinds[0])} and {written(kinds[1])} exclude each other: give one")
    return given


def written(name: str) -> str:
    """Return an option as it is written on the command line."""
    return f"--{name.replace('_', '-')}"
