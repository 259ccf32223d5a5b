"""The port of reminders: what the scheduler and `gate.reminders` need of a store."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from tidegate.model import BotId, ChatId
from tidegate.reminders.reminder import NewReminder, Reminder

ADD_AT_ONCE = 1_000  # reminders of one `add`


class Shard(NamedTuple):
    """The reminders of users whose id modulo `of` is `number`: 0 … of - 1."""

    number: int
    of: int


class Addition(NamedTuple):
    reminder: Reminder
    replaced: Reminder | None = None  # that had the same key: what is queued of it has to be cancelled

    @property
    def is_unchanged(self) -> bool:
        return self.reminder is self.replaced


class ReminderCounts(NamedTuple):
    active: int
    paused: int
    ended: int
    due: int  # of the active ones, now


class DueBatch(Protocol):
    """Due reminders, held by this process until the batch is closed."""

    reminders: Sequence[Reminder]

    async def advance(self, reminders: Sequence[Reminder]) -> None:
        """Replace them by their state after firing, in the transaction that claimed them."""


# The state of a reminder that is added under an id; the last is the one that has the same key, if any.
FirstState = Callable[[NewReminder, int, Reminder | None], Reminder]


class ReminderStore(Protocol):
    """Reminders in order of `(next_at, id)`. Raises StoreAwayError while the database cannot be reached."""

    async def open(self) -> None:
        """Connect, and bring the schema up to date. Raises StoreError that says what stands in the way."""

    async def close(self) -> None: ...

    async def add(self, reminders: Sequence[NewReminder], first: FirstState) -> list[Addition]:
        """Store reminders, all or none, at most ADD_AT_ONCE. `first(new, id, old)` gives each its state.

        A key that its bot has is replaced, and keeps its id; if `first` returns the old one, it is left as
        it is.
        """
        ...

    async def get(self, ids: Iterable[int]) -> list[Reminder]: ...

    async def find(
        self,
        *,
        bot: BotId | None = None,
        user_id: int | None = None,
        chat_id: ChatId | None = None,
        key: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[Reminder]:
        """Return reminders by id, from the one after `after` on.

        A list that names neither user, chat nor key is read from the replica, if there is one: it may lag.
        """
        ...

    async def upcoming(self, *, bot: BotId | None = None, limit: int = 100) -> list[Reminder]:
        """Return the active reminders that are due next."""
        ...

    async def change(self, reminder_id: int, change: Callable[[Reminder], Reminder]) -> Reminder | None:
        """Change one in a transaction of its own; return it as it is now, None if there is none."""
        ...

    async def remove(self, ids: Iterable[int]) -> list[Reminder]:
        """Delete reminders; return those that were there."""
        ...

    async def rewrite(self) -> None:
        """Leave no byte of what was removed in a file. Raises StoreError if that fails."""

    def claim_due(
        self, before: float, limit: int, shard: Shard | None = None
    ) -> AbstractAsyncContextManager[DueBatch]:
        """Hold active reminders without a handler that are due before `before`, the earliest first.

        Others that claim at the same time get other ones, or wait. If the body raises, nothing has changed.
        The body must not await another verb that writes: most stores have one writer at a time.
        """
        ...

    async def lease_handled(
        self, handlers: Iterable[str], before: float, seconds: float, limit: int
    ) -> list[Reminder]:
        """Lease due reminders of these handlers for so long: nobody else gets them meanwhile."""
        ...

    async def next_due(self, handlers: Iterable[str] = (), shard: Shard | None = None) -> float | None:
        """Return when the next active reminder is due that `claim_due` or `lease_handled` would give."""
        ...

    async def counts(self, now: float) -> ReminderCounts: ...

    async def due_counts(self, start: float, step: float, steps: int, bot: BotId | None = None) -> list[int]:
        """Return how many active reminders are due in each of so many steps of time from `start` on.

        Each counts once, with its next time. Read from the replica, if there is one: it may lag.
        """
        ...
