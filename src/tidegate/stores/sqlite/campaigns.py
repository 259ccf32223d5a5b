"""Broadcasts in the SQLite file: any process may look, and ask something of one that another runs."""

from tidegate.model import BotId
from tidegate.outbox.campaigns import (
    CampaignRecord,
    CampaignStore,
    CampaignWish,
    decode_campaign,
    encode_campaign,
    oldest_first,
)
from tidegate.stores.sqlite.file import StoreFile, Transaction

_SAVE = (
    "INSERT INTO campaigns (bot, name, wish, body) VALUES (?, ?, ifnull(?, 'run'), ?)"
    " ON CONFLICT (bot, name) DO UPDATE SET body = excluded.body, wish = ifnull(?, wish) RETURNING wish"
)


class SqliteCampaigns(CampaignStore):
    """`file` is open before it."""

    def __init__(self, file: StoreFile) -> None:
        self._file = file

    async def save(self, record: CampaignRecord, wish: CampaignWish | None = None) -> CampaignWish:
        row = (record.bot, record.name, wish, encode_campaign(record), wish)

        def step(tx: Transaction) -> CampaignWish:
            asked: CampaignWish = tx.execute(_SAVE, row).fetchone()[0]
            return asked

        return await self._file.write(step)

    async def find(self, bot: BotId, name: str) -> tuple[CampaignRecord, CampaignWish] | None:
        query = "SELECT body, wish FROM campaigns WHERE bot = ? AND name = ?"
        row = await self._file.read(lambda tx: tx.execute(query, (bot, name)).fetchone())
        record = None if row is None else decode_campaign(row[0])
        return None if record is None else (record, row[1])

    async def all(self) -> list[CampaignRecord]:
        rows = await self._file.read(lambda tx: tx.execute("SELECT body FROM campaigns").fetchall())
        return oldest_first([record for [body] in rows if (record := decode_campaign(body)) is not None])

    async def ask(self, bot: BotId, name: str, wish: CampaignWish) -> bool:
        change = "UPDATE campaigns SET wish = ? WHERE bot = ? AND name = ?"
        return await self._file.write(lambda tx: tx.execute(change, (wish, bot, name)).rowcount > 0)

    async def remove(self, bot: BotId, name: str) -> None:
        delete = "DELETE FROM campaigns WHERE bot = ? AND name = ?"
        await self._file.write(lambda tx: tx.execute(delete, (bot, name)))
