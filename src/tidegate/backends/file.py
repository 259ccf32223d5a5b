"""For one machine: everything is in one file."""

from pathlib import Path

from tidegate.backends.base import Backend, Terms
from tidegate.inbound.inbox.sqlite import SqliteInbox
from tidegate.inbound.throttle.memory import MemoryBuckets
from tidegate.inbound.throttle.rules import ThrottleRules
from tidegate.keys import Keys
from tidegate.model import Rate
from tidegate.outbox.sqlite.bots import BotShelf
from tidegate.outbox.sqlite.store import SqliteOutbox
from tidegate.polling.store.sqlite import SqliteSubscriptions
from tidegate.upstream.limiter.memory import MemoryLimiter


class FileBackend(Backend):
    """One process sends and handles updates, so what is counted can be in its memory."""

    follows_bots = False  # the outbox tells of them

    def __init__(self, path: Path, terms: Terms) -> None:
        self._clock = terms.clock
        self.outbox = SqliteOutbox(path, terms.clock, terms.rules, on_end=terms.on_end, on_bots=terms.on_bots)
        self.shelf = BotShelf(self.outbox.file, Keys.of(terms.settings.tidegate_key, path))
        self.inbox = SqliteInbox(self.outbox.file, terms.clock)

    def buckets(self, rules: ThrottleRules) -> MemoryBuckets:
        return MemoryBuckets(rules, self._clock)

    def subscriptions(self, name: str) -> SqliteSubscriptions:
        return SqliteSubscriptions(self.outbox.file, self._clock, name)

    def limiter(self, name: str, rate: Rate) -> MemoryLimiter:  # noqa: ARG002  (no other process shares it)
        return MemoryLimiter(rate, self._clock)

    async def risks(self) -> list[str]:
        return []
