"""Leader leases in Redis: named, each held by one holder at a time."""

from collections.abc import Callable
from typing import Final

from tidegate.leader_lease import LeaseStore
from tidegate.stores.redis.connection import RedisConnection
from tidegate.stores.redis.scripts import load_scripts

SCRIPTS: Final = load_scripts("leases", ("meta", "lease"), shared=("shared/lease",))


class RedisLeases(LeaseStore):
    """`holder` names this holder among all others; `key` gives the key of a lease by its name."""

    def __init__(self, connection: RedisConnection, holder: str, key: Callable[[str], str]) -> None:
        self.holder = holder
        self._connection = connection
        self._key = key

    async def lease(self, name: str, seconds: float) -> bool:
        return bool(await self._run("take", name, self.holder, seconds))

    async def give_back(self, name: str) -> None:
        await self._run("give_back", name, self.holder)

    async def _run(self, step: str, name: str, *args: str | float) -> object:
        keys = [self._connection.key("meta"), self._connection.key(self._key(name))]
        return await self._connection.script(SCRIPTS[step], keys, *args)
