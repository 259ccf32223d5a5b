"""The messages of a broadcast that wait in the outbox: each is followed to its end and counted."""

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from tidegate.broadcast.progress import BadRow, EndRate
from tidegate.broadcast.template import Row
from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreError, TidegateError
from tidegate.model import ChatId, Record, State, TicketId
from tidegate.outbox.port import Outbox
from tidegate.outbox.tickets import LiveTicket

log = logging.getLogger("tidegate.broadcast")

OnDead = Callable[[Row, str], Awaitable[None]]
ON_DEAD_AT_ONCE: Final = 20

# Why a message is dead where the person, or the group, wants none or is gone. For what is wrong with the
# message itself, or with the bot, nobody must be marked: it would be everybody.
GONE_REASONS: Final = frozenset(("blocked", "deactivated", "kicked", "not_found"))


class GoneNotifier:
    """A hook that fails or is slow stops nothing: failures are counted, and told once."""

    def __init__(self, on_dead: OnDead | None, name: str) -> None:
        if on_dead is not None and not inspect.iscoroutinefunction(on_dead):
            raise BadInputError("on_dead must be an async function: async def on_dead(row, reason)")
        self._on_dead = on_dead
        self._name = name
        self._free = asyncio.Semaphore(ON_DEAD_AT_ONCE)
        self.failed = 0

    async def tell(self, row: Row, reason: str | None) -> None:
        if self._on_dead is None or reason not in GONE_REASONS:
            return
        async with self._free:
            try:
                await self._on_dead(row, reason)
            except Exception:
                self.failed += 1
                if self.failed == 1:
                    log.exception(
                        "broadcast %s: on_dead failed for chat %s. Further failures are counted in progress",
                        self._name,
                        row.get("chat_id"),
                    )


COUNTED: Final = (
    *("read", "accepted", "earlier", "skipped", "bad", "repeated"),
    *("waiting", "delivered", "dead", "parked", "expired", "cancelled", "forgotten"),
)
BAD_ROWS_KEPT: Final = 20  # bad rows that are kept
FAILURES_BEFORE_GIVING_UP: Final = (
    100  # with not a single success: it is not the fault of those rows or people
)


class Tally:
    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self.started_at = clock.now()
        self.pace = EndRate(clock)
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.bad_rows: list[BadRow] = []
        self._reached = False
        self._failures: Counter[str] = Counter()  # of those that were put now, until one is reached

    def __getitem__(self, name: str) -> int:
        return self.counts[name]

    # --- rows ---

    def read(self) -> int:
        """The number of the row."""
        self.counts["read"] += 1
        return self.counts["read"]

    def skip(self) -> None:
        self.counts["skipped"] += 1

    def bad(self, row: int, chat_id: ChatId | None, error: Exception) -> None:
        reason = str(error) if isinstance(error, TidegateError) else f"{type(error).__name__}: {error}"
        self.counts["bad"] += 1
        if len(self.bad_rows) < BAD_ROWS_KEPT:
            self.bad_rows.append(BadRow(row, chat_id, reason))
        if self.counts["bad"] == 1:
            ours = isinstance(
                error, TidegateError
            )  # else it is a function's, who wrote it wants to see where
            log.warning(
                "broadcast %s: row %s is left out: %s. Further ones are counted in its progress",
                self._name,
                row,
                reason,
                exc_info=None if ours else error,
            )

    @property
    def found_one(self) -> bool:
        """Whether there was a row that could be sent, or need not be."""
        return bool(self.counts["accepted"] or self.counts["skipped"])

    def check_rows(self, *, all_read: bool) -> None:
        """Raises BadInputError if every row so far is bad."""
        bad = self.counts["bad"]
        if bad and not self.found_one and (bad >= FAILURES_BEFORE_GIVING_UP or all_read):
            first = self.bad_rows[0]
            which = "the only row" if bad == 1 else f"all of the first {bad} rows"
            raise BadInputError(
                f"broadcast {self._name!r}: {which} cannot be sent, and nothing was sent."
                f" Row {first.row}: {first.reason}"
            )

    # --- messages ---

    def enter(self, *, fresh: bool) -> None:
        self.counts.update(accepted=1, waiting=1, earlier=0 if fresh else 1)

    def repeat(self) -> None:
        self.counts["repeated"] += 1

    def put_again(self) -> None:
        """An earlier call had taken it back, so it is this one's."""
        self.counts["earlier"] -= 1

    def leave_repeated(self) -> None:
        """It was put by this very call, and is counted there."""
        self.counts.subtract(("accepted", "waiting", "earlier"))
        self.repeat()

    def leave(self, record: Record | None, *, fresh: bool) -> None:
        """It has ended; None: the store has forgotten it since."""
        self.counts["waiting"] -= 1
        if record is None:
            self.counts["forgotten"] += 1
            return
        replaced = record.state == State.REPLACED
        self.counts[State.CANCELLED if replaced else record.state.value] += 1
        if record.state in {State.DEAD, State.PARKED} and record.reason:
            self.reasons[record.reason] += 1
        if fresh:
            self._judge(record)
        if (record.settled_at or 0.0) >= self.started_at:
            self.pace.count()

    def _judge(self, record: Record) -> None:
        if self._reached:
            return
        if record.state == State.DEAD and record.reason not in GONE_REASONS:
            self._failures[f"{record.reason} ({record.description})"] += 1
        else:
            self._reached = True
            self._failures.clear()

    def check_messages(self) -> None:
        """Raises TidegateError if the first messages have all died of what is nobody's own matter."""
        if self._failures.total() >= FAILURES_BEFORE_GIVING_UP:
            (why, _), many = self._failures.most_common(1)[0], self._failures.total()
            raise TidegateError(
                f"broadcast {self._name!r}: the first {many} messages have all died: {why}."
                " What waited was taken back. Mend that, drop the dead letters (tidegate dlq drop), and call"
                " it again: it goes to whoever did not get it"
            )

    def report(self) -> dict[str, Any]:
        counted: dict[str, Any] = {name: self.counts[name] for name in COUNTED}
        reasons = dict(self.reasons.most_common())
        return counted | {"reasons": reasons, "bad_rows": tuple(self.bad_rows), "started_at": self.started_at}


SETTLED_POLL_SECONDS: Final = 60.0  # seconds; nobody tells of a message that was erased from the store
STORE_RETRY_SECONDS: Final = 5.0  # seconds until the next look, while the store cannot be read
ON_DEAD_GRACE_SECONDS: Final = 10.0  # seconds to wait for on_dead when the gate closes


class BroadcastMessage(NamedTuple):
    """What one of the audience gets."""

    number: int  # of the row
    row: Row
    fields: dict[str, Any]
    copy: int = 1  # above 1 if those before it were taken back

    @property
    def chat_id(self) -> ChatId:
        chat: ChatId = self.fields["chat_id"]
        return chat

    @property
    def key(self) -> str:
        """An @name means the same chat in any case."""
        chat = str(self.chat_id).lower()
        return chat if self.copy == 1 else f"{chat}+{self.copy}"


PutAgain = Callable[[BroadcastMessage], Awaitable[LiveTicket | None]]


class _Tracked:
    """One that waits."""

    __slots__ = ("ended", "letter", "task", "ticket")

    def __init__(self, letter: BroadcastMessage, ticket: LiveTicket) -> None:
        self.letter = letter
        self.ticket = ticket
        self.ended = False  # and now on_dead is told
        self.task: asyncio.Task[None] | None = None


class MessageTracker:
    """Follows each message to its end: counts it, tells who is gone, and gives its place free after that.

    `put_again` puts a letter that an earlier call had put and taken back; it gives None if that cannot be, as
    this call is cancelled too.
    """

    def __init__(self, outbox: Outbox, clock: Clock, tally: Tally, gone: GoneNotifier, *, ahead: int) -> None:
        self._outbox = outbox
        self._clock = clock
        self._tally = tally
        self._gone = gone
        self._ahead = ahead
        self._places: dict[str, _Tracked] = {}  # by chat
        self._moved = asyncio.Event()
        self.put_again: PutAgain = _never

    async def room(self, count: int) -> None:
        """Wait until so many more may come."""
        while len(self._places) + count > self._ahead:
            await self._move()

    async def empty(self) -> None:
        """Wait until all have ended, and on_dead with them."""
        while self._places:
            await self._move()

    async def _move(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def enter(self, letter: BroadcastMessage, ticket: LiveTicket) -> None:
        chat = letter.key
        if chat in self._places:
            self._tally.repeat()
            return
        self._tally.enter(fresh=ticket.fresh)
        place = self._places[chat] = _Tracked(letter, ticket)
        place.task = asyncio.create_task(self._follow(chat, place), name=f"tidegate: broadcast to {chat}")

    async def take_back(self) -> None:
        """Cancel what is not being sent yet."""
        await self._outbox.cancel([place.ticket.id for place in self._places.values()])

    async def close(self) -> None:
        """Follow nobody any longer. An on_dead that runs may end, for a while."""
        for place in self._places.values():
            if place.task is not None and not place.ended:
                place.task.cancel()
        with suppress(TimeoutError):
            async with self._clock.timeout(ON_DEAD_GRACE_SECONDS):
                await self.empty()
        left = [place.task for place in self._places.values() if place.task is not None]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    # --- one of them ---

    async def _follow(self, chat: str, place: _Tracked) -> None:
        try:
            record = await self._end_of(place)
            place.ended = True
            if self._is_counted(place.ticket, record):
                self._tally.leave_repeated()
                return
            self._tally.leave(record, fresh=place.ticket.fresh)
            if record is not None and record.state == State.DEAD:
                await self._gone.tell(place.letter.row, record.reason)
        finally:
            del self._places[chat]
            self._moved.set()

    async def _end_of(self, place: _Tracked) -> Record | None:
        """What was taken back from an earlier call of the same name goes now."""
        while True:
            record = await self._settled(place.ticket.id)
            if not self._was_taken_back(record):
                return record
            letter = place.letter._replace(copy=place.letter.copy + 1)
            again = await self.put_again(letter)
            if again is None:
                return record
            place.letter, place.ticket = letter, again
            if again.fresh:
                self._tally.put_again()

    async def _settled(self, ticket: TicketId) -> Record | None:
        while True:
            try:
                async with self._clock.timeout(SETTLED_POLL_SECONDS):
                    return await self._outbox.settled(ticket)
            except TimeoutError:
                continue
            except LookupError:
                return None
            except StoreError:
                await self._clock.sleep(STORE_RETRY_SECONDS)

    def _was_taken_back(self, record: Record | None) -> bool:
        """Before this call, that is."""
        return (
            record is not None
            and record.state == State.CANCELLED
            and (record.settled_at or 0.0) <= self._tally.started_at
        )

    def _is_counted(self, ticket: LiveTicket, record: Record | None) -> bool:
        """Whether an earlier row of this call put it, or another process that sends the same broadcast."""
        return not ticket.fresh and record is not None and record.created_at >= self._tally.started_at


async def _never(_: BroadcastMessage) -> LiveTicket | None:
    return None
