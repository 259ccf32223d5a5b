"""The scheduler: puts reminders that are due into the outbox, a chunk at a time.

Claim, decide, put, advance. A chunk is one transaction: if the process dies in it, the rows are as before,
and what was put already is put again under the same dedup keys, which changes nothing.
"""

import datetime as dt
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreError
from tidegate.events import EventStream, Reminded
from tidegate.failure import describe_error, traceback_text
from tidegate.model import Message
from tidegate.outbox.producer import MESSAGES_PER_PUT, Producer
from tidegate.reminders.firing import LATE_AFTER, FiredOccurrence, Firing, fire
from tidegate.reminders.occurrences import time_zone
from tidegate.reminders.port import ReminderStore, Shard
from tidegate.reminders.reminder import Reminder
from tidegate.store_loop import StoreLoop
from tidegate.tasks import BackgroundTasks, SupervisedLoop

log = logging.getLogger("tidegate.reminders")

CHUNK: Final = 500  # reminders in one transaction
AHEAD: Final = 60.0  # seconds that an occurrence is put into the outbox before it is due
POLL_EVERY: Final = 3.0  # seconds after which a reminder that another process has added is found
SHORTEST_PAUSE: Final = 0.05  # seconds between two looks
DECIDED_AT_ONCE: Final = 50  # reminders between two looks at what else the process has to do
KEY_LIFETIME: Final = 3 * 86_400.0  # seconds: longer than the database may be away after a chunk was put
HANDLERS_AT_ONCE: Final = 20  # functions of the application that run at the same time, for each name
HANDLER_DEADLINE: Final = 50.0  # seconds for one function
HANDLER_LEASE: Final = 60.0  # seconds: then another process tries

ReminderHandler = Callable[["DueReminder"], Awaitable[Mapping[str, Any] | str | None]]


class DueReminder(NamedTuple):
    """The argument of a handler of reminders, which makes the message for this occurrence."""

    reminder: Reminder
    occurrence: dt.datetime  # in the zone of the reminder


class SchedulerCounts(msgspec.Struct):
    """The counts of a scheduler since it was made."""

    fired: int = 0
    late: int = 0  # of these, put more than a minute after they were due
    skipped: int = 0
    merged: int = 0
    chunks: int = 0


class ReminderScheduler:
    """`async with` it: due reminders are put into the outbox while the body runs.

    Any number of schedulers may share a store: each claims other rows. `shard` limits this one to some users.
    With `offset` it looks so many seconds later than others, at the start and before each due time. A store
    that cannot be reached is waited for, with a warning.
    """

    def __init__(
        self,
        store: ReminderStore,
        producer: Producer,
        clock: Clock,
        *,
        events: EventStream | None = None,
        handlers: Mapping[str, ReminderHandler] | None = None,
        shard: Shard | None = None,
        chunk: int = CHUNK,
        ahead: float = AHEAD,
        offset: float = 0.0,
    ) -> None:
        if shard is not None and not 0 <= shard.number < shard.of:
            raise BadInputError(f"shard {shard.number} of {shard.of} is not possible: count from 0")
        if not 0 <= offset < ahead:
            raise BadInputError(f"an offset of {offset:g} s is not possible: give 0 to less than {ahead:g}")
        self._store = store
        self._producer = producer
        self._clock = clock
        self._events = events or EventStream()
        self._handlers = {} if handlers is None else handlers
        self._shard = shard
        self._chunk = chunk
        self._ahead = ahead - offset
        self._offset = offset
        self._tasks = BackgroundTasks()
        self._calls = BackgroundTasks()
        self._running: dict[str, int] = {}  # calls of each handler
        self._steps = StoreLoop("reminders", self._step, clock, log)
        self._loop: SupervisedLoop | None = None
        self.counts = SchedulerCounts()

    async def __aenter__(self) -> Self:
        self._loop = self._tasks.supervise(self._run, "the scheduler of reminders", self._clock)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._tasks.stop()  # an interrupted transaction changes nothing
        await self._calls.stop()  # what a function was making is made by the next process

    def wake(self) -> None:
        """Look now: a reminder was added or changed."""
        self._steps.wake()

    def problems(self) -> list[str]:
        """Why reminders are not put as they should be, a line each."""
        return [*self._steps.problems(), *self._tasks.problems()]

    async def hopeless(self) -> str:
        """Wait until it has failed so often in a row that it will not recover; say why."""
        assert self._loop is not None  # noqa: S101  (it runs)
        await self._loop.hopeless.wait()
        return self._loop.problem or f"{self._loop.name} has failed"

    async def _run(self) -> None:
        await self._clock.sleep(self._offset)
        await self._steps.run()

    async def _step(self) -> float:
        pause = await self.step()
        if self._loop is not None:
            self._loop.works()
        return pause

    async def step(self) -> float:
        """Fire all that is due; return the seconds until there may be more."""
        before = msgspec.structs.replace(self.counts)
        while await self._fire_chunk() == self._chunk:
            await self._clock.sleep(0)
        self._report_lateness(before)
        free = await self._call_handlers()
        next_due = await self._store.next_due(free, self._shard)
        if next_due is None:
            return POLL_EVERY
        # Not as soon as one may be put ahead of its time: those that come meanwhile go into the same step.
        return min(POLL_EVERY, max(SHORTEST_PAUSE, next_due - self._clock.now()))

    async def _fire_chunk(self) -> int:
        """Fire the reminders that are due first; return how many there were."""
        now = self._clock.now()
        async with self._store.claim_due(now + self._ahead, self._chunk, self._shard) as batch:
            if not batch.reminders:
                return 0
            counts = SchedulerCounts(chunks=1)
            messages: list[Message] = []
            advanced: list[Reminder] = []
            late = 0.0
            for number, reminder in enumerate(batch.reminders, 1):
                firing = _decide(reminder, now, self._ahead)
                made = [self._message(reminder, one, reminder.fields) for one in firing.fired]
                late = max(late, *(now - one.not_before for one in firing.fired), 0.0)
                messages += [message for message in made if message is not None]
                advanced.append(_without(firing, made.count(None)))
                _count(counts, reminder, advanced[-1], firing.fired, now)
                if number % DECIDED_AT_ONCE == 0:
                    await self._clock.sleep(0)
            await self._put(messages)
            await batch.advance(advanced)
        self._add(counts)  # once it is committed
        if messages:
            self._events.publish(Reminded(len(messages), late))
        return len(advanced)

    def _message(
        self, reminder: Reminder, occurrence: FiredOccurrence, fields: Mapping[str, Any]
    ) -> Message | None:
        """Return the message of an occurrence; None, and a line in the log, if Telegram would refuse it."""
        options = {
            "not_before": occurrence.not_before,
            "expires_at": occurrence.expires_at,
            "dedup_key": occurrence.dedup_key,
            "dedup_for": KEY_LIFETIME,
        }
        try:
            return self._producer.compose(reminder.bot, {"chat_id": reminder.chat_id, **fields, **options})
        except BadInputError as error:
            log.error("reminder %s is skipped once, as its message cannot be sent: %s", reminder.id, error)  # noqa: TRY400
            return None

    async def _put(self, messages: Sequence[Message]) -> None:
        for start in range(0, len(messages), MESSAGES_PER_PUT):
            await self._producer.put(list(messages[start : start + MESSAGES_PER_PUT]))

    async def _call_handlers(self) -> list[str]:
        """Begin the functions that are due; return the names of those that have room for more."""
        room = {name: HANDLERS_AT_ONCE - self._running.get(name, 0) for name in self._handlers}
        for name, left in room.items():
            if left <= 0:
                continue  # one that is slow keeps no other from running
            now = self._clock.now()
            leased = await self._store.lease_handled([name], now, HANDLER_LEASE, left)
            for reminder in leased:
                self._running[name] = self._running.get(name, 0) + 1
                self._calls.start(self._call_handler(name, reminder), f"reminder {reminder.id}")
            room[name] = left - len(leased)
        return [name for name, left in room.items() if left > 0]

    async def _call_handler(self, name: str, reminder: Reminder) -> None:
        try:
            await self._handle(self._handlers[name], reminder)
        except StoreError as error:
            log.warning("reminder %s is tried again in a minute: %s", reminder.id, error)
        finally:
            self._running[name] -= 1
            if not self._running[name]:
                del self._running[name]
            self.wake()

    async def _handle(self, handler: ReminderHandler, reminder: Reminder) -> None:
        now = self._clock.now()
        firing = _decide(reminder, now, 0.0)
        messages: list[Message] = []
        for occurrence in firing.fired:
            try:
                async with self._clock.timeout(HANDLER_DEADLINE):
                    made = await handler(DueReminder(reminder, _local(reminder, occurrence.occurrence)))
                if not isinstance(made, str | Mapping | None):
                    raise BadInputError(f"return a text, the fields of a message, or None: got {made!r}")  # noqa: TRY301
            except Exception as error:  # noqa: BLE001  (the application's)
                if now < occurrence.expires_at - HANDLER_LEASE:
                    log.error(  # noqa: TRY400
                        "the handler %r of reminder %s has failed, and is called again in a minute:\n%s",
                        reminder.handler,
                        reminder.id,
                        traceback_text(error),
                    )
                    return  # its lease runs out
                log.error("reminder %s is skipped: its handler fails: %s", reminder.id, describe_error(error))  # noqa: TRY400
                made = None
            fields = {"text": made} if isinstance(made, str) else made
            if fields is not None:
                message = self._message(reminder, occurrence, {**reminder.fields, **fields})
                messages += [] if message is None else [message]
        await self._put(messages)
        after = _without(firing, len(firing.fired) - len(messages))

        def advance(current: Reminder) -> Reminder:
            is_same = (current.revision, current.next_at) == (reminder.revision, reminder.next_at)
            return after if is_same else current  # else it was changed meanwhile

        await self._store.change(reminder.id, advance)
        counts = SchedulerCounts()
        _count(counts, reminder, after, firing.fired, now)
        self._add(counts)

    def _add(self, counts: SchedulerCounts) -> None:
        for name in SchedulerCounts.__struct_fields__:
            setattr(self.counts, name, getattr(self.counts, name) + getattr(counts, name))

    def _report_lateness(self, before: SchedulerCounts) -> None:
        late, skipped, merged = (
            getattr(self.counts, name) - getattr(before, name) for name in ("late", "skipped", "merged")
        )
        if late or skipped or merged:
            log.warning(
                "reminders after their time: %d put late, %d skipped, %d merged into another",
                late,
                skipped,
                merged,
            )


def _without(firing: Firing, unmade: int) -> Reminder:
    """Return the reminder after a firing. Occurrences whose message could not be made count as skipped."""
    after = firing.reminder
    return replace(after, fired=after.fired - unmade, skipped=after.skipped + unmade) if unmade else after


def _count(
    counts: SchedulerCounts, before: Reminder, after: Reminder, fired: Iterable[FiredOccurrence], now: float
) -> None:
    counts.fired += after.fired - before.fired
    counts.skipped += after.skipped - before.skipped
    counts.merged += after.merged - before.merged
    is_late = before.next_at is not None and before.next_at < now - LATE_AFTER
    counts.late += sum(one.not_before <= now for one in fired) if is_late else 0


def _decide(reminder: Reminder, now: float, ahead: float) -> Firing:
    """One that cannot be decided on, such as in a zone that this machine does not know, is paused alone."""
    try:
        return fire(reminder, now, ahead)
    except Exception as error:  # noqa: BLE001  (whatever it is, the others go on)
        log.error("reminder %s is paused: %s", reminder.id, describe_error(error))  # noqa: TRY400
        return Firing((), replace(reminder, paused=True))


def _local(reminder: Reminder, occurrence: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(occurrence, time_zone(reminder.zone))
