"""Where everything is kept: in memory, in a SQLite file, in Redis. The store's name chooses."""

from pathlib import Path

from tidegate.extras import extra
from tidegate.scrubber import hide_password
from tidegate.settings import REDIS_SCHEMES
from tidegate.stores.memory.store import MemoryStore
from tidegate.stores.sqlite.store import SqliteStore
from tidegate.stores.store import Store, StoreOptions
from tidegate.stores.store_name import check_store_name

__all__ = ["Store", "StoreOptions", "is_redis", "make_store"]


def make_store(store: str, options: StoreOptions) -> Store:
    """Return the store with this name, not opened yet. Raises BadInputError for a name of no store."""
    check_store_name(store)
    if store == "memory://":
        return MemoryStore(options)
    if is_redis(store):
        hide_password(store)
        with extra("redis"):
            from tidegate.stores.redis.store import RedisStore  # noqa: PLC0415  (imported only if it is used)
        return RedisStore(store, options)
    return SqliteStore(Path(store.removeprefix("sqlite:///")), options)


def is_redis(store: str) -> bool:
    return store.startswith(tuple(f"{scheme}://" for scheme in REDIS_SCHEMES))
