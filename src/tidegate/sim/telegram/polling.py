"""getUpdates: a long poll that the next one cuts short, as Telegram does."""

import asyncio
from typing import Any

from tidegate.clock import Clock
from tidegate.sim.telegram.call import ApiError, Call, bad_request
from tidegate.sim.telegram.world import Bot

LONGEST_POLL = 50
MOST_UPDATES = 100
CONFLICT = ApiError(
    409,
    "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
)
WEBHOOK_ACTIVE = ApiError(
    409,
    "Conflict: can't use getUpdates method while webhook is active; "
    "use deleteWebhook to delete the webhook first",
)


class Polling:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._polls: dict[int, asyncio.Future[bool]] = {}  # bot → resolved True on an update, False on 409

    async def get_updates(self, call: Call) -> list[dict[str, Any]]:
        bot, updates = call.bot, call.bot.updates
        offset, limit = call.integer("offset", 0), call.integer("limit", MOST_UPDATES)
        timeout = min(call.integer("timeout", 0), LONGEST_POLL)
        allowed = call.nested("allowed_updates")
        if limit not in range(1, MOST_UPDATES + 1) or timeout < 0:
            raise bad_request("limit must be between 1 and 100, timeout must not be negative")
        if bot.webhook is not None:
            raise WEBHOOK_ACTIVE
        if isinstance(allowed, list):
            updates.allow(map(str, allowed))
        updates.confirm_before(offset)
        self._finish(bot.id, arrived=False)
        if not updates and timeout:
            await self._wait(bot, timeout)
        return updates.first(limit)

    def interrupt(self, bot: Bot) -> None:
        """End a poll that waits with a 409: a webhook has taken its place."""
        self._finish(bot.id, arrived=False)

    async def _wait(self, bot: Bot, seconds: float) -> None:
        poll = self._polls[bot.id] = asyncio.get_running_loop().create_future()

        def on_put() -> None:
            self._finish(bot.id, arrived=True)

        bot.updates.on_put = on_put
        try:
            async with self._clock.timeout(seconds):
                arrived = await poll
        except TimeoutError:
            return
        finally:
            if self._polls.get(bot.id) is poll:
                del self._polls[bot.id]
            if bot.updates.on_put is on_put:
                bot.updates.on_put = None
        if bot.webhook is not None:
            raise WEBHOOK_ACTIVE
        if not arrived:
            raise CONFLICT

    def _finish(self, bot_id: int, *, arrived: bool) -> None:
        poll = self._polls.get(bot_id)
        if poll is not None and not poll.done():
            poll.set_result(arrived)
