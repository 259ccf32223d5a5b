"""The store in one SQLite file, for one machine."""

from pathlib import Path

from tidegate.bots.encryption import TokenCipher
from tidegate.inbound.throttle import ThrottleRules
from tidegate.model import BotId, ChatId, Rate
from tidegate.outbox.port import StoreHealth
from tidegate.stores.erasure import Erasure
from tidegate.stores.memory.throttle import MemoryThrottle
from tidegate.stores.sqlite.bots import SqliteBotStore
from tidegate.stores.sqlite.campaigns import SqliteCampaigns
from tidegate.stores.sqlite.conversations import SqliteConversations
from tidegate.stores.sqlite.erasure import erase_chat
from tidegate.stores.sqlite.flow_sessions import SqliteFlowSessions
from tidegate.stores.sqlite.inbox import SqliteInbox
from tidegate.stores.sqlite.leases import SqliteLeases
from tidegate.stores.sqlite.outbox import SqliteOutbox
from tidegate.stores.sqlite.subscriptions import SqliteSubscriptions
from tidegate.stores.sqlite.update_feed import SqliteUpdateFeed
from tidegate.stores.store import Store, StoreActivity, StoreOptions
from tidegate.upstream.limiter import MemoryLimiter


class SqliteStore(Store):
    """One process sends and handles updates, so what is counted can be in its memory."""

    follows_bots = False  # the outbox tells of them

    def __init__(self, path: Path, options: StoreOptions) -> None:
        self._clock = options.clock
        self.outbox = SqliteOutbox(
            path,
            options.clock,
            options.rules,
            busy_timeout=options.settings.tidegate_busy_timeout,
            events=options.events,
            on_bots=options.on_bots,
        )
        self.outbox.health_told = options.health
        self.bots = SqliteBotStore(self.outbox.file, TokenCipher.of(options.settings.tidegate_key, path))
        self.inbox = SqliteInbox(self.outbox.file, options.clock)
        self.update_feed = SqliteUpdateFeed(self.outbox.file, options.clock)
        self.campaigns = SqliteCampaigns(self.outbox.file)
        self.conversations = SqliteConversations(self.outbox.file, options.clock)

    def throttle(self, rules: ThrottleRules, name: str = "") -> MemoryThrottle:  # noqa: ARG002  (not shared)
        return MemoryThrottle(rules, self._clock)

    def subscriptions(self, name: str) -> SqliteSubscriptions:
        return SqliteSubscriptions(self.outbox.file, self._clock, name)

    def flow_sessions(self, flow: str) -> SqliteFlowSessions:
        return SqliteFlowSessions(self.outbox.file, self._clock, flow)

    def limiter(self, name: str, rate: Rate) -> MemoryLimiter:  # noqa: ARG002  (no other process shares it)
        return MemoryLimiter(rate, self._clock)

    def leases(self) -> SqliteLeases:
        return SqliteLeases(self.outbox.file, self._clock)

    async def erase(self, chat: ChatId, bot: BotId | None = None) -> Erasure:
        return await erase_chat(self.outbox, chat, bot)

    async def activity(self) -> StoreActivity:
        sender = await self.outbox.sender()
        return StoreActivity(has_one_sender=True, sender=sender, delivers=sender is not None)

    async def sender_health(self) -> StoreHealth | None:
        return await self.outbox.sender_health()

    async def pauses(self, *, chats: bool = True) -> list[tuple[BotId, ChatId | None]]:
        return [place for place in await self.outbox.pauses() if chats or place[1] is None]
