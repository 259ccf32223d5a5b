"""The lanes in memory, in step with the file: with what is done here, and with what other processes do."""

import asyncio
from collections.abc import Sequence

from tidegate.clock import Clock
from tidegate.inbound.inbox.base import REMEMBER
from tidegate.inbound.inbox.lanes import Lanes, Waiting
from tidegate.inbound.inbox.sqlite import settling
from tidegate.inbound.inbox.sqlite.accepting import Placed
from tidegate.outbox.sqlite.file import StoreFile


class Following:
    """Knows everything up to a number. `news` is set when something was added to the lanes."""

    def __init__(self, file: StoreFile, clock: Clock, news: asyncio.Event, *, poll: float) -> None:
        self.lanes = Lanes()
        self._file = file
        self._clock = clock
        self._news = news
        self._poll = poll
        self._follows = False
        self._last = 0  # the number up to which everything that waits is in the lanes
        self._behind = False  # something after it was accepted elsewhere
        self._version = 0  # of the file, when it was last looked at
        self._look_at = 0.0

    async def begin(self) -> None:
        self.lanes, self._last, self._follows = Lanes(), 0, True
        self._version = await self._file.changed()
        await self._load()

    def end(self) -> None:
        self.lanes, self._follows, self._behind = Lanes(), False, False

    def enter(self, placed: Sequence[Placed]) -> None:
        """They were written by this process. What others wrote before them has to be loaded first."""
        if not placed or not self._follows:
            return
        if placed[0].number == self._last + 1:
            self._add(placed)
            self._last = placed[-1].number
        else:
            self._behind = True
        self._news.set()

    async def catch_up(self) -> None:
        """Other processes accept and replay, too."""
        if self._behind:
            await self._load()
        if self._clock.monotonic() < self._look_at:
            return
        self._look_at = self._clock.monotonic() + self._poll
        version = await self._file.changed()
        if version != self._version and self._follows:
            await self._load()
            self._version = version

    def next_at(self) -> float:
        """When there may be something new, if nobody says so before."""
        tried_again = self.lanes.next_at()
        return self._look_at if tried_again is None else min(tried_again, self._look_at)

    async def _load(self) -> None:
        while await self._file.read(lambda tx: settling.load(tx, self._last), self._loaded):
            pass

    def _loaded(self, loaded: settling.Loaded) -> bool:
        self._add([one for one in loaded.placed if one.number > self._last])
        self._last = max(self._last, loaded.upto)
        self._behind = loaded.more
        if loaded.placed:
            self._news.set()
        return loaded.more

    def _add(self, placed: Sequence[Placed]) -> None:
        now, wall = self._clock.monotonic(), self._clock.now()
        for number, source, lane, crashes, not_before in placed:
            # Wall clocks may be set back.
            after = 0.0 if not_before is None else min(not_before - wall, REMEMBER)
            self.lanes.add((source, lane), Waiting(number, crashes, now + after if after > 0 else 0.0))
