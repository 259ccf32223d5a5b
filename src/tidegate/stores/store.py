"""The store of a gate: one bundle with an implementation of every stage's port."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidegate.bots.port import BotStore
from tidegate.clock import Clock
from tidegate.events import EventStream
from tidegate.flows.port import FlowSessionStore
from tidegate.inbound.conversations import Conversations
from tidegate.inbound.inbox import Inbox
from tidegate.inbound.throttle import ThrottleRules, ThrottleStore
from tidegate.inbound.update_feed import UpdateFeed
from tidegate.leader_lease import LeaseStore
from tidegate.model import BotId, ChatId, Rate
from tidegate.outbox.campaigns import CampaignStore
from tidegate.outbox.port import Outbox, StoreHealth
from tidegate.pacing.rules import Rules
from tidegate.polling.subscriptions import Subscriptions
from tidegate.settings import Settings
from tidegate.stores.erasure import Erasure
from tidegate.upstream.limiter import Limiter

if TYPE_CHECKING:
    from tidegate.stores.sqlite.sender_lock import SenderProcess


class StoreOptions(NamedTuple):
    """The options of a store that a gate opens."""

    clock: Clock
    rules: Rules
    settings: Settings
    events: EventStream
    on_bots: Callable[[], None]  # another process has changed what is registered
    serves: Callable[[], Sequence[BotId]]  # the bots that this process sends for
    health: Callable[[], StoreHealth] = StoreHealth  # of this process, for others that ask


class StoreActivity(NamedTuple):
    """The processes that use a store, as far as they are known."""

    has_one_sender: bool = False  # one process at a time sends for it
    sender: "SenderProcess | None" = None  # that process
    processes: int | None = None  # other processes that have it open, if any number of them may send
    delivers: bool = False  # some process delivers


class Store(Protocol):
    """Opened and closed with its outbox; the other parts share its connection."""

    outbox: Outbox
    bots: BotStore | None  # None: bots cannot be registered
    inbox: Inbox
    update_feed: UpdateFeed
    campaigns: CampaignStore
    conversations: Conversations | None = None  # None: the bot library keeps them, in memory or in Redis
    follows_bots: bool  # whether somebody has to look for bots that other processes have registered

    def throttle(self, rules: ThrottleRules, name: str = "") -> ThrottleStore:
        """Return the counters of a throttle. In Redis, those of one name are shared by all processes."""
        ...

    def subscriptions(self, name: str) -> Subscriptions:
        """Return the subscriptions of the poller with this name."""
        ...

    def flow_sessions(self, flow: str) -> FlowSessionStore:
        """Return the sessions of the flow with this name."""
        ...

    def limiter(self, name: str, rate: Rate) -> Limiter:
        """Return the limiter of the API and token with this name, which holds no secret."""
        ...

    def leases(self) -> LeaseStore:
        """Return a holder of leases, by which one process of many does what one has to do."""
        ...

    async def risks(self) -> list[str]:
        """Return how it could lose data, a line each. Raises StoreError if that cannot be said now."""
        return []

    async def losses(self) -> list[str]:
        """Return what is lost by closing it now, a line each."""
        return []

    async def erase(self, chat: ChatId, bot: BotId | None = None) -> Erasure:
        """Erase a chat, of one bot or of all: messages, updates, conversations, sessions, subscriptions.

        Messages that are being sent, and updates that are being handled, stay. Raises StoreError if what was
        erased can still be found on the disk.
        """
        ...

    async def activity(self) -> StoreActivity:
        """Return which processes use the store."""
        ...

    async def sender_health(self) -> StoreHealth | None:
        """Return the health of the processes that send, as they say themselves; None if none is known."""
        return None

    async def pauses(self, *, chats: bool = True) -> list[tuple[BotId, ChatId | None]]:
        """Return the paused bots (chat None) and, if `chats`, the paused chats."""
        ...
