"""For tests and bots that may forget."""

from tidegate.backends.base import Backend, Terms
from tidegate.inbound.inbox.memory import MemoryInbox
from tidegate.inbound.throttle.memory import MemoryBuckets
from tidegate.inbound.throttle.rules import ThrottleRules
from tidegate.model import Rate
from tidegate.outbox.memory import MemoryOutbox
from tidegate.polling.store.memory import MemorySubscriptions
from tidegate.upstream.limiter.memory import MemoryLimiter


class MemoryBackend(Backend):
    follows_bots = False

    def __init__(self, terms: Terms) -> None:
        self._clock = terms.clock
        self.outbox = MemoryOutbox(terms.clock, terms.rules, on_end=terms.on_end)
        self.shelf = None
        self.inbox = MemoryInbox(terms.clock)

    def buckets(self, rules: ThrottleRules) -> MemoryBuckets:
        return MemoryBuckets(rules, self._clock)

    def subscriptions(self, name: str) -> MemorySubscriptions:
        return MemorySubscriptions(self._clock, name)

    def limiter(self, name: str, rate: Rate) -> MemoryLimiter:  # noqa: ARG002  (no other process shares it)
        return MemoryLimiter(rate, self._clock)

    async def risks(self) -> list[str]:
        return []  # what is lost is said when it is closed
