"""History in memory, for tests in virtual time."""

from collections.abc import Sequence

import msgspec

from tidegate.errors import BadInputError
from tidegate.history import (
    AttemptOutcome,
    AttemptRow,
    ErasedRows,
    HistoryFilter,
    HistoryMessage,
    HistoryPage,
    HistoryState,
    HistoryStats,
    HistoryStore,
    MessageAttempt,
    RecordedRow,
    ReplyChain,
)
from tidegate.model import BotId, ChatId, TicketId


class MemoryHistory(HistoryStore):
    """Rows in the order in which they were written."""

    def __init__(self) -> None:
        self._messages: list[HistoryMessage] = []
        self._attempts: dict[str, MessageAttempt] = {}

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def write(self, rows: Sequence[RecordedRow]) -> None:
        for row in rows:
            fields = msgspec.structs.asdict(row)
            del fields["key"]
            if isinstance(row, AttemptRow):
                made = {"ticket": TicketId(row.ticket), "bot": BotId(row.bot), "chat_id": _chat(row.chat_id)}
                attempt = MessageAttempt(**fields | made | {"outcome": AttemptOutcome(row.outcome)})
                self._attempts.setdefault(row.key, attempt)
                continue
            made = {"bot": BotId(row.bot), "chat_id": _chat(row.chat_id), "state": HistoryState(row.state)}
            number = len(self._messages) + 1
            self._messages.append(HistoryMessage(id=number, **fields | made))

    async def page(self, wanted: HistoryFilter, limit: int, cursor: str | None = None) -> HistoryPage:
        if cursor is not None and not cursor.isdecimal():
            raise BadInputError("this is no cursor")
        found = [one for one in reversed(self._messages) if _fits(one, wanted)]
        start = int(cursor or 0)
        more = str(start + limit) if len(found) > start + limit else None
        return HistoryPage(found[start : start + limit], more)

    async def find(self, chat_id: ChatId, message_id: int, bot: BotId | None = None) -> list[HistoryMessage]:
        return [
            one
            for one in self._messages
            if (one.chat_id, one.telegram_message_id) == (chat_id, message_id) and bot in {None, one.bot}
        ]

    async def find_ticket(self, ticket: TicketId) -> list[HistoryMessage]:
        return [one for one in self._messages if one.ticket == ticket]

    async def attempts(self, ticket: TicketId, limit: int) -> list[MessageAttempt]:
        found = [one for one in self._attempts.values() if one.ticket == ticket]
        return sorted(found, key=lambda one: (one.at, one.number))[-limit:]

    async def chain(
        self, chat_id: ChatId, message_id: int, bot: BotId | None, depth: int
    ) -> ReplyChain | None:
        found = await self.find(chat_id, message_id, bot)
        if not found:
            return None
        above: list[HistoryMessage] = []
        last = found[0]
        while last.reply_to_message_id is not None and len(above) < depth:
            [last, *_] = await self.find(chat_id, last.reply_to_message_id, found[0].bot)
            above.insert(0, last)
        replies = [
            one for one in self._messages if (one.chat_id, one.reply_to_message_id) == (chat_id, message_id)
        ]
        return ReplyChain(message=found[0], above=above, replies=replies[:depth])

    async def stats(self) -> HistoryStats:
        return HistoryStats(messages=len(self._messages), oldest=None, newest=None, size=None)

    async def erase(self, chat_id: ChatId, bot: BotId | None = None) -> ErasedRows:
        def stays(one: HistoryMessage | MessageAttempt) -> bool:
            return one.chat_id != chat_id or bot not in {None, one.bot}

        before = len(self._messages), len(self._attempts)
        self._messages = [one for one in self._messages if stays(one)]
        self._attempts = {key: one for key, one in self._attempts.items() if stays(one)}
        return ErasedRows(before[0] - len(self._messages), before[1] - len(self._attempts))

    async def purge(self, before: float, limit: int) -> int:
        messages = [one for one in self._messages if max(one.created_at, one.ended_at or 0.0) < before][
            :limit
        ]
        old = [key for key, one in self._attempts.items() if one.at < before][:limit]
        self._messages = [one for one in self._messages if one not in messages]
        for key in old:
            del self._attempts[key]
        return len(messages) + len(old)

    async def rewrite(self) -> None:
        pass


def _chat(text: str) -> ChatId:
    return text if text.startswith("@") else int(text)


def _fits(one: HistoryMessage, wanted: HistoryFilter) -> bool:
    return (
        wanted.bot in {None, one.bot}
        and wanted.chat_id in {None, one.chat_id}
        and wanted.direction in {None, one.direction}
        and (not wanted.states or one.state in wanted.states)
        and (wanted.since is None or one.created_at >= wanted.since)
        and (wanted.until is None or one.created_at < wanted.until)
        and all(word.rstrip("*").lower() in (one.text or "").lower() for word in wanted.words)
    )
