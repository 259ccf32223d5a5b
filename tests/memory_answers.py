"""Answers to requests with an Idempotency-Key in memory, for tests in virtual time."""

from tidegate.database.idempotency import ABANDONED_AFTER, KEEP, OnceKey, StoredAnswer
from tidegate.errors import StoreAwayError


class MemoryAnswers:
    """`away`: the database cannot be reached."""

    def __init__(self) -> None:
        self._known: dict[OnceKey, tuple[float, StoredAnswer]] = {}
        self.away = False

    async def begin(self, key: OnceKey, fingerprint: bytes, now: float) -> StoredAnswer | None:
        self._reach()
        at, known = self._known.get(key, (now, None))
        lifetime = ABANDONED_AFTER if known is not None and known.status is None else KEEP
        if known is not None and now - at < lifetime:
            return known
        self._known[key] = now, StoredAnswer(fingerprint, None, None)
        return None

    async def finish(self, key: OnceKey, status: int, body: bytes | None) -> None:
        self._reach()
        at, known = self._known[key]
        self._known[key] = at, StoredAnswer(known.fingerprint, status, body)

    async def abandon(self, key: OnceKey) -> None:
        self._reach()
        del self._known[key]

    def _reach(self) -> None:
        if self.away:
            raise StoreAwayError("the database cannot be reached")
