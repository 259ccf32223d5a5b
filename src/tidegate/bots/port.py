"""A registered bot as a store keeps it."""

import msgspec

from tidegate.model import BotId


class BotRecord(msgspec.Struct, frozen=True):
    """Its token is encrypted."""

    id: BotId
    sealed: bytes
    api_url: str
