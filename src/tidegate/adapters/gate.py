"""What an adapter needs of a gate."""

from typing import Any, Protocol

from tidegate.clock import Clock
from tidegate.delivery.botapi import Lend
from tidegate.delivery.direct import DirectCalls
from tidegate.inbound.reception import Reception
from tidegate.inbound.throttle.guard import Guard
from tidegate.inbound.throttle.rules import ThrottleRules
from tidegate.inbound.throttle.throttle import Throttle
from tidegate.roster import TELEGRAM, AnyBot, Bot
from tidegate.settings import Settings
from tidegate.tickets import LiveTicket


class Gate(Protocol):
    """`Tidegate`, as seen from below."""

    settings: Settings
    clock: Clock
    direct: DirectCalls
    reception: Reception  # another one each time that the gate is opened

    async def start(self) -> None:
        """Open it, if nobody did, and deliver in this process. Each start needs its `stop`."""

    async def stop(self) -> None:
        """Take back one `start`: the last one ends what the first has begun."""

    @property
    def is_open(self) -> bool: ...

    def throttle(self, rules: ThrottleRules | None = None) -> Throttle:
        """With the usual rules, if none are given. While the gate is open."""
        ...

    def guard(self, throttle: Throttle) -> Guard:
        """Puts a throttle before the inbox."""
        ...

    async def tell(self, bot: int, chat_id: int, text: str) -> None:
        """Put a text into the outbox that has no value later."""

    async def end_broadcasts(self) -> None:
        """Feed no more: the gate closes soon."""

    def add_bot(self, token: str, *, api_url: str = TELEGRAM, session: Lend | None = None) -> Bot:
        """Let the gate send for a bot. Nothing changes if it does already."""
        ...

    async def send(self, *, bot: AnyBot | None = None, **fields: Any) -> LiveTicket:  # noqa: ANN401
        """Accept one message."""
        ...
