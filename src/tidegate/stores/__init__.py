"""Where everything is kept: in memory, in a SQLite file, in Redis. The store's name chooses."""

from pathlib import Path

from tidegate.errors import BadInputError
from tidegate.extras import extra
from tidegate.scrubber import hide_password
from tidegate.settings import REDIS_SCHEMES
from tidegate.stores.memory.store import MemoryStore
from tidegate.stores.sqlite.store import SqliteStore
from tidegate.stores.store import Store, StoreOptions

__all__ = ["Store", "StoreOptions", "is_redis", "make_store"]


def make_store(store: str, options: StoreOptions) -> Store:
    """Return the store with this name, not opened yet. Raises BadInputError for a name of no store."""
    if store == "memory://":
        return MemoryStore(options)
    kind = store.partition("://")[0] if "://" in store else "sqlite"  # the rest may hold a password
    if kind in REDIS_SCHEMES:
        hide_password(store)
        with extra("redis", "redis"):
            from tidegate.stores.redis.store import RedisStore  # noqa: PLC0415  (imported only if it is used)
        return RedisStore(store, options)
    if kind != "sqlite":
        known = "a file, redis://host:6379/0 or memory://"
        raise BadInputError(f"a store of the kind {kind!r} is not known: give {known}")
    return SqliteStore(Path(store.removeprefix("sqlite:///")), options)


def is_redis(store: str) -> bool:
    return store.startswith(tuple(f"{scheme}://" for scheme in REDIS_SCHEMES))
