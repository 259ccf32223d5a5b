"""Changes that can be undone for a while, in SQL: any process that claims one in time makes it."""

from collections.abc import Callable
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, RowMapping, and_, delete, func, insert, select, update

from tidegate.database.database import Database
from tidegate.database.schema import pending_actions as table
from tidegate.model import BotId, ChatId, Record, State, TicketId
from tidegate.outbox.transitions import DEAD_LETTER_STATES

MOST_LISTED: Final = 100


class LetterChoice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Dead letters, by their ids or by a filter, that ended at a time or before it."""

    ended_by: float
    ids: tuple[TicketId, ...] | None = None
    bot: BotId | None = None
    chat_id: ChatId | None = None
    reason: str | None = None
    state: State = State.DEAD  # of those by a filter
    limit: int | None = None

    def covers(self, record: Record) -> bool:
        """Return whether a message is among them."""
        ended_at = record.settled_at or record.created_at
        if record.state not in DEAD_LETTER_STATES or ended_at > self.ended_by:
            return False
        message = record.message
        if self.ids is not None:
            return message.id in self.ids
        wanted = ((self.bot, message.bot), (self.chat_id, message.chat_id), (self.reason, record.reason))
        return record.state is self.state and all(one in {None, other} for one, other in wanted)


class NewPendingAction(msgspec.Struct, frozen=True, kw_only=True):
    """An action for the time `due_at`, and who asked for it. Times are seconds since the Unix epoch."""

    action: str  # replay or drop
    choice: LetterChoice
    selected: int  # letters, when it was asked for
    principal: str
    token_id: int | None
    asked_at: float
    due_at: float


class PendingAction(NewPendingAction, frozen=True, kw_only=True):
    """A stored one. `token` is that of its lease; while it is 0, nothing was changed."""

    id: int
    done: int = 0
    token: int = 0

    @property
    def is_begun(self) -> bool:
        return self.token > 0


class SqlPendingActions:
    """One row for each until it has ended. Raises StoreAwayError while the database cannot be reached."""

    def __init__(self, database: Callable[[], Database]) -> None:
        self._find_database = database

    async def _opened(self) -> Database:
        database = self._find_database()
        await database.open()
        return database

    async def add(self, new: NewPendingAction) -> PendingAction:
        """Store it: from now on it is done, unless it is undone."""
        fields = {name: getattr(new, name) for name in NewPendingAction.__struct_fields__ if name != "choice"}
        row = fields | {
            "selection": msgspec.json.encode(new.choice).decode(),
            "bot": new.choice.bot,
            "done": 0,
            "token": 0,
        }
        async with (await self._opened()).write() as transaction:
            added = await transaction.scalar(insert(table).values(row).returning(table.c.id))
        return PendingAction(id=added, **msgspec.structs.asdict(new))

    async def find(self, action_id: int) -> PendingAction | None:
        async with (await self._opened()).read(latest=True) as transaction:
            rows = await transaction.rows(select(table).where(table.c.id == action_id))
        return _decode(rows[0]) if rows else None

    async def list(self, bot: BotId | None = None) -> list[PendingAction]:
        """Return what has not ended, the first to be done first; of one bot, or all."""
        query = select(table).order_by(table.c.due_at, table.c.id).limit(MOST_LISTED)
        async with (await self._opened()).read(latest=True) as transaction:
            rows = await transaction.rows(query if bot is None else query.where(table.c.bot == bot))
        return [_decode(row) for row in rows]

    async def undo(self, action_id: int) -> bool:
        """Forget one that was not begun; return whether it was there. Never both this and `claim`."""
        async with (await self._opened()).write() as transaction:
            undo = delete(table).where(table.c.id == action_id, table.c.token == 0)
            return (await transaction.execute(undo)).rowcount == 1

    async def claim(self, now: float, lease: float) -> PendingAction | None:
        """Take the first that is due, for `lease` seconds; of several processes that claim, one gets it."""
        due = select(table.c.id).where(table.c.due_at <= now).order_by(table.c.due_at, table.c.id).limit(1)
        async with (await self._opened()).write() as transaction:
            claimed = await transaction.rows(
                update(table)
                .where(table.c.id == due.with_for_update(skip_locked=True).scalar_subquery())
                .values(token=table.c.token + 1, due_at=now + lease)
                .returning(*table.c)
            )
        return _decode(claimed[0]) if claimed else None

    async def extend(self, action: PendingAction, done: int, until: float) -> bool:
        """Note how many letters were changed, and keep the lease; return whether it is still held."""
        async with (await self._opened()).write() as transaction:
            note = update(table).where(_is_held(action)).values(done=done, due_at=until)
            return (await transaction.execute(note)).rowcount == 1

    async def finish(self, action: PendingAction) -> bool:
        """It is done: forget it; return whether the lease was still held."""
        async with (await self._opened()).write() as transaction:
            return (await transaction.execute(delete(table).where(_is_held(action)))).rowcount == 1

    async def next_due(self) -> float | None:
        """Return when the next one is due, or its lease ends; None if there is none."""
        async with (await self._opened()).read(latest=True) as transaction:
            due: float | None = await transaction.scalar(select(func.min(table.c.due_at)))
        return due


def _is_held(action: PendingAction) -> ColumnElement[bool]:
    return and_(table.c.id == action.id, table.c.token == action.token)


def _decode(row: RowMapping) -> PendingAction:
    names = PendingAction.__struct_fields__
    known = {name: value for name, value in row.items() if name in names}
    return PendingAction(**known, choice=msgspec.json.decode(row["selection"], type=LetterChoice))
