"""The scrubber of secrets: every text that leaves Tidegate passes it, be it a log line, an error or a report.

Bot tokens, Tidegate's own API tokens, and passwords in addresses are known by their form, wherever they come
from. Other secrets (keys, secrets of hooks, tokens of other APIs) are known by their value, from the moment
they are given to Tidegate.
"""

import logging
import re
import traceback
from typing import Final
from urllib.parse import quote, unquote, urlsplit

HIDDEN: Final = "…"
MIN_VALUE_LENGTH: Final = 8  # characters: a shorter secret would hide ordinary words
MAX_VALUES: Final = 256  # each is looked for in every text; the oldest are dropped

# Telegram's have 35 characters after the colon; those of tests and other servers may have fewer. In an
# address the colon may be percent-encoded, also more than once.
_TOKEN: Final = re.compile(r"(\d{1,15})(?::|%(?:25)*3a)[\w-]{20,}", re.ASCII | re.IGNORECASE)
# API tokens, CSRF tokens, codes of login links, and cookies of sessions (`ops/access.py`). The first
# characters are public: a person finds the token by them. Names of functions that begin so are shorter.
_ACCESS: Final = re.compile(r"(tg[cls]?_[\w-]{6})[\w-]{26,}", re.ASCII)
_PASSWORD: Final = re.compile(r"(://[^\s/@:'\"]*:)[^\s/'\"]+@")
_PARAMETER: Final = re.compile(
    r"([?&](?:password|secret|secret_token|access_token|code)=)[^\s&'\"]+", re.IGNORECASE
)
_BEARER: Final = re.compile(r"(\bBearer\s+)[\w.~+/=-]{16,}", re.IGNORECASE)

# Filters of a logger do not see the records of the loggers below it: each is named.
LOGGERS: Final = (
    "tidegate",
    "tidegate.access",
    "tidegate.api",
    "tidegate.broadcast",
    "tidegate.flows",
    "tidegate.gateway",
    "tidegate.history",
    "tidegate.inbound",
    "tidegate.jobs",
    "tidegate.outbox",
    "tidegate.polling",
    "tidegate.reminders",
    "tidegate.sim.telegram.incoming",
    "tidegate.store",
    "tidegate.upstream",
    "tidegate.worker",
)

_values: tuple[str, ...] = ()  # the newest first; replaced as a whole, since any thread may read it


def scrub_secrets(text: str) -> str:
    """Return the text without secrets. A bot's number stays, `42:…`, and the prefix of an API token."""
    if ":" in text or "%" in text:
        text = _TOKEN.sub(rf"\1:{HIDDEN}", text)
    if "tg" in text:
        text = _ACCESS.sub(rf"\1{HIDDEN}", text)
    if "://" in text or "=" in text:
        text = _PARAMETER.sub(rf"\1{HIDDEN}", _PASSWORD.sub(rf"\1{HIDDEN}@", text))
    if "earer" in text:
        text = _BEARER.sub(rf"\1{HIDDEN}", text)
    for value in _values:
        if value in text:
            text = text.replace(value, HIDDEN)
    return text


def contains_token(text: str) -> bool:
    return _TOKEN.search(text) is not None


def hide(*secrets: str | None) -> None:
    """Hide these values from now on, too, also as they are written in an address.

    Ignored are values that are hidden by their form, and those of fewer than 8 characters.
    """
    global _values  # noqa: PLW0603  (one scrubber per process, as there is one logging)
    spellings = [spelling for one in secrets if one for spelling in (one, quote(one, safe=""))]
    fresh = [
        one for one in dict.fromkeys(spellings) if len(one) >= MIN_VALUE_LENGTH and scrub_secrets(one) == one
    ]
    if fresh:
        _values = (*fresh, *(one for one in _values if one not in fresh))[:MAX_VALUES]


def hide_password(url: str | None) -> None:
    """Hide the password of an address, which its driver may name without the address."""
    if url and "://" in url and "@" in url:
        try:
            password = urlsplit(url).password
        except ValueError:  # not an address: it is refused elsewhere
            return
        hide(password, unquote(password or ""))


class ScrubbedFormatter(logging.Formatter):
    """Python's formatter, without secrets in its lines, whichever logger wrote them."""

    def format(self, record: logging.LogRecord) -> str:
        return scrub_secrets(super().format(record))


class SecretFilter(logging.Filter):
    """Scrubs records of Tidegate's loggers before any handler sees them. Lets every record pass.

    A record without secrets stays as it is, with its arguments, for handlers that group by them.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001  (the handler reports a text that does not fit its arguments)
            return True
        if (clean := _encodable(scrub_secrets(text))) != text:
            record.msg, record.args = clean, None
        if record.exc_info and record.exc_info[1] is not None:
            trace = record.exc_text or "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
            if (clean := _encodable(scrub_secrets(trace))) != trace:
                record.exc_info, record.exc_text = None, clean  # formatters print the text that is there
        if record.stack_info:
            record.stack_info = scrub_secrets(record.stack_info)
        return True


def _encodable(text: str) -> str:
    """No handler can write half a character, which a proxy's answer may hold."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _install() -> None:
    """Scrub what Tidegate logs, and nothing of the application's."""
    secret_filter = SecretFilter()
    for name in LOGGERS:
        logging.getLogger(name).addFilter(secret_filter)


_install()
