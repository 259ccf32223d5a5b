"""The bots that are registered in the file, with encrypted tokens."""

from tidegate.bots.encryption import TokenCipher, rotate_token
from tidegate.bots.port import BotRecord, BotStore
from tidegate.model import BotId
from tidegate.stores.sqlite.file import StoreFile, Transaction


class SqliteBotStore(BotStore):
    def __init__(self, file: StoreFile, keys: TokenCipher) -> None:
        self._file = file
        self._keys = keys

    async def all(self) -> list[BotRecord]:
        rows = await self._file.read(
            lambda tx: tx.execute("SELECT id, token, api_url FROM bots ORDER BY id").fetchall()
        )
        return [BotRecord(*row) for row in rows]

    async def open(self, bot: BotRecord) -> str:
        """The decrypted token. Raises WrongKeyError."""

        def step(tx: Transaction) -> str:
            # The present one: it may have been encrypted with another key since.
            row = tx.execute("SELECT token FROM bots WHERE id = ?", (bot.id,)).fetchone()
            return self._keys.decrypt(bot.sealed if row is None else row[0])

        return await self._file.read(step)

    async def put(self, bot: BotId, token: str, api_url: str) -> None:
        """Store a bot, or a new token of a stored one. The sender is told through the journal."""

        def step(tx: Transaction) -> None:
            sealed = self._keys.encrypt(token)
            tx.execute("INSERT OR REPLACE INTO bots VALUES (?, ?, ?)", (bot, sealed, api_url))
            tx.note("bots", None)

        await self._file.write(step)

    async def remove(self, bot: BotId) -> bool:
        def step(tx: Transaction) -> bool:
            tx.note("bots", None)
            return tx.execute("DELETE FROM bots WHERE id = ?", (bot,)).rowcount == 1

        return await self._file.write(step)

    async def rotate(self) -> int:
        """Encrypt every token anew with the newest key, all or none; returns how many."""

        def step(tx: Transaction) -> int:
            bots = [BotRecord(*row) for row in tx.execute("SELECT id, token, api_url FROM bots")]
            tx.executemany(
                "UPDATE bots SET token = ? WHERE id = ?",
                [(rotate_token(self._keys, bot), bot.id) for bot in bots],
            )
            return len(bots)

        return await self._file.write(step)
