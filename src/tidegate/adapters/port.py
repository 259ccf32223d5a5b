"""The port of the adapters: what they need of the gate, beside what webhooks need."""

from typing import Any, Protocol

from tidegate.bots.registry import TELEGRAM, AnyBot, Bot
from tidegate.delivery.bot_api import SessionFactory
from tidegate.delivery.direct import DirectCalls
from tidegate.events import EventStream
from tidegate.inbound.conversations import Conversations
from tidegate.inbound.handlers import HandlersHost
from tidegate.inbound.throttle import Throttle, ThrottleRules
from tidegate.inbound.throttle_middleware import ThrottleMiddleware
from tidegate.incidents import SlowCalls
from tidegate.outbox.tickets import LiveTicket
from tidegate.settings import Settings
from tidegate.stores.store import Store


class Gate(HandlersHost, Protocol):
    """A gate as adapters see it. `handler_registry` and `direct` are new each time it is opened."""

    settings: Settings
    direct: DirectCalls
    store: Store
    store_name: str
    slow_calls: SlowCalls
    events: EventStream

    async def conversations(self) -> Conversations:
        """Return the conversations of the open store, if it keeps any. Opens an attached gate."""
        ...

    def throttle_rules(self) -> ThrottleRules:
        """Return the rules of the settings."""
        ...

    def throttle(self, rules: ThrottleRules | None = None) -> Throttle:
        """Return a throttle, with the rules of the settings if none are given. While the gate is open."""
        ...

    def throttle_middleware(self, throttle: Throttle) -> ThrottleMiddleware:
        """Return an accept filter for the inbox."""
        ...

    async def send_notice(self, bot: int, chat_id: int, text: str) -> None:
        """Queue a text that expires within a minute."""

    async def end_broadcasts(self) -> None:
        """Let broadcasts put no more messages: the gate closes soon."""

    def end_at_once(self) -> None:
        """Wait for nothing when it stops, or no longer if it does so now: a second Ctrl-C."""

    def add_bot(self, token: str, *, api_url: str = TELEGRAM, session: SessionFactory | None = None) -> Bot:
        """Let the gate send for a bot. Nothing changes if it does already."""
        ...

    async def send(self, *, bot: AnyBot | None = None, **fields: Any) -> LiveTicket:  # noqa: ANN401
        """Queue one message. Durable when it returns."""
        ...
