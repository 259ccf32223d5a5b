"""Stored audiences in memory, for tests in virtual time. The contract of their stores holds for it, too."""

from collections.abc import Sequence

from msgspec.structs import replace

from tidegate.broadcast.stored_audience import (
    AudienceRecord,
    AudienceRow,
    AudienceState,
    AudienceStore,
    AudienceTerms,
)
from tidegate.clock import Clock
from tidegate.errors import StoreAwayError, StoreError
from tidegate.model import BotId


class MemoryAudiences(AudienceStore):
    """`away`: the database cannot be reached. It outlives the gates that open it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: dict[int, AudienceRecord] = {}
        self._rows: dict[int, dict[str, AudienceRow]] = {}  # by chat
        self._last_id = 0
        self.away = False
        self.rewritten = 0

    async def open(self) -> None:
        self._check()

    async def close(self) -> None:
        pass

    async def add(self, terms: AudienceTerms) -> int:
        self._check()
        self._last_id += 1
        self._rows[self._last_id] = {}
        self._records[self._last_id] = AudienceRecord(
            id=self._last_id, terms=terms, state="loading", changed_at=self._clock.now()
        )
        return self._last_id

    async def append(self, audience: int, rows: Sequence[AudienceRow]) -> set[str]:
        self._check()
        if audience not in self._records:
            raise StoreError("the rows of this audience took too long to arrive, and were removed")
        kept = self._rows[audience]
        known = {row.chat for row in rows} & kept.keys()
        kept.update({row.chat: row for row in rows if row.chat not in known})
        self._set(audience, "loading")
        return known

    async def complete(self, audience: int, rows: int, digest: str) -> AudienceRecord:
        self._check()
        own = self._records[audience]
        for other in self._records.values():
            same = (other.terms.bot, other.terms.name) == (own.terms.bot, own.terms.name)
            if same and other.state in {"ready", "begun"}:
                return other
        self._records[audience] = replace(own, rows=rows, digest=digest)
        self._set(audience, "ready")
        return self._records[audience]

    async def begin(self, audience: int) -> None:
        self._set(audience, "begun")

    async def end(self, audience: int) -> None:
        self._set(audience, "ended")

    def _set(self, audience: int, state: AudienceState) -> None:
        self._check()
        if audience in self._records:
            record = self._records[audience]
            self._records[audience] = replace(record, state=state, changed_at=self._clock.now())

    async def find(self, audience: int) -> AudienceRecord | None:
        self._check()
        return self._records.get(audience)

    async def all(self) -> list[AudienceRecord]:
        self._check()
        return list(self._records.values())

    async def page(self, audience: int, after: int, limit: int) -> list[AudienceRow]:
        self._check()
        rows = sorted(row for row in self._rows.get(audience, {}).values() if row.number > after)
        return rows[:limit]

    async def remove(self, audience: int, limit: int) -> bool:
        self._check()
        rows = self._rows.get(audience, {})
        for row in sorted(rows.values())[:limit]:
            del rows[row.chat]
        if not rows:
            self._rows.pop(audience, None)
            self._records.pop(audience, None)
        return not rows

    async def count(self, chat: str, bot: BotId | None) -> int:
        return len(self._with(chat, bot))

    async def forget(self, chat: str, bot: BotId | None) -> int:
        found = self._with(chat, bot)
        for rows in found:
            del rows[chat]
        return len(found)

    async def rewrite(self) -> None:
        self.rewritten += 1

    def _with(self, chat: str, bot: BotId | None) -> list[dict[str, AudienceRow]]:
        self._check()
        wanted = [one.id for one in self._records.values() if bot is None or one.terms.bot == bot]
        return [self._rows[number] for number in wanted if chat in self._rows[number]]

    def _check(self) -> None:
        if self.away:
            raise StoreAwayError("the database is away")
