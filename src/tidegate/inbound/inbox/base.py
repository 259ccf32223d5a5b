"""What every inbox does. One contract suite (tests/contract/inbox) runs on all of them."""

from collections.abc import Collection, Sequence
from typing import Final, Protocol

import msgspec

from tidegate.inbound.arrivals import Arrival, Held, Parked, Source

MOST: Final = 100_000  # arrivals that wait; then no more are accepted
REMEMBER: Final = 86_400.0  # seconds for which an arrival is known again: as long as Telegram sends it again
PARKED_AT_MOST: Final = 10_000  # of a source; then the oldest are forgotten


class InboxStats(msgspec.Struct, frozen=True):
    waiting: int  # accepted, and not given to anybody
    handling: int  # held, in any process
    parked: int


class Inbox(Protocol):
    """Raises StoreAwayError, StoreError as the outbox does; then nothing has changed."""

    async def open(self) -> None:
        """Ready to be used. What others held and died over can be claimed again, one crash more."""

    async def close(self) -> None: ...

    async def accept(self, arrivals: Sequence[Arrival]) -> list[bool]:
        """Durable when this returns. False for each that was accepted before, handled or not.

        All or none. Raises StoreFullError if more than MOST would wait.
        """
        ...

    async def claim(self, sources: Collection[Source], limit: int, *, suspects: int) -> list[Held]:
        """Give the first of each lane that is free to this process, those that came earliest first.

        A lane is free while none of its arrivals is held, and none of them waits for its next try. `suspects`
        of them at most have crashed SUSPECT times or more. Durable: if this process dies, it is counted.
        """
        ...

    async def wait(self) -> None:
        """Until there may be something new to claim: woken too early at times, never too late for long."""

    async def done(self, held: Sequence[Held]) -> None:
        """Handled: forgotten, except that it was there; its lane is free. Nothing for what is not held."""

    async def release(self, held: Held, *, after: float = 0.0, failed: bool = False) -> None:
        """Back to the head of its lane, to be claimed after so many seconds. `failed` counts an attempt."""

    async def park(self, held: Held, reason: str) -> None:
        """Given up, and kept; its lane goes on."""

    async def parked(self, source: Source | None = None, *, limit: int = 100) -> list[Parked]:
        """The newest first."""
        ...

    async def replay(self, source: Source, key: str) -> bool:
        """A parked one waits again, behind its lane, with a clean record; whether there was one."""
        ...

    async def drop(self, source: Source, key: str) -> bool:
        """A parked one is forgotten."""
        ...

    async def stats(self) -> InboxStats: ...

    async def lease(self, name: str, seconds: float) -> bool:
        """Take a name for this process alone, or hold it for longer; False while another process has it."""
        ...

    async def give_back(self, name: str) -> None:
        """A lease ends at once."""
