"""Broadcasts in Redis: any process may look, and ask something of one that another runs."""

from tidegate.model import BotId
from tidegate.outbox.campaigns import (
    CampaignRecord,
    CampaignStore,
    CampaignWish,
    decode_campaign,
    encode_campaign,
    oldest_first,
)
from tidegate.stores.redis.connection import RedisConnection

_WISHES: dict[bytes, CampaignWish] = {b"pause": "pause", b"cancel": "cancel"}


class RedisCampaigns(CampaignStore):
    """A hash of records and a hash of what is asked of them, so that a report never undoes what is asked."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self._records = connection.key("campaigns")
        self._wishes = connection.key("campaign_wishes")

    async def save(self, record: CampaignRecord, wish: CampaignWish | None = None) -> CampaignWish:
        field = _field(record.bot, record.name)
        if wish is not None:
            await self._connection.command("HSET", self._wishes, field, wish)
        await self._connection.command("HSET", self._records, field, encode_campaign(record))
        return await self._wish(field)

    async def find(self, bot: BotId, name: str) -> tuple[CampaignRecord, CampaignWish] | None:
        body = await self._connection.command("HGET", self._records, _field(bot, name))
        record = None if body is None else decode_campaign(body)
        return None if record is None else (record, await self._wish(_field(bot, name)))

    async def all(self) -> list[CampaignRecord]:
        bodies = await self._connection.command("HVALS", self._records)
        return oldest_first([record for body in bodies if (record := decode_campaign(body)) is not None])

    async def ask(self, bot: BotId, name: str, wish: CampaignWish) -> bool:
        if not await self._connection.command("HEXISTS", self._records, _field(bot, name)):
            return False
        await self._connection.command("HSET", self._wishes, _field(bot, name), wish)
        return True

    async def remove(self, bot: BotId, name: str) -> None:
        for key in (self._records, self._wishes):
            await self._connection.command("HDEL", key, _field(bot, name))

    async def _wish(self, field: str) -> CampaignWish:
        asked = await self._connection.command("HGET", self._wishes, field)
        return _WISHES.get(asked, "run")


def _field(bot: BotId, name: str) -> str:
    return f"{bot}/{name}"
