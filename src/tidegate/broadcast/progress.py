"""The progress of a broadcast, in the vocabulary that all reports share."""

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.model import ChatId
from tidegate.outbox.campaigns import CampaignState
from tidegate.outbox.port import Outbox


class BadRow(msgspec.Struct, frozen=True):
    """A row that could not be sent. Rows are numbered from 1."""

    row: int
    chat_id: ChatId | None
    reason: str


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a broadcast at one moment. Times are seconds since the Unix epoch.

    `read` = `accepted` + `skipped` + `bad` + `repeated`, and `accepted` = `delivered` + `dead` + `parked` +
    `expired` + `cancelled` + `forgotten` + `waiting`, but for the rows that are being put right now.
    """

    name: str
    state: CampaignState
    total: int | None  # rows of the audience, if it is known
    read: int  # rows so far
    accepted: int  # taken into the outbox, now or by an earlier call of this name
    earlier: int  # of these, by an earlier call
    delivered: int
    dead: int
    reasons: Mapping[str, int]  # of the dead and parked
    parked: int
    expired: int
    cancelled: int
    forgotten: int  # ended, and no longer known to the store
    waiting: int  # in the outbox
    skipped: int  # the function returned None
    bad: int
    bad_rows: tuple[BadRow, ...]  # the first of them
    repeated: int  # chats that were in the audience before
    unmarked: int  # dead messages for which on_dead failed
    refused: int  # 429s heard meanwhile by any bot of the store; read each second
    rate: float  # messages that ended a second, lately
    eta_seconds: float | None  # None: unknown
    started_at: float
    ended_at: float | None
    trouble: str | None  # why the store cannot be used now, or why it failed

    @property
    def ended(self) -> int:
        """The rows that are done, of `total`: for a progress bar."""
        return self.accepted - self.waiting + self.skipped + self.bad + self.repeated


RATE_WINDOW_SECONDS: Final = 10.0  # seconds
RATE_STEP_SECONDS: Final = 0.25  # seconds whose events are counted together


class EndRate:
    """Counts events a second over the last few seconds, in bounded memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._steps: deque[tuple[float, int]] = deque()  # when, and how many

    def count(self) -> None:
        now = self._clock.monotonic()
        if self._steps and now - self._steps[-1][0] < RATE_STEP_SECONDS:
            when, many = self._steps.pop()
            self._steps.append((when, many + 1))
        else:
            self._steps.append((now, 1))
        self._drop(now)

    def per_second(self) -> float:
        now = self._clock.monotonic()
        self._drop(now)
        span = min(RATE_WINDOW_SECONDS, now - self._since)
        return sum(many for _, many in self._steps) / span if span > 0 else 0.0

    def _drop(self, now: float) -> None:
        while self._steps and self._steps[0][0] <= now - RATE_WINDOW_SECONDS:
            self._steps.popleft()


REFUSALS_SECONDS: Final = 1.0  # seconds: some stores answer over the network


class RefusalCounter:
    """Counts the 429s since a broadcast began, so that its progress needs no call to the store.

    While the store cannot be read, or takes too long, the last count stays.
    """

    def __init__(self, outbox: Outbox, clock: Clock) -> None:
        self._outbox = outbox
        self._clock = clock
        self._before: int | None = None  # what the store counted at the first look
        self.count = 0

    async def follow(self) -> None:
        """Read the count each second, until cancelled."""
        while True:
            await self._clock.sleep(REFUSALS_SECONDS)
            await self.look()

    async def look(self) -> None:
        with suppress(StoreError, TimeoutError):
            async with self._clock.timeout(REFUSALS_SECONDS):
                refused = (await self._outbox.stats()).refused
            if self._before is None:
                self._before = refused
            self.count = max(self.count, refused - self._before)
