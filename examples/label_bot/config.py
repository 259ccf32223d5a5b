"""The bot's settings from the environment. Tidegate reads its own, such as DATABASE_URL."""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Self
from urllib.parse import SplitResult, unquote, urlsplit

from tidegate import BadInputError

TELEGRAM: Final = "https://api.telegram.org"
SUBMISSION_PORT, TLS_PORT = 587, 465
_SMTP_ADVICE: Final = "write smtp://USER:PASSWORD@HOST:PORT, or smtps://…"


class MailServer(NamedTuple):
    host: str
    port: int
    uses_tls: bool  # from the first byte; otherwise as soon as the server offers it
    user: str | None
    password: str | None


class Services(NamedTuple):
    """The settings of jobs. Their processes have the environment of the bot, and read it too."""

    seconds: float = 2.0  # of work for one label
    retries: int = 3
    pause: float = 60.0  # seconds between two attempts
    font: Path | None = None
    carrier_url: str | None = None
    mail: MailServer | None = None
    mail_from: str = "labels@localhost"
    sms_url: str | None = None

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read the environment. Raises BadInputError, without a password in its text."""
        found = os.environ if environment is None else environment
        font = found.get("LABEL_FONT")
        return cls(
            seconds=_number(found, "LABEL_SECONDS", cls._field_defaults["seconds"]),
            retries=int(_number(found, "LABEL_RETRIES", cls._field_defaults["retries"])),
            pause=_number(found, "LABEL_PAUSE", cls._field_defaults["pause"]),
            font=Path(font) if font else None,
            carrier_url=_http(found, "LABEL_CARRIER_URL"),
            mail=_mail_server(found.get("LABEL_SMTP")),
            mail_from=found.get("LABEL_MAIL_FROM") or cls._field_defaults["mail_from"],
            sms_url=_http(found, "LABEL_SMS_URL"),
        )


class Config(NamedTuple):
    """The settings of the bot alone."""

    token: str
    services: Services = Services()
    api_url: str = TELEGRAM
    texts: Path | None = None
    payment_secret: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read the environment. Raises BadInputError, without the token in its text."""
        found = os.environ if environment is None else environment
        token, texts = found.get("TELEGRAM_BOT_TOKEN", ""), found.get("LABEL_TEXTS")
        if not re.fullmatch(r"\d+:[\w-]+", token):
            raise BadInputError("set TELEGRAM_BOT_TOKEN to your bot's token, from @BotFather: 123456:ABC-…")
        return cls(
            token,
            Services.read(found),
            found.get("TELEGRAM_API_URL") or TELEGRAM,
            Path(texts) if texts else None,
            found.get("LABEL_PAYMENT_SECRET") or None,
            found.get("LABEL_HOST") or "127.0.0.1",
            int(_number(found, "LABEL_PORT", 8080)),
        )

    def switched_off(self) -> list[str]:
        """Return what the bot does not do, as nothing is configured for it, a line each."""
        parts = {
            "payments are not taken: set LABEL_PAYMENT_SECRET": self.payment_secret,
            "no e-mails are sent: set LABEL_SMTP": self.services.mail,
            "no SMS are sent: set LABEL_SMS_URL": self.services.sms_url,
        }
        return [line for line, setting in parts.items() if not setting]


def _number(found: Mapping[str, str], name: str, otherwise: float) -> float:
    try:
        number = float(found.get(name) or otherwise)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise BadInputError(f"set {name} to a number such as {otherwise:g}")
    return number


def _http(found: Mapping[str, str], name: str) -> str | None:
    """Return the address. A path of this machine, which urllib would open too, is refused."""
    address = found.get(name)
    if address and not address.startswith(("http://", "https://")):
        raise BadInputError(f"set {name} to an address that begins with https://")
    return address or None


def _mail_server(address: str | None) -> MailServer | None:
    if not address:
        return None
    try:
        parts, port = urlsplit(address), urlsplit(address).port
    except ValueError:
        parts, port = SplitResult("", "", "", "", ""), None
    if parts.scheme not in {"smtp", "smtps"} or not parts.hostname:
        raise BadInputError(f"LABEL_SMTP is no address of a mail server: {_SMTP_ADVICE}")
    uses_tls = parts.scheme == "smtps"
    return MailServer(
        parts.hostname,
        port or (TLS_PORT if uses_tls else SUBMISSION_PORT),
        uses_tls,
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
    )
