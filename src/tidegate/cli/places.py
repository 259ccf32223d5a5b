"""What a store is called: by its file, or by an address that may hold a password, which is never shown."""

import shlex
from pathlib import Path

from tidegate.cli.doctor.checks import UNREADABLE, address
from tidegate.errors import BadInputError
from tidegate.settings import REDIS_SCHEMES, Settings


def place_of(store: str | None) -> str:
    """The store that is meant."""
    return store or Settings.read().tidegate_store


def is_redis(place: str) -> bool:
    scheme, slashes, _ = place.partition("://")
    return bool(slashes) and scheme in REDIS_SCHEMES


def shown(place: str) -> str:
    """As it may be printed."""
    scheme, slashes, _ = place.partition("://")
    if slashes and scheme != "sqlite":
        known = address(place)
        return known if known == UNREADABLE else f"{scheme}://{known}"
    # Someone has mistyped the address of a server.
    return UNREADABLE if "@" in place and ":" in place else place


def option(store: str | None) -> str:
    """How to name the same store to another command; what would show a password is left to the reader."""
    if not store:
        return ""
    secret = "@" in store or ("://" in store and "?" in store)
    return " with the same --store" if secret else f" --store {shlex.quote(store)}"


def file_of(store: str | None) -> Path:
    """The file of the store that is meant. Raises BadInputError where a store is no file."""
    place = place_of(store).removeprefix("sqlite:///")
    if is_redis(place):
        raise BadInputError(
            "this works on a store in a file; Redis has its own ways (BGSAVE, its append-only file)"
        )
    if "://" in place:
        raise BadInputError("this works on a store in a file: name one with --store")
    path = Path(place)
    if path.is_dir():
        raise BadInputError(
            f"{place} is a folder: give the path of a file in it, such as {path / 'tidegate.db'}"
        )
    return path
