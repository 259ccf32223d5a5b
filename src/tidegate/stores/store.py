"""The store of a gate: one bundle with an implementation of every stage's port."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tidegate.bots.port import BotStore
from tidegate.clock import Clock
from tidegate.inbound.conversations import Conversations
from tidegate.inbound.inbox import Inbox
from tidegate.inbound.throttle import ThrottleRules, ThrottleStore
from tidegate.model import BotId, Rate, Record
from tidegate.outbox.port import Outbox
from tidegate.pacing.rules import Rules
from tidegate.polling.subscriptions import Subscriptions
from tidegate.settings import Settings
from tidegate.upstream.limiter import Limiter


class StoreOptions(NamedTuple):
    """What a gate gives to whatever keeps its things."""

    clock: Clock
    rules: Rules
    settings: Settings
    on_end: Callable[[Record], None]  # of a message
    on_bots: Callable[[], None]  # another process has changed what is registered
    serves: Callable[[], Sequence[BotId]]  # the bots that this process sends for


class Store(Protocol):
    """Opened and closed with its outbox, which the others share."""

    outbox: Outbox
    shelf: BotStore | None  # of registered bots
    inbox: Inbox
    conversations: Conversations | None = None  # None: the bot library keeps them, in memory or in Redis
    follows_bots: bool  # whether somebody has to look for bots that other processes have registered

    def buckets(self, rules: ThrottleRules) -> ThrottleStore:
        """What a throttle counts in."""
        ...

    def subscriptions(self, name: str) -> Subscriptions:
        """Of the poller with this name."""
        ...

    def limiter(self, name: str, rate: Rate) -> Limiter:
        """Of the API and token with this name, which holds no secret."""
        ...

    async def risks(self) -> list[str]:
        """What it could lose, a line each. Raises StoreError if that cannot be said now."""
        ...
