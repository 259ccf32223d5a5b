"""Registered bots in Redis; their tokens are encrypted."""

from typing import Final

import msgspec

from tidegate.bots.encryption import TokenCipher, rotate_token
from tidegate.bots.port import BotRecord
from tidegate.errors import StoreError
from tidegate.model import BotId
from tidegate.stores.message_codec import encode
from tidegate.stores.redis.connection import Argument, RedisConnection
from tidegate.stores.redis.scripts import load_scripts

ROTATION_TRIES: Final = 20  # while other processes register and remove bots
SCRIPTS: Final = load_scripts("bots", ("tokens",))
UNREADABLE: Final = "unreadable"  # in place of the address of a bot whose entry cannot be decoded


class RedisBotStore:
    """A hash of encrypted tokens by bot. `keys` have no file, and so never block."""

    def __init__(self, connection: RedisConnection, keys: TokenCipher) -> None:
        self._connection = connection
        self._keys = keys
        self._key = connection.key("tokens")

    async def all(self) -> list[BotRecord]:
        return [_bot(number, stored) for number, stored in sorted((await self._stored()).items())]

    async def open(self, bot: BotRecord) -> str:
        """Return the token. Raises WrongKeyError."""
        # Read anew: the key may have been changed since.
        stored = await self._connection.command("HGET", self._key, bot.id)
        return self._keys.decrypt(bot.sealed if stored is None else _bot(bot.id, stored).sealed)

    async def put(self, bot: BotId, token: str, api_url: str) -> None:
        """Store a bot, or a new token of one that is there."""
        await self._connection.command("HSET", self._key, bot, encode((self._keys.encrypt(token), api_url)))

    async def remove(self, bot: BotId) -> bool:
        return bool(await self._connection.command("HDEL", self._key, bot))

    async def rotate(self) -> int:
        """Encrypt every token anew with the newest key, all or none; return how many."""
        for _ in range(ROTATION_TRIES):
            stored = await self._stored()
            changes: list[Argument] = []
            for number, old in stored.items():
                bot = _bot(number, old)
                changes += [number, old, encode((rotate_token(self._keys, bot), bot.api_url))]
            if await self._connection.script(SCRIPTS["replace_all"], [self._key], len(stored), *changes):
                return len(stored)
        raise StoreError("bots are registered and removed all the time: rotate the key when that has ended")

    async def _stored(self) -> dict[BotId, bytes]:
        found = await self._connection.command("HGETALL", self._key)
        pairs = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
        return {BotId(int(number)): stored for number, stored in pairs if number.isdigit()}


def _bot(number: BotId, stored: bytes) -> BotRecord:
    """One that cannot be decoded has a token that no key opens: other bots go on."""
    try:
        sealed, api_url = msgspec.msgpack.decode(stored, type=tuple[bytes, str])
    except msgspec.DecodeError:
        return BotRecord(number, stored, UNREADABLE)
    return BotRecord(number, sealed, api_url)
