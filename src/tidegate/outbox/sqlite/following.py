"""What goes on by itself while a store is open: following other processes, and removing what is over."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.outbox.sqlite import settling
from tidegate.outbox.sqlite.file import StoreFile
from tidegate.pacing.rules import Rules

log = logging.getLogger("tidegate.store")

CLEAN_EVERY: Final = 1.0  # seconds


class Follower:
    """`catch_up` is called when another process has changed the file; `sends`: whether this one sends."""

    def __init__(
        self,
        file: StoreFile,
        clock: Clock,
        rules: Rules,
        *,
        poll: float,
        catch_up: Callable[[], Awaitable[None]],
        sends: Callable[[], bool],
    ) -> None:
        self._file = file
        self._clock = clock
        self._poll = poll
        self._catch_up = catch_up
        self._sends = sends
        self._longest = max(rate.seconds for rate in (rules.bot, rules.private, rules.group, *rules.actions))
        self._cleaned = 0  # the number up to which the file was looked at for what is over
        self._clean_at = 0.0

    async def run(self) -> None:
        seen = await self._file.changed()
        while True:
            await self._clock.sleep(self._poll)
            try:
                version = await self._file.changed()
                if version != seen:
                    await self._catch_up()
                    seen = version
                if self._file.owes:
                    await self._file.write(lambda _: None)
                if self._clock.monotonic() >= self._clean_at:
                    # Where nobody sends, nobody writes down that a deadline has passed.
                    await (self._clean() if self._sends() else self._look_again())
            except StoreError as error:
                log.debug("%s", error)  # told where it matters; here it is tried again

    async def _look_again(self) -> None:
        await self._catch_up()
        self._clean_at = self._clock.monotonic() + CLEAN_EVERY

    async def _clean(self) -> None:
        now, after = self._clock.now(), self._cleaned
        self._cleaned, much = await self._file.write(lambda tx: settling.clean(tx, now, self._longest, after))
        self._clean_at = self._clock.monotonic() + (0.0 if much else CLEAN_EVERY)
