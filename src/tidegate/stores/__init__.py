"""Where all that a gate keeps is kept: in memory, in a file, in Redis. Chosen here, by the store's name."""

from pathlib import Path

from tidegate.errors import BadInputError
from tidegate.extras import extra
from tidegate.settings import REDIS_SCHEMES
from tidegate.stores.memory.store import MemoryStore
from tidegate.stores.sqlite.store import SqliteStore
from tidegate.stores.store import Store, StoreOptions

__all__ = ["Store", "StoreOptions", "is_redis", "open_store"]


def open_store(store: str, terms: StoreOptions) -> Store:
    """Nothing is opened yet. Raises BadInputError for a name that means no store."""
    if store == "memory://":
        return MemoryStore(terms)
    kind = store.partition("://")[0] if "://" in store else "sqlite"  # the rest may hold a password
    if kind in REDIS_SCHEMES:
        with extra("redis", "redis"):
            from tidegate.stores.redis.store import RedisStore  # noqa: PLC0415  (it is there only if it is used)
        return RedisStore(store, terms)
    if kind != "sqlite":
        known = "a file, redis://host:6379/0 or memory://"
        raise BadInputError(f"a store of the kind {kind!r} is not known: give {known}")
    return SqliteStore(Path(store.removeprefix("sqlite:///")), terms)


def is_redis(store: str) -> bool:
    return store.startswith(tuple(f"{scheme}://" for scheme in REDIS_SCHEMES))
