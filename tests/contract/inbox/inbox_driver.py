"""The suite's calls of an inbox: by keys, with a default bot and lane."""

import sys
from collections.abc import Collection

import pytest

from tidegate.inbound.inbox import ClaimedItem, Inbox, InboxItem, InboxSource, bot_source
from tidegate.sim.virtual_time import VirtualClock

BOT, OTHER_BOT = bot_source(42), bot_source(43)


def arrival(key: str, lane: str = "a", source: InboxSource = BOT) -> InboxItem:
    return InboxItem(source, key, lane, f"body of {key}".encode())


class InboxDriver:
    def __init__(self, inbox: Inbox, clock: VirtualClock) -> None:
        self.inbox = inbox
        self.clock = clock

    async def accept(self, *keys: str, lane: str = "a", source: InboxSource = BOT) -> list[bool]:
        return await self.inbox.accept([arrival(key, lane, source) for key in keys])

    async def claim(
        self, limit: int = 100, *, sources: Collection[InboxSource] = (BOT,), suspects: int = 1
    ) -> list[ClaimedItem]:
        return await self.inbox.claim(sources, limit, suspects=suspects)

    async def claim_one(self) -> ClaimedItem:
        [held] = await self.claim(1)
        return held

    async def next(self, sources: Collection[InboxSource] = (BOT,)) -> list[ClaimedItem]:
        """Wait as a dispatcher does, and return the first items that can be claimed."""
        while not (found := await self.claim(sources=sources)):
            await self.inbox.wait()
        return found

    async def handle_all(self, sources: Collection[InboxSource] = (BOT,)) -> list[str]:
        """Return the keys in the order of their claims."""
        order = []
        while found := await self.claim(sources=sources):
            order += keys(found)
            await self.inbox.done(found)
        return order

    async def parked(self, source: InboxSource | None = None, *, limit: int = 100) -> list[str]:
        return [one.item.key for one in await self.inbox.parked(source, limit=limit)]

    async def counts(self) -> tuple[int, int, int]:
        stats = await self.inbox.stats()
        return stats.waiting, stats.handling, stats.parked


def keys(found: list[ClaimedItem]) -> list[str]:
    return [held.item.key for held in found]


def set_bound(monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    """Set a smaller bound in every module that has it."""
    for module in [one for one in sys.modules if one.startswith(("tidegate.inbound", "tidegate.stores"))]:
        if hasattr(sys.modules[module], name):
            monkeypatch.setattr(sys.modules[module], name, value)
