"""The store in Redis, for many machines. Imported only if it is used."""

import secrets
from pathlib import Path

from tidegate.bots.encryption import TokenCipher
from tidegate.inbound.throttle import ThrottleRules
from tidegate.model import BotId, ChatId, Rate
from tidegate.outbox.port import StoreHealth
from tidegate.stores.erasure import Erasure
from tidegate.stores.redis import operator
from tidegate.stores.redis.bots import RedisBotStore
from tidegate.stores.redis.campaigns import RedisCampaigns
from tidegate.stores.redis.connection import RedisPyConnection
from tidegate.stores.redis.durability import durability_warnings
from tidegate.stores.redis.erasure import erase_chat
from tidegate.stores.redis.flow_sessions import RedisFlowSessions
from tidegate.stores.redis.inbox import RedisInbox
from tidegate.stores.redis.leases import RedisLeases
from tidegate.stores.redis.limiter import RedisLimiter
from tidegate.stores.redis.outbox import RedisOutbox
from tidegate.stores.redis.spool import Spool
from tidegate.stores.redis.subscriptions import RedisSubscriptions
from tidegate.stores.redis.throttle import RedisThrottle
from tidegate.stores.redis.update_feed import RedisUpdateFeed
from tidegate.stores.store import Store, StoreActivity, StoreOptions


class RedisStore(Store):
    follows_bots = True

    def __init__(self, url: str, options: StoreOptions) -> None:
        clock, settings = options.clock, options.settings
        self._clock = clock
        self._link = link = RedisPyConnection(url, clock, secrets.token_hex(6))
        spool = Spool(Path(settings.tidegate_spool, link.name), clock)
        self.outbox = RedisOutbox(link, clock, options.rules, events=options.events, spool=spool)
        self.outbox.health_told = options.health
        self.outbox.serves = options.serves  # other bots may be other processes' own
        self.bots = RedisBotStore(link, TokenCipher.of(settings.tidegate_key, None))
        self.inbox = RedisInbox(link, clock)
        self.update_feed = RedisUpdateFeed(link, secrets.token_hex(6))
        self.campaigns = RedisCampaigns(link)

    def throttle(self, rules: ThrottleRules, name: str = "") -> RedisThrottle:
        return RedisThrottle(rules, self._link, self._clock, name)

    def subscriptions(self, name: str) -> RedisSubscriptions:
        return RedisSubscriptions(self._link, self._clock, name)

    def flow_sessions(self, flow: str) -> RedisFlowSessions:
        return RedisFlowSessions(self._link, self._clock, flow)

    def limiter(self, name: str, rate: Rate) -> RedisLimiter:
        return RedisLimiter(rate, self._link, self._clock, name)

    def leases(self) -> RedisLeases:
        return RedisLeases(self._link, secrets.token_hex(6), "lease:{}".format)

    async def risks(self) -> list[str]:
        return await durability_warnings(self._link)

    async def erase(self, chat: ChatId, bot: BotId | None = None) -> Erasure:
        erased = await erase_chat(self.outbox, self.inbox, self._clock, chat, bot)
        return erased._replace(updates=erased.updates + await self.update_feed.erase(chat, bot))

    async def activity(self) -> StoreActivity:
        others = await operator.other_processes(self._link)
        return StoreActivity(processes=others.processes, delivers=others.delivers)

    async def sender_health(self) -> StoreHealth | None:
        return await operator.health_of_others(self._link)

    async def pauses(self, *, chats: bool = True) -> list[tuple[BotId, ChatId | None]]:
        paused: list[tuple[BotId, ChatId | None]] = [
            (bot, None) for bot in await operator.paused_bots(self._link)
        ]
        return paused + list(await operator.paused_chats(self._link)) if chats else paused
