"""The inbox port: updates and signed events are stored before they are acknowledged."""

from collections.abc import Collection, Sequence
from typing import Final, NewType, Protocol

import msgspec

from tidegate.leader_lease import LeaseStore

InboxSource = NewType("InboxSource", str)  # who sent it: bot_source(42), hook_source("payments")

SUSPECT_CRASHES: Final = 2  # crashes after which an arrival is handled with no other suspect beside it


def bot_source(bot: int) -> InboxSource:
    return InboxSource(f"bot:{bot}")


def hook_source(name: str) -> InboxSource:
    return InboxSource(f"hook:{name}")


class InboxItem(msgspec.Struct, frozen=True):
    """`key` tells it from everything else of its source: an update_id, the id of an event.

    Those of one `lane` of a source are handled one at a time, in the order in which they came.
    """

    source: InboxSource
    key: str
    lane: str
    body: bytes


class ClaimedItem(msgspec.Struct, frozen=True):
    """An arrival that was given to this process to handle; nobody else has it as long as it is held."""

    id: str  # in the inbox
    arrival: InboxItem
    arrived_at: float
    attempts: int = 0  # that failed before this one
    crashes: int = 0  # how often whoever held it has died

    @property
    def is_suspect(self) -> bool:
        return self.crashes >= SUSPECT_CRASHES


class ParkedItem(msgspec.Struct, frozen=True):
    """One that was given up, kept until somebody decides."""

    arrival: InboxItem
    arrived_at: float
    parked_at: float
    reason: str


MAX_WAITING_ITEMS: Final = 100_000  # arrivals that wait; then no more are accepted
DEDUP_SECONDS: Final = (
    86_400.0  # seconds for which an arrival is known again: as long as Telegram sends it again
)
MAX_PARKED_PER_SOURCE: Final = 10_000  # of a source; then the oldest are forgotten


class InboxStats(msgspec.Struct, frozen=True):
    waiting: int  # accepted, and not given to anybody
    handling: int  # held, in any process
    parked: int


class Inbox(Protocol):
    """Raises StoreAwayError, StoreError as the outbox does; then nothing has changed."""

    leases: LeaseStore  # of the process that fetches the updates of a bot

    async def open(self) -> None:
        """Ready to be used. What others held and died over can be claimed again, one crash more."""

    async def close(self) -> None: ...

    async def accept(self, arrivals: Sequence[InboxItem]) -> list[bool]:
        """Durable when this returns. False for each that was accepted before, handled or not.

        All or none. Raises StoreFullError if more than MOST would wait.
        """
        ...

    async def claim(
        self, sources: Collection[InboxSource], limit: int, *, suspects: int
    ) -> list[ClaimedItem]:
        """Give the first of each lane that is free to this process, those that came earliest first.

        A lane is free while none of its arrivals is held, and none of them waits for its next try. `suspects`
        of them at most have crashed SUSPECT times or more. Durable: if this process dies, it is counted.
        """
        ...

    async def wait(self) -> None:
        """Until there may be something new to claim: woken too early at times, never too late for long."""

    async def done(self, held: Sequence[ClaimedItem]) -> None:
        """Handled: forgotten, except that it was there; its lane is free. Nothing for what is not held."""

    async def release(self, held: ClaimedItem, *, after: float = 0.0, failed: bool = False) -> None:
        """Back to the head of its lane, to be claimed after so many seconds. `failed` counts an attempt."""

    async def park(self, held: ClaimedItem, reason: str) -> None:
        """Given up, and kept; its lane goes on."""

    async def parked(self, source: InboxSource | None = None, *, limit: int = 100) -> list[ParkedItem]:
        """The newest first."""
        ...

    async def replay(self, source: InboxSource, key: str) -> bool:
        """A parked one waits again, behind its lane, with a clean record; whether there was one."""
        ...

    async def drop(self, source: InboxSource, key: str) -> bool:
        """A parked one is forgotten."""
        ...

    async def stats(self) -> InboxStats: ...
