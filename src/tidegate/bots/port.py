"""The port of registered bots: where a store keeps them, with encrypted tokens."""

from typing import Protocol

import msgspec

from tidegate.model import BotId


class BotRecord(msgspec.Struct, frozen=True):
    """Its token is encrypted."""

    id: BotId
    sealed: bytes
    api_url: str


class BotStore(Protocol):
    """Where a store keeps the bots that are registered in it, their tokens encrypted."""

    async def all(self) -> list[BotRecord]: ...

    async def open(self, bot: BotRecord) -> str:
        """The token. Raises WrongKeyError."""
        ...

    async def put(self, bot: BotId, token: str, api_url: str) -> None:
        """Keep a bot, or a new token of one that is there."""

    async def remove(self, bot: BotId) -> bool:
        """Remove a bot; return whether it was there."""
        ...

    async def rotate(self) -> int:
        """Encrypt every token anew with the newest key, all or none; returns how many."""
        ...
