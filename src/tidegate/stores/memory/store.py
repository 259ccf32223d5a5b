"""The store in memory, for tests and bots that may forget."""

from tidegate.inbound.throttle import ThrottleRules
from tidegate.leader_lease import UncontestedLeases
from tidegate.model import BotId, ChatId, Rate
from tidegate.outbox.campaigns import MemoryCampaigns
from tidegate.polling.subscriptions import MemorySubscriptions
from tidegate.stores.erasure import Erasure, drop_parked
from tidegate.stores.memory.flow_sessions import MemoryFlowSessions
from tidegate.stores.memory.inbox import MemoryInbox
from tidegate.stores.memory.outbox import MemoryOutbox
from tidegate.stores.memory.throttle import MemoryThrottle
from tidegate.stores.memory.update_feed import MemoryUpdateFeed
from tidegate.stores.store import Store, StoreActivity, StoreOptions
from tidegate.upstream.limiter import MemoryLimiter


class MemoryStore(Store):
    follows_bots = False

    def __init__(self, options: StoreOptions) -> None:
        self._clock = options.clock
        self.outbox = MemoryOutbox(options.clock, options.rules, events=options.events)
        self.bots = None
        self.inbox = MemoryInbox(options.clock)
        self.update_feed = MemoryUpdateFeed(options.clock)
        self.campaigns = MemoryCampaigns()

    def throttle(self, rules: ThrottleRules, name: str = "") -> MemoryThrottle:  # noqa: ARG002  (not shared)
        return MemoryThrottle(rules, self._clock)

    def subscriptions(self, name: str) -> MemorySubscriptions:
        return MemorySubscriptions(self._clock, name)

    def flow_sessions(self, flow: str) -> MemoryFlowSessions:
        return MemoryFlowSessions(flow)

    def limiter(self, name: str, rate: Rate) -> MemoryLimiter:  # noqa: ARG002  (no other process shares it)
        return MemoryLimiter(rate, self._clock)

    def leases(self) -> UncontestedLeases:
        return UncontestedLeases()

    async def losses(self) -> list[str]:
        waiting = (await self.outbox.stats()).waiting
        return [f"{waiting} messages were waiting and are gone: the store is in memory"] if waiting else []

    async def erase(self, chat: ChatId, bot: BotId | None = None) -> Erasure:
        updates = await drop_parked(self.inbox, chat, bot) + await self.update_feed.erase(chat, bot)
        return Erasure(messages=await self.outbox.forget(chat, bot), updates=updates)

    async def activity(self) -> StoreActivity:
        return StoreActivity()

    async def pauses(self, *, chats: bool = True) -> list[tuple[BotId, ChatId | None]]:
        return [place for place in self.outbox.pauses if chats or place[1] is None]
