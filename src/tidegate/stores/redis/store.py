"""The store in Redis, for many machines. Imported only if it is used."""

import secrets
from pathlib import Path

from tidegate.bots.encryption import TokenCipher
from tidegate.inbound.throttle import ThrottleRules
from tidegate.model import Rate
from tidegate.stores.redis.bots import RedisBotStore
from tidegate.stores.redis.connection import RedisPyConnection
from tidegate.stores.redis.durability import durability_warnings
from tidegate.stores.redis.inbox import RedisInbox
from tidegate.stores.redis.limiter import RedisLimiter
from tidegate.stores.redis.outbox import RedisOutbox
from tidegate.stores.redis.spool import Spool
from tidegate.stores.redis.subscriptions import RedisSubscriptions
from tidegate.stores.redis.throttle import RedisThrottle
from tidegate.stores.store import Store, StoreOptions


class RedisStore(Store):
    follows_bots = True

    def __init__(self, url: str, terms: StoreOptions) -> None:
        clock, settings = terms.clock, terms.settings
        self._clock = clock
        self._link = link = RedisPyConnection(url, clock, secrets.token_hex(6))
        spool = Spool(Path(settings.tidegate_spool, link.name), clock)
        self.outbox = RedisOutbox(link, clock, terms.rules, on_end=terms.on_end, spool=spool)
        self.outbox.serves = terms.serves  # other bots may be other processes' own
        self.shelf = RedisBotStore(link, TokenCipher.of(settings.tidegate_key, None))
        self.inbox = RedisInbox(link, clock)

    def buckets(self, rules: ThrottleRules) -> RedisThrottle:
        return RedisThrottle(rules, self._link, self._clock)

    def subscriptions(self, name: str) -> RedisSubscriptions:
        return RedisSubscriptions(self._link, self._clock, name)

    def limiter(self, name: str, rate: Rate) -> RedisLimiter:
        return RedisLimiter(rate, self._link, self._clock, name)

    async def risks(self) -> list[str]:
        return await durability_warnings(self._link)
