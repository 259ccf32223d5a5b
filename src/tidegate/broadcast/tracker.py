"""The messages of a broadcast that wait in the outbox: each is followed to its end and counted."""

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from tidegate.broadcast.message import BroadcastMessage
from tidegate.broadcast.progress import BadRow, EndRate
from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreError, TidegateError
from tidegate.model import ChatId, Record, State, TicketId
from tidegate.outbox.port import Outbox
from tidegate.outbox.tickets import LiveTicket
from tidegate.row_template import Row
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.broadcast")

OnDead = Callable[[Row, str], Awaitable[None]]
ON_DEAD_AT_ONCE: Final = 20

# Reasons of dead messages whose user or group blocked the bot or is gone. Other reasons concern the message
# or the bot: on_dead would be called for everybody.
GONE_REASONS: Final = frozenset(("blocked", "deactivated", "kicked", "not_found"))


class GoneNotifier:
    """Calls the application's `on_dead`. If it fails or is slow, nothing stops: failures are counted."""

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
                        "broadcast %s: on_dead failed for chat %s. Further failures are only counted",
                        self._name,
                        row.get("chat_id"),
                    )


COUNTED: Final = (
    *("read", "accepted", "earlier", "skipped", "bad", "repeated"),
    *("waiting", "delivered", "dead", "parked", "expired", "cancelled", "forgotten"),
)
BAD_ROWS_KEPT: Final = 20
FAILURES_BEFORE_GIVING_UP: Final = 100  # without one success: then not the rows or the users are at fault


class Tally:
    """Counts the rows and messages of a campaign, each once."""

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

    def read(self) -> int:
        """Count a row and return its number."""
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
            # The traceback helps only with an error of the user's function.
            shown = None if isinstance(error, TidegateError) else error
            text = "broadcast %s: row %s is left out: %s. Further ones are counted in its progress"
            log.warning(text, self._name, row, reason, exc_info=shown)

    @property
    def found_one(self) -> bool:
        """Return True if a row could be sent, or was skipped."""
        return bool(self.counts["accepted"] or self.counts["skipped"])

    def check_rows(self, *, all_read: bool) -> None:
        """Raise BadInputError if every row so far is bad."""
        bad = self.counts["bad"]
        if bad and not self.found_one and (bad >= FAILURES_BEFORE_GIVING_UP or all_read):
            first = self.bad_rows[0]
            which = "the only row" if bad == 1 else f"all of the first {bad} rows"
            raise BadInputError(
                f"broadcast {self._name!r}: {which} cannot be sent, and nothing was sent."
                f" Row {first.row}: {first.reason}"
            )

    def enter(self, *, fresh: bool) -> None:
        self.counts.update(accepted=1, waiting=1, earlier=0 if fresh else 1)

    def repeat(self) -> None:
        self.counts["repeated"] += 1

    def put_again(self) -> None:
        """Count a message that an earlier call cancelled as a message of this call."""
        self.counts["earlier"] -= 1

    def leave_repeated(self) -> None:
        """Uncount a message that this call had put before, and count the row as repeated."""
        self.counts.subtract(("accepted", "waiting", "earlier"))
        self.repeat()

    def leave(self, record: Record | None, *, fresh: bool) -> None:
        """Count the end of a message; None if the store has forgotten it."""
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
        """Raise TidegateError if the first messages have all died, and not because their users are gone."""
        if self._failures.total() >= FAILURES_BEFORE_GIVING_UP:
            (why, _), many = self._failures.most_common(1)[0], self._failures.total()
            raise TidegateError(
                f"broadcast {self._name!r}: the first {many} messages have all died: {why}."
                " Those that waited were cancelled. Correct that, drop the dead letters (tidegate dlq drop),"
                " and call it again: it goes to those who did not get it"
            )

    def report(self) -> dict[str, Any]:
        counted: dict[str, Any] = {name: self.counts[name] for name in COUNTED}
        reasons = dict(self.reasons.most_common())
        return counted | {"reasons": reasons, "bad_rows": tuple(self.bad_rows), "started_at": self.started_at}


SETTLED_POLL_SECONDS: Final = (
    60.0  # after which a message is looked up again: it may have been erased from the store
)
STORE_RETRY_SECONDS: Final = 5.0  # until the next try, while the store cannot be used
ON_DEAD_GRACE_SECONDS: Final = 10.0  # for on_dead to finish when the gate closes


PutAgain = Callable[[BroadcastMessage], Awaitable[LiveTicket | None]]


class _Tracked:
    """A message that is followed."""

    __slots__ = ("ended", "message", "task", "ticket")

    def __init__(self, message: BroadcastMessage, ticket: LiveTicket) -> None:
        self.message = message
        self.ticket = ticket
        self.ended = False  # and on_dead is called
        self.task: asyncio.Task[None] | None = None


class MessageTracker:
    """Follows each message to its end: counts it, calls on_dead if the user is gone, then frees its place.

    With `ahead` None, messages are only counted when they are put. `put_again` puts a message that an earlier
    call had put and cancelled; it returns None if this call was cancelled too.
    """

    def __init__(
        self, outbox: Outbox, clock: Clock, tally: Tally, gone: GoneNotifier, *, ahead: int | None
    ) -> None:
        self._outbox = outbox
        self._clock = clock
        self._tally = tally
        self._gone = gone
        self._ahead = ahead
        self._places: dict[str, _Tracked] = {}  # by chat
        self._tasks = BackgroundTasks()
        self._moved = asyncio.Event()
        self.put_again: PutAgain = _never

    async def room(self, count: int) -> None:
        """Wait until `count` more messages may be put."""
        while self._ahead is not None and len(self._places) + count > self._ahead:
            await self._move()

    async def empty(self) -> None:
        """Wait until all messages have ended, and the calls of on_dead too."""
        while self._places:
            await self._move()

    async def _move(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def enter(self, message: BroadcastMessage, ticket: LiveTicket) -> None:
        """Count a message that was put, and follow it."""
        chat = message.key
        if chat in self._places:
            self._tally.repeat()
            return
        self._tally.enter(fresh=ticket.fresh)
        if self._ahead is None:
            return
        place = self._places[chat] = _Tracked(message, ticket)
        place.task = self._tasks.start(self._follow(chat, place), f"broadcast to {chat}")

    async def take_back(self) -> None:
        """Cancel the messages that are not being sent yet."""
        await self._outbox.cancel([place.ticket.id for place in self._places.values()])

    async def close(self) -> None:
        """Stop following. Calls of on_dead that run get some seconds to finish."""
        for place in self._places.values():
            if place.task is not None and not place.ended:
                place.task.cancel()
        with suppress(TimeoutError):
            async with self._clock.timeout(ON_DEAD_GRACE_SECONDS):
                await self.empty()
        await self._tasks.stop()

    async def _follow(self, chat: str, place: _Tracked) -> None:
        try:
            record = await self._end_of(place)
            place.ended = True
            if self._is_counted(place.ticket, record):
                self._tally.leave_repeated()
                return
            self._tally.leave(record, fresh=place.ticket.fresh)
            if record is not None and record.state == State.DEAD:
                await self._gone.tell(place.message.row, record.reason)
        finally:
            del self._places[chat]
            self._moved.set()

    async def _end_of(self, place: _Tracked) -> Record | None:
        """Wait for the end. A message that an earlier call of this name had cancelled is put again."""
        while True:
            record = await self._settled(place.ticket.id)
            if not self._was_taken_back(record):
                return record
            message = place.message._replace(copy=place.message.copy + 1)
            again = await self.put_again(message)
            if again is None:
                return record
            place.message, place.ticket = message, again
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
        """Return True if it was cancelled before this call."""
        return (
            record is not None
            and record.state == State.CANCELLED
            and (record.settled_at or 0.0) <= self._tally.started_at
        )

    def _is_counted(self, ticket: LiveTicket, record: Record | None) -> bool:
        """Return True if an earlier row of this call put it, or another process with the same broadcast."""
        return not ticket.fresh and record is not None and record.created_at >= self._tally.started_at


async def _never(_: BroadcastMessage) -> LiveTicket | None:
    return None
