"""Rows of history for tests, and a store of them in memory, for tests in virtual time."""

import itertools
from collections.abc import Sequence
from typing import Any

from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreAwayError
from tidegate.history import (
    AttemptRow,
    ErasedRows,
    HistoryFilter,
    HistoryMessage,
    HistoryPage,
    HistoryRow,
    HistoryStats,
    HistoryStore,
    MessageAttempt,
    RecordedRow,
    ReplyChain,
)
from tidegate.model import BotId, ChatId, TicketId

BOT = BotId(42)
ANN = 1001
_numbers = itertools.count(1)


def row(**fields: Any) -> HistoryRow:  # noqa: ANN401  (those of a row)
    """Return a row of a delivered message, one second after the one before."""
    number = next(_numbers)
    usual: dict[str, Any] = {
        "key": f"key-{number}",
        "bot": BOT,
        "direction": "out",
        "chat_id": ANN,
        "telegram_message_id": None,
        "reply_to_message_id": None,
        "user_id": None,
        "kind": "sendMessage",
        "is_change": False,
        "text": None,
        "state": "delivered",
        "created_at": 1_000.0 + number,
    }
    made = usual | fields
    return HistoryRow(**made | {"chat_id": str(made["chat_id"])})


def attempt(**fields: Any) -> AttemptRow:  # noqa: ANN401  (those of a row)
    """Return a row of an attempt that was refused, one second after the one before."""
    number = next(_numbers)
    usual: dict[str, Any] = {
        "key": f"attempt-{number}",
        "ticket": "ab-1",
        "bot": BOT,
        "chat_id": str(ANN),
        "number": 1,
        "at": 1_000.0 + number,
        "seconds": 0.25,
        "outcome": "refused",
        "wait": 3.0,
    }
    return AttemptRow(**usual | fields)


class FakeHistory(HistoryStore):
    """Takes rows, once each; can be away, slow, or lose its answers, and cannot keep some texts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.rows: dict[str, HistoryRow] = {}
        self.attempts_of: dict[str, AttemptRow] = {}  # by key
        self.batches: list[int] = []
        self.is_away = False
        self.loses_answers = False
        self.seconds = 0.0  # that a write takes
        self.purged_before: list[float] = []

    async def open(self) -> None:
        self._check()

    async def close(self) -> None:
        pass

    async def write(self, rows: Sequence[RecordedRow]) -> None:
        self._check()
        if self.seconds:
            await self._clock.sleep(self.seconds)
        if any("poison" in (_said(row) or "") for row in rows):
            raise BadInputError("the database cannot keep one of the values")
        self.batches.append(len(rows))
        for row in rows:
            if isinstance(row, AttemptRow):
                self.attempts_of.setdefault(row.key, row)
            else:
                self.rows.setdefault(row.key, row)
        if self.loses_answers:
            raise StoreAwayError("the answer was lost")

    async def purge(self, before: float, limit: int) -> int:  # noqa: ARG002  (the port's)
        self._check()
        self.purged_before.append(before)
        return 0

    def texts(self) -> list[str | None]:
        return [row.text for row in self.rows.values()]

    def _check(self) -> None:
        if self.is_away:
            raise StoreAwayError("the database cannot be reached")

    async def page(self, wanted: HistoryFilter, limit: int, cursor: str | None = None) -> HistoryPage:
        raise NotImplementedError

    async def find(self, chat_id: ChatId, message_id: int, bot: BotId | None = None) -> list[HistoryMessage]:
        raise NotImplementedError

    async def find_ticket(self, ticket: TicketId) -> list[HistoryMessage]:
        raise NotImplementedError

    async def attempts(self, ticket: TicketId, limit: int) -> list[MessageAttempt]:
        raise NotImplementedError

    async def chain(
        self, chat_id: ChatId, message_id: int, bot: BotId | None, depth: int
    ) -> ReplyChain | None:
        raise NotImplementedError

    async def stats(self) -> HistoryStats:
        raise NotImplementedError

    async def erase(self, chat_id: ChatId, bot: BotId | None = None) -> ErasedRows:
        raise NotImplementedError

    async def rewrite(self) -> None:
        raise NotImplementedError


def _said(row: RecordedRow) -> str | None:
    return row.description if isinstance(row, AttemptRow) else row.text
