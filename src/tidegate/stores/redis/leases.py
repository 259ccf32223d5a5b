"""Leader leases in Redis: named, each held by one holder at a time."""

from collections.abc import Callable
from typing import Final

from tidegate.leader_lease import LeaseStore
from tidegate.stores.redis.connection import RedisConnection
from tidegate.stores.redis.scripts import load_scripts

SCRIPTS: Final = load_scripts("leases", ("meta", "lease"), shared=("shared/lease",))


class RedisLeases(LeaseStore):
    """`holder` names this one among all that want the leases; `key` gives the key of a lease by its name."""

    def __init__(self, redis: RedisConnection, holder: str, key: Callable[[str], str]) -> None:
        self.holder = holder
        self._redis = redis
        self._key = key

    async def lease(self, name: str, seconds: float) -> bool:
        return bool(await self._run("take", name, self.holder, seconds))

    async def give_back(self, name: str) -> None:
        await self._run("give_back", name, self.holder)

    async def _run(self, step: str, name: str, *args: str | float) -> object:
        keys = [self._redis.key("meta"), self._redis.key(self._key(name))]
        return await self._redis.script(SCRIPTS[step], keys, *args)
