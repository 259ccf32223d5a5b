"""Where an API is and what opens it, checked before it is used; what of it is secret."""

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from yarl import URL

from tidegate.errors import BadInputError

NO_SECRETS: Final = ("user-agent", "accept", "content-type")  # how the names of such headers begin
SHORTEST_VALUE: Final = 4  # characters of a secret: what is shorter is in any text
SHORTEST_WORD: Final = 6
PORTS: Final = {"http": 80, "https": 443}
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def limited_as(base_url: str, headers: Mapping[str, str]) -> tuple[object, ...]:
    """What has one limit: a host with a token. The path, and how they are spelled, make no difference."""
    parts = urlsplit(checked(base_url))
    port = parts.port or PORTS[parts.scheme]
    return parts.scheme, parts.hostname, port, tuple(sorted(secrets_in(sendable(headers)).items()))


def secrets_in(headers: Mapping[str, str]) -> dict[str, str]:
    """Those that may hold a token, their names in lower case."""
    known = {name.lower(): value for name, value in headers.items()}
    return {name: value for name, value in known.items() if not name.startswith(NO_SECRETS)}


def words_of(values: Iterable[str]) -> list[str]:
    """Each value, and the words in it; the longest first, as one may be in another."""
    found = {value for value in values if len(value) >= SHORTEST_VALUE}
    found |= {word for value in found for word in re.split(r"[\s,;:]+", value) if len(word) >= SHORTEST_WORD}
    return sorted(found, key=len, reverse=True)


def checked(base_url: object) -> str:
    """An address that a path can be put behind."""
    text = "the address of an API is http:// or https://, a host, and perhaps a path, nothing more"
    url = base_url if isinstance(base_url, str) and base_url.isprintable() else ""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        usable = usable and bool(URL(url).host)
    except ValueError:
        usable = False
    else:
        usable = usable and not (parts.query or parts.fragment or parts.username or parts.password)
    if not usable:
        raise BadInputError(text)  # without it: there may be a password in it
    return url.rstrip("/")


def sendable(headers: object) -> dict[str, str]:
    """As they are, or BadInputError, which does not repeat a value."""
    if not isinstance(headers, Mapping):
        raise BadInputError(f"headers are a dict of names and texts, not {type(headers).__name__}")
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BadInputError(f"{name!r:.60} is no name of a header: letters, digits and hyphens are")
        if not isinstance(value, str):
            raise BadInputError(f"the header {name} is a {type(value).__name__}: is its token missing?")
        if not value.isprintable() or not value.isascii():
            raise BadInputError(f"the header {name} holds what cannot be sent: is a line break in its token?")
    return dict(headers)
