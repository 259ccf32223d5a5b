"""The inbox port: updates and signed events are stored before they are acknowledged."""

from collections.abc import Collection, Sequence
from typing import Final, NewType, Protocol

import msgspec

from tidegate.errors import BadInputError, StoreFullError
from tidegate.leader_lease import LeaseStore

InboxSource = NewType("InboxSource", str)  # the sender: bot_source(42), hook_source("payments")

SUSPECT_CRASHES: Final = 2  # crashes after which an item is handled with no other suspect beside it
MAX_WAITING_ITEMS: Final = 100_000  # of one source; then no more of it are accepted
DEDUP_SECONDS: Final = 86_400.0  # an item is recognised for as long as Telegram repeats an update
MAX_PARKED_PER_SOURCE: Final = 10_000  # then the oldest are dropped
UNREADABLE: Final = "unreadable"  # how the reason of an item begins whose bytes cannot be decoded


def bot_source(bot: int) -> InboxSource:
    return InboxSource(f"bot:{bot}")


def bot_of(source: InboxSource) -> int | None:
    """Return the bot of a source; None if it is a hook."""
    kind, _, number = source.partition(":")
    return int(number) if kind == "bot" else None


def hook_source(name: str) -> InboxSource:
    return InboxSource(f"hook:{name}")


class InboxItem(msgspec.Struct, frozen=True):
    """An update or a signed event. `key`, unique in its source, is the update_id or the id of the event.

    The items of one `lane` of a source are handled one at a time, in the order of arrival.
    """

    source: InboxSource
    key: str
    lane: str
    body: bytes


class ClaimedItem(msgspec.Struct, frozen=True):
    """An item that this process has claimed: no other process has it until it is settled."""

    id: str  # in the inbox
    item: InboxItem
    arrived_at: float
    attempts: int = 0  # failed ones before this
    crashes: int = 0  # processes that died while they had it

    @property
    def is_suspect(self) -> bool:
        return self.crashes >= SUSPECT_CRASHES


def full_error(items: Sequence[InboxItem]) -> StoreFullError:
    sources = sorted({one.source.replace(":", " ", 1) for one in items})
    return StoreFullError(
        f"{MAX_WAITING_ITEMS} updates of {' or '.join(sources)} wait to be handled: handle them faster, or"
        " drop them"
    )


class ParkedItem(msgspec.Struct, frozen=True):
    """An item that is not tried again, kept until an operator replays or drops it."""

    item: InboxItem
    arrived_at: float
    parked_at: float
    reason: str

    @property
    def is_unreadable(self) -> bool:
        """Its bytes are kept, to be looked at; it cannot be handled."""
        return self.reason.startswith(UNREADABLE)


class UnreadableBodyError(ValueError):
    """Raised by a handler for a body that cannot be decoded: the item is parked at once."""


def check_replayable(parked: ParkedItem) -> None:
    """Raises BadInputError."""
    if parked.is_unreadable:
        what = f"{parked.item.key} of {parked.item.source.replace(':', ' ', 1)}"
        raise BadInputError(f"{what} cannot be read, so it cannot be handled: look at it, then drop it")


class InboxStats(msgspec.Struct, frozen=True):
    waiting: int  # accepted and not claimed
    handling: int  # claimed, by any process
    parked: int


class Inbox(Protocol):
    """One contract suite (tests/contract/inbox) runs on every inbox.

    Raises StoreAwayError and StoreError as the outbox does; then nothing has changed.
    """

    leases: LeaseStore  # of the process that fetches the updates of a bot

    async def open(self) -> None:
        """Make it ready. Items claimed by processes that died can be claimed again, with one crash more."""

    async def close(self) -> None: ...

    async def accept(self, items: Sequence[InboxItem]) -> list[bool]:
        """Durable when this returns. False for each item that was accepted before, handled or not.

        All or none. Raises StoreFullError if more than MAX_WAITING_ITEMS of a source would wait: a flood to
        one bot takes no room of another.
        """
        ...

    async def claim(
        self, sources: Collection[InboxSource], limit: int, *, suspects: int
    ) -> list[ClaimedItem]:
        """Claim the first item of each free lane, those that arrived earliest first.

        A lane is free while none of its items is claimed and none waits for its next attempt. At most
        `suspects` of them have crashed SUSPECT_CRASHES times or more. Durable: a crash of this process is
        counted. A stored item that cannot be decoded is parked as UNREADABLE, and its lane goes on.
        """
        ...

    async def wait(self) -> None:
        """Wait until there may be something new to claim. It may return too early, never much too late."""

    async def done(self, claimed: Sequence[ClaimedItem]) -> None:
        """Settle handled items: their keys stay known, their lanes are free. Ignores what is not claimed."""

    async def release(self, claimed: ClaimedItem, *, after: float = 0.0, failed: bool = False) -> None:
        """Put it back at the head of its lane, to be claimed `after` seconds. `failed` counts an attempt."""

    async def park(self, claimed: ClaimedItem, reason: str) -> None:
        """Set it aside, and free its lane."""

    async def parked(self, source: InboxSource | None = None, *, limit: int = 100) -> list[ParkedItem]:
        """The newest first."""
        ...

    async def replay(self, source: InboxSource, key: str) -> bool:
        """Queue a parked item again, at the end of its lane, with no attempts. False if there is none.

        Raises BadInputError, and changes nothing, if it cannot be read.
        """
        ...

    async def drop(self, source: InboxSource, key: str) -> bool:
        """Delete a parked item. False if there is none."""
        ...

    async def waiting(self, source: InboxSource) -> int:
        """Return how many items of one source wait."""
        ...

    async def lane_length(self, item: InboxItem) -> int:
        """Return how many items of its lane wait or are being handled."""
        ...

    async def stats(self) -> InboxStats: ...
