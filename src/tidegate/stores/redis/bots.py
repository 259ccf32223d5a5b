"""Registered bots in Redis; their tokens are encrypted."""

from typing import Final

import msgspec

from tidegate.bots.encryption import TokenCipher
from tidegate.bots.port import BotRecord
from tidegate.errors import StoreError
from tidegate.model import BotId
from tidegate.stores.message_codec import encode
from tidegate.stores.redis.connection import Argument, RedisConnection
from tidegate.stores.redis.scripts import load_scripts

ROTATION_TRIES: Final = 20  # of a rotation, while others register and remove bots
SCRIPTS: Final = load_scripts("bots", ("tokens",))


class RedisBotStore:
    """A hash: what is kept of a bot, by its number. `keys` have no file, and so never block."""

    def __init__(self, link: RedisConnection, keys: TokenCipher) -> None:
        self._link = link
        self._keys = keys
        self._key = link.key("tokens")

    async def all(self) -> list[BotRecord]:
        return [_bot(number, kept) for number, kept in sorted((await self._kept()).items())]

    async def open(self, bot: BotRecord) -> str:
        """The token. Raises WrongKeyError."""
        # As it is now: the key may have been changed since.
        kept = await self._link.command("HGET", self._key, bot.id)
        return self._keys.decrypt(bot.sealed if kept is None else _bot(bot.id, kept).sealed)

    async def put(self, bot: BotId, token: str, api_url: str) -> None:
        """Keep a bot, or a new token of one that is there."""
        await self._link.command("HSET", self._key, bot, encode((self._keys.encrypt(token), api_url)))

    async def remove(self, bot: BotId) -> bool:
        return bool(await self._link.command("HDEL", self._key, bot))

    async def rotate(self) -> int:
        """Encrypt every token anew with the newest key, all or none; returns how many."""
        for _ in range(ROTATION_TRIES):
            kept = await self._kept()
            changes: list[Argument] = []
            for number, old in kept.items():
                bot = _bot(number, old)
                changes += [number, old, encode((self._keys.rotate(bot.sealed), bot.api_url))]
            if await self._link.script(SCRIPTS["replace_all"], [self._key], len(kept), *changes):
                return len(kept)
        raise StoreError("bots are registered and removed all the time: rotate the key when that has ended")

    async def _kept(self) -> dict[BotId, bytes]:
        found = await self._link.command("HGETALL", self._key)
        pairs = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
        return {BotId(int(number)): kept for number, kept in pairs}


def _bot(number: BotId, kept: bytes) -> BotRecord:
    sealed, api_url = msgspec.msgpack.decode(kept, type=tuple[bytes, str])
    return BotRecord(number, sealed, api_url)
