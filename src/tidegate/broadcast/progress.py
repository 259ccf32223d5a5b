"""How a broadcast stands, in the vocabulary that all reports share."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from tidegate.model import ChatId

Stage = Literal["running", "paused", "finished", "cancelled", "failed", "stopped"]


class BadRow(msgspec.Struct, frozen=True):
    """A row that could not be sent. Rows are counted from 1."""

    row: int
    chat_id: ChatId | None
    reason: str


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """At one moment. Times are seconds since the Unix epoch.

    `read` = `accepted` + `skipped` + `bad` + `repeated`, and `accepted` = `delivered` + `dead` + `parked` +
    `expired` + `cancelled` + `forgotten` + `waiting`, but for the rows that are being put right now.
    """

    name: str
    state: Stage
    total: int | None  # rows of the audience, if it says so
    read: int  # rows so far
    accepted: int  # taken into the outbox, now or by an earlier call of this name
    earlier: int  # of these, by an earlier call
    delivered: int
    dead: int
    reasons: Mapping[str, int]  # of the dead and parked
    parked: int
    expired: int
    cancelled: int
    forgotten: int  # by the store: they ended, nobody knows how
    waiting: int  # in the outbox
    skipped: int  # the function gave None
    bad: int
    bad_rows: tuple[BadRow, ...]  # the first of them
    repeated: int  # chats that were in the audience before
    unmarked: int  # dead ones for whom on_dead failed
    refused: int  # 429s heard meanwhile, by any bot of the store; looked up each second
    rate: float  # ends a second, lately
    eta_seconds: float | None  # None: it cannot be said
    started_at: float
    ended_at: float | None
    trouble: str | None  # what it waits for, if the store cannot be used now; why it failed

    @property
    def ended(self) -> int:
        """Rows that are done with, one way or another: of `total`, for a progress bar."""
        return self.accepted - self.waiting + self.skipped + self.bad + self.repeated
