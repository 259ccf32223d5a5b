"""Tells the application who is gone, so that it can mark them."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tidegate.audience.template import Row
from tidegate.errors import BadInputError

log = logging.getLogger("tidegate.broadcast")

OnDead = Callable[[Row, str], Awaitable[None]]
AT_ONCE: Final = 20

# Why a message is dead where the person, or the group, wants none or is gone. For what is wrong with the
# message itself, or with the bot, nobody must be marked: it would be everybody.
REASONS: Final = frozenset(("blocked", "deactivated", "kicked", "not_found"))


class Gone:
    """A hook that fails or is slow stops nothing: failures are counted, and told once."""

    def __init__(self, on_dead: OnDead | None, name: str) -> None:
        if on_dead is not None and not inspect.iscoroutinefunction(on_dead):
            raise BadInputError("on_dead must be an async function: async def on_dead(row, reason)")
        self._on_dead = on_dead
        self._name = name
        self._free = asyncio.Semaphore(AT_ONCE)
        self.failed = 0

    async def tell(self, row: Row, reason: str | None) -> None:
        if self._on_dead is None or reason not in REASONS:
            return
        async with self._free:
            try:
                await self._on_dead(row, reason)
            except Exception:
                self.failed += 1
                if self.failed == 1:
                    log.exception(
                        "broadcast %s: on_dead failed for chat %s. Further failures are counted in progress",
                        self._name,
                        row.get("chat_id"),
                    )
