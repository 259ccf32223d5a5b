"""A bot that is registered in a store, wherever that keeps it."""

import msgspec

from tidegate.model import BotId


class StoredBot(msgspec.Struct, frozen=True):
    """Its token is encrypted."""

    id: BotId
    sealed: bytes
    api_url: str
