"""What the front needs of the gate behind it."""

from collections.abc import Awaitable, Mapping
from typing import Protocol

from tidegate.inbound.http.hook import Hook
from tidegate.inbound.reception import Reception


class Door(Protocol):
    @property
    def hooks(self) -> Mapping[str, Hook]:
        """By name."""
        ...

    def reception(self) -> Reception:
        """Raises ClosedError unless what arrives is handed out: before `start`, and after `stop`."""
        ...

    def secret_of(self, bot_id: int) -> str | None:
        """What Telegram sends with each update of this bot; None if this process does not know the bot."""
        ...

    def readiness(self) -> Awaitable[dict[str, str]]:
        """What stands in the way of work, by name; nothing when all is well."""
        ...

    async def start(self) -> None:
        """Called when the server starts. What it raises is told to the server, which then ends."""

    async def stop(self) -> None:
        """Called when every request has been answered."""
