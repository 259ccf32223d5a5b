"""For many machines: everything is in one Redis. Imported only if that is the store."""

import secrets
from pathlib import Path

from tidegate.backends.base import Backend, Terms
from tidegate.inbound.inbox.redis import RedisInbox
from tidegate.inbound.throttle.redis import RedisBuckets
from tidegate.inbound.throttle.rules import ThrottleRules
from tidegate.keys import Keys
from tidegate.model import Rate
from tidegate.outbox.redis.bots import RedisBotShelf
from tidegate.outbox.redis.durability import look
from tidegate.outbox.redis.link import RedisLink
from tidegate.outbox.redis.spool import Spool
from tidegate.outbox.redis.store import RedisOutbox
from tidegate.polling.store.redis import RedisSubscriptions
from tidegate.upstream.limiter.redis import RedisLimiter


class RedisBackend(Backend):
    follows_bots = True

    def __init__(self, url: str, terms: Terms) -> None:
        clock, settings = terms.clock, terms.settings
        self._clock = clock
        self._link = link = RedisLink(url, clock, secrets.token_hex(6))
        spool = Spool(Path(settings.tidegate_spool, link.name), clock)
        self.outbox = RedisOutbox(link, clock, terms.rules, on_end=terms.on_end, spool=spool)
        self.outbox.serves = terms.serves  # other bots may be other processes' own
        self.shelf = RedisBotShelf(link, Keys.of(settings.tidegate_key, None))
        self.inbox = RedisInbox(link, clock)

    def buckets(self, rules: ThrottleRules) -> RedisBuckets:
        return RedisBuckets(rules, self._link, self._clock)

    def subscriptions(self, name: str) -> RedisSubscriptions:
        return RedisSubscriptions(self._link, self._clock, name)

    def limiter(self, name: str, rate: Rate) -> RedisLimiter:
        return RedisLimiter(rate, self._link, self._clock, name)

    async def risks(self) -> list[str]:
        return await look(self._link)
