"""The broadcasts of one gate."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tidegate.broadcast.campaign import Campaign
from tidegate.errors import BadInputError, StoreError
from tidegate.model import BotId, Rate
from tidegate.outbox.base import Outbox
from tidegate.pacing.rules import Rules


class Campaigns:
    """Owns those that run, and ends them with the gate."""

    def __init__(self) -> None:
        self._running: dict[tuple[BotId, str], Campaign] = {}

    async def start(self, bot: BotId, campaign: Campaign) -> Campaign:
        """Raises BadInputError if one of this name runs already for the bot."""
        self._running = {key: known for key, known in self._running.items() if not known.has_ended}
        key = (bot, campaign.name)
        if key in self._running:
            raise BadInputError(
                f"broadcast {campaign.name!r} runs already: wait for its end, or give another name"
            )
        self._running[key] = campaign
        await campaign.start()
        return campaign

    async def close(self) -> None:
        await asyncio.gather(*(campaign.close() for campaign in self._running.values()))


async def limit_for(bot: BotId, fields: Mapping[str, Any], rules: Rules, outbox: Outbox) -> Rate:
    """The limit of the bot as things stand, which is what a broadcast runs into.

    That of the rules while the store cannot say what was learned: it may still take messages.
    """
    if fields.get("allow_paid_broadcast") is True:
        return rules.paid
    try:
        learned = await outbox.learned()
    except StoreError:
        return rules.bot
    return learned.get((bot, None), rules.bot)
