"""What an adapter needs of the gate."""

from typing import Any, Protocol

from tidegate.bots.registry import TELEGRAM, AnyBot, Bot
from tidegate.clock import Clock
from tidegate.delivery.bot_api import SessionFactory
from tidegate.delivery.direct import DirectCalls
from tidegate.inbound.handler_registry import HandlerRegistry
from tidegate.inbound.throttle import Throttle, ThrottleRules
from tidegate.inbound.throttle_middleware import ThrottleMiddleware
from tidegate.outbox.tickets import LiveTicket
from tidegate.settings import Settings


class Gate(Protocol):
    """`Tidegate`, as seen from below."""

    settings: Settings
    clock: Clock
    direct: DirectCalls
    handler_registry: HandlerRegistry  # another one each time that the gate is opened

    async def start(self) -> None:
        """Open it, if nobody did, and deliver in this process. Each start needs its `stop`."""

    async def stop(self) -> None:
        """Take back one `start`: the last one ends what the first has begun."""

    @property
    def is_open(self) -> bool: ...

    def throttle(self, rules: ThrottleRules | None = None) -> Throttle:
        """With the usual rules, if none are given. While the gate is open."""
        ...

    def throttle_middleware(self, throttle: Throttle) -> ThrottleMiddleware:
        """Puts a throttle before the inbox."""
        ...

    async def tell(self, bot: int, chat_id: int, text: str) -> None:
        """Put a text into the outbox that has no value later."""

    async def end_broadcasts(self) -> None:
        """Feed no more: the gate closes soon."""

    def add_bot(self, token: str, *, api_url: str = TELEGRAM, session: SessionFactory | None = None) -> Bot:
        """Let the gate send for a bot. Nothing changes if it does already."""
        ...

    async def send(self, *, bot: AnyBot | None = None, **fields: Any) -> LiveTicket:  # noqa: ANN401
        """Accept one message."""
        ...
