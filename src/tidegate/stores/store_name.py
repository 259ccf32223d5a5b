"""Names of stores that cannot be meant, each with the name that probably was."""

import re
from typing import Final

from tidegate.errors import BadInputError
from tidegate.settings import REDIS_SCHEMES

_KNOWN: Final = "a file such as tidegate.db, redis://host:6379/0 or memory://"
_REDIS: Final = "write redis://localhost:6379/0 for a Redis"
_FILE: Final = "write the path of the file alone, such as tidegate.db"
_MEMORY: Final = "write memory:// for a store in memory"
_POSTGRES: Final = (
    "messages are kept in a file or in Redis, reminders in PostgreSQL if DATABASE_URL names one; "
    f"give {_KNOWN}"
)
_ADVICE: Final = {
    "redis": _REDIS,
    "rediss": "write rediss://host:6379/0 for a Redis with TLS",
    "unix": "write unix:///run/redis.sock for a Redis on this machine",
    "memory": _MEMORY,
    "": _MEMORY,  # :memory:
    "sqlite": _FILE,
    "sqlite3": _FILE,
    "file": _FILE,
    "postgres": _POSTGRES,
    "postgresql": _POSTGRES,
    "http": f"a store is not a web address; give {_KNOWN}",
    "https": f"a store is not a web address; give {_KNOWN}",
}
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]+|):(?!\\)", re.IGNORECASE)  # longer than the drive of a disk
_PORT: Final = re.compile(r"[\w.-]+:\d{1,5}(/\d+)?")


def check_store_name(store: str) -> None:
    """Raise BadInputError for a name that cannot be meant. It quotes no address: one may hold a password."""
    if store == "memory://" or store.startswith("sqlite:///"):
        return
    if store.startswith(tuple(f"{scheme}://" for scheme in REDIS_SCHEMES)):
        return
    if _PORT.fullmatch(store):
        raise BadInputError(f"the store is the address of a server, but not of which: {_REDIS}")
    scheme = _SCHEME.match(store)
    kind = (scheme[1] if scheme else store).lower().partition("+")[0]
    if kind in _ADVICE and (scheme or kind):
        shown = repr(store) if scheme is None else f"{scheme[0]!r}…" if scheme[1] else "':memory:'"
        raise BadInputError(f"the store {shown} cannot be meant: {_ADVICE[kind]}")
    if "://" in store:
        raise BadInputError(f"a store of the kind {kind!r} is not known: give {_KNOWN}")
