"""Where all that a gate keeps is kept: in memory, in a file, in Redis. Chosen here, by the store's name."""

from pathlib import Path

from tidegate.backends.base import Backend, Terms
from tidegate.backends.file import FileBackend
from tidegate.backends.memory import MemoryBackend
from tidegate.errors import BadInputError
from tidegate.extras import extra
from tidegate.settings import REDIS_SCHEMES

__all__ = ["Backend", "Terms", "choose", "is_redis"]


def choose(store: str, terms: Terms) -> Backend:
    """Nothing is opened yet. Raises BadInputError for a name that means no store."""
    if store == "memory://":
        return MemoryBackend(terms)
    kind = store.partition("://")[0] if "://" in store else "sqlite"  # the rest may hold a password
    if kind in REDIS_SCHEMES:
        with extra("redis", "redis"):
            from tidegate.backends.redis import RedisBackend  # noqa: PLC0415  (it is there only if it is used)
        return RedisBackend(store, terms)
    if kind != "sqlite":
        known = "a file, redis://host:6379/0 or memory://"
        raise BadInputError(f"a store of the kind {kind!r} is not known: give {known}")
    return FileBackend(Path(store.removeprefix("sqlite:///")), terms)


def is_redis(store: str) -> bool:
    return store.startswith(tuple(f"{scheme}://" for scheme in REDIS_SCHEMES))
