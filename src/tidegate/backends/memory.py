"""For tests and bots that may forget."""

from tidegate.backends.base import Backend, Terms
from tidegate.inbound.inbox.memory import MemoryInbox
from tidegate.inbound.throttle.memory import MemoryBuckets
from tidegate.inbound.throttle.rules import ThrottleRules
from tidegate.outbox.memory import MemoryOutbox


class MemoryBackend(Backend):
    follows_bots = False

    def __init__(self, terms: Terms) -> None:
        self._clock = terms.clock
        self.outbox = MemoryOutbox(terms.clock, terms.rules, on_end=terms.on_end)
        self.shelf = None
        self.inbox = MemoryInbox(terms.clock)

    def buckets(self, rules: ThrottleRules) -> MemoryBuckets:
        return MemoryBuckets(rules, self._clock)

    async def risks(self) -> list[str]:
        return []  # what is lost is said when it is closed
