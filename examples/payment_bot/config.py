"""The bot's settings from the environment. Tidegate reads its own: TIDEGATE_STORE and others."""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple, Self, cast
from urllib.parse import unquote, urlsplit, urlunsplit

from payment_bot.flow import DAY, NUDGE, PRICE
from tidegate import Rate, TidegateError

Mode = Literal["delta", "batch"]

NEEDED: Final = ("TELEGRAM_BOT_TOKEN", "NOCODB_URL")
TELEGRAM: Final = "https://api.telegram.org"
RESTORE: Final = (None, 1.0)  # after a restart: users (None: by their number), seconds between two groups
_BOOKS: Final = "https://TOKEN@app.nocodb.com/TABLE"


class BadConfigError(Exception):
    """A wrong setting. The text says what to set, and holds no secret."""


class Books(NamedTuple):
    """The address of the table of orders."""

    url: str
    token: str
    table: str

    @classmethod
    def parse(cls, address: str) -> Self:
        """Parse `https://TOKEN@app.nocodb.com/TABLE`: the last part of the path is the id of the table."""
        try:
            parts = urlsplit(address.strip())
            host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
        except ValueError:
            parts, host = urlsplit(""), None
        path, _, table = parts.path.rstrip("/").rpartition("/")
        if parts.scheme not in {"http", "https"} or not (host and parts.username and table):
            raise BadConfigError(f"NOCODB_URL is no address of a table of orders: write {_BOOKS}")
        return cls(urlunsplit((parts.scheme, host, path, "", "")), unquote(parts.username), table)


class Config(NamedTuple):
    token: str
    books: Books
    api_url: str = TELEGRAM
    admins: frozenset[int] = frozenset()
    price: str = PRICE
    nudge: float = NUDGE
    lifetime: float = DAY
    mode: Mode = "delta"
    interval: float | None = None  # seconds between two polls, if not the default of the mode
    restore: tuple[int | None, float] = RESTORE
    log: bool = False  # print each request to NocoDB
    texts: Path | None = None

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read the environment. Raises BadConfigError."""
        found = os.environ if environment is None else environment
        for name in NEEDED:
            if not found.get(name):
                raise BadConfigError(f"set {name} too: the bot needs {' and '.join(NEEDED)}, or neither")
        if not re.fullmatch(r"\d+:[\w-]+", found["TELEGRAM_BOT_TOKEN"]):
            raise BadConfigError("set TELEGRAM_BOT_TOKEN to your bot's token, from @BotFather: 123456:ABC-…")
        texts = found.get("PAYMENT_TEXTS")
        return cls(
            token=found["TELEGRAM_BOT_TOKEN"],
            books=Books.parse(found["NOCODB_URL"]),
            api_url=found.get("TELEGRAM_API_URL") or TELEGRAM,
            admins=_admins(found.get("PAYMENT_ADMINS", "")),
            price=found.get("PAYMENT_PRICE") or PRICE,
            nudge=_seconds(found, "PAYMENT_NUDGE", NUDGE),
            lifetime=_seconds(found, "PAYMENT_LIFETIME", DAY),
            mode=_mode(found.get("PAYMENT_MODE") or "delta"),
            interval=_seconds(found, "PAYMENT_INTERVAL", 60) if found.get("PAYMENT_INTERVAL") else None,
            restore=_restore(found.get("PAYMENT_RESTORE")),
            log=found.get("PAYMENT_LOG") != "off",
            texts=Path(texts) if texts else None,
        )


def is_simulated(environment: Mapping[str, str] | None = None) -> bool:
    """Return True if no real service is configured."""
    found = os.environ if environment is None else environment
    return not any(found.get(name) for name in NEEDED)


def _admins(text: str) -> frozenset[int]:
    numbers = [part.strip() for part in text.split(",") if part.strip()]
    if not all(number.isdecimal() for number in numbers):
        raise BadConfigError(
            "set PAYMENT_ADMINS to the numbers of people, from @userinfobot: 1234567,7654321"
        )
    return frozenset(map(int, numbers))


def _seconds(found: Mapping[str, str], name: str, otherwise: float) -> float:
    try:
        seconds = float(found.get(name) or otherwise)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise BadConfigError(f"set {name} to a number of seconds, such as {otherwise:g}")
    return seconds


def _restore(text: str | None) -> tuple[int | None, float]:
    if not text:
        return RESTORE
    try:
        rate = Rate.parse(text)
    except TidegateError:
        raise BadConfigError("set PAYMENT_RESTORE to users/seconds, such as 10/1") from None
    return rate.count, rate.seconds


def _mode(text: str) -> Mode:
    if text not in {"delta", "batch"}:
        raise BadConfigError("set PAYMENT_MODE to delta or batch: how payments are looked for")
    return cast("Mode", text)
