"""`gate.reminders`: add, look at, change and remove reminders, and run the scheduler that fires them."""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, Protocol

from tidegate.clock import Clock
from tidegate.errors import BadInputError, ClosedError, StoreAwayError, StoreError, TidegateError
from tidegate.events import EventStream
from tidegate.failure import pause_after
from tidegate.model import BotId, ChatId
from tidegate.outbox.admission import check_chat
from tidegate.outbox.message_times import duration, is_duration
from tidegate.outbox.port import Outbox
from tidegate.outbox.producer import Producer
from tidegate.reminders.firing import (
    Change,
    add_again,
    first_state,
    pause,
    reschedule,
    resume,
    skip_next,
    snooze,
)
from tidegate.reminders.occurrences import all_zones
from tidegate.reminders.port import ADD_AT_ONCE, Addition, ReminderCounts, ReminderStore, Shard
from tidegate.reminders.reminder import NewReminder, Reminder
from tidegate.reminders.reminder_options import (
    Moment,
    changed_reminder,
    parse_number,
    reminder_from_options,
)
from tidegate.reminders.schedule_parser import parse_moment
from tidegate.reminders.scheduler import AHEAD, CHUNK, ReminderHandler, ReminderScheduler
from tidegate.store_opener import StoreOpener
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.reminders")

Which = int | str  # the id of a reminder, or its key
PAGE: Final = 500  # reminders that are read together
PUT_AHEAD: Final = 2 * AHEAD  # seconds: no scheduler puts earlier, also if its clock is a minute off
FoundReminders = list[Reminder]  # `list` is a method below
Additions = list[Addition]
Problems = list[str]
Numbers = list[int]
OutboxKey = tuple[BotId, str]
OutboxKeys = list[OutboxKey]


class ReminderHost(Protocol):
    """The part of the gate that reminders need."""

    clock: Clock
    outbox: Outbox
    producer: Producer
    events: EventStream

    def check_open(self) -> None: ...

    def bot_id(self, bot: Any) -> BotId: ...  # noqa: ANN401  (a number, a token or an object of a library)


class Reminders:
    """Messages that are sent when it is time, in the time zone of each user.

    They are kept in the database of the gate: a SQLite file beside the store or, with DATABASE_URL,
    PostgreSQL. It is opened when it is first needed. Raises StoreAwayError while it cannot be reached.
    """

    def __init__(
        self,
        host: ReminderHost,
        make_store: Callable[[], ReminderStore],
        exist: Callable[[], Awaitable[bool]],
        look_every: float | None = None,
    ) -> None:
        """`look_every`: seconds between two looks whether other processes have added some; None: none can."""
        self._host = host
        self._store = StoreOpener(make_store, exist)
        self._look_every = look_every
        self._handlers: dict[str, ReminderHandler] = {}
        self._delivers = 0  # how often this process is asked to run the scheduler
        self._running: AsyncExitStack | None = None
        self._schedulers: list[ReminderScheduler] = []  # that run in this process
        self._tasks = BackgroundTasks()

    async def add(
        self,
        chat_id: ChatId,
        *,
        bot: object = None,
        **options: Any,  # noqa: ANN401  (ReminderOptions and fields of the message)
    ) -> Reminder:
        """Add a reminder: `add(1001, text="Drink!", at="09:00", every="day", zone="Europe/Berlin")`.

        When: `at` with `every` ("day", "2 days", "week"), `days` ("mon-fri") or `date`; or `cron`. `zone` is
        the user's. `spread`, `quiet`, `start`, `until`, `count`, `late`, `expires_in`, `key` as in the
        reference; all else is the message, as `gate.send` takes it. A `key` that is used already replaces its
        reminder; if nothing differs, that goes on as it is, unless it is paused or has ended.
        """
        [added] = await self.add_many([{"chat_id": chat_id, **options}], bot=bot)
        return added

    async def add_many(
        self, items: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]], *, bot: object = None
    ) -> list[Reminder]:
        """Add many reminders, a thousand in a transaction. Bad input stores nothing of its thousand."""
        self._host.check_open()
        await asyncio.to_thread(all_zones)  # it reads files, once
        bot_id, now = self._host.bot_id(bot), self._host.clock.now()
        chunk: list[NewReminder] = []
        added: list[Reminder] = []
        async for item in _each(items):
            fields = dict(item)
            new = reminder_from_options(fields.pop("chat_id", None), fields, bot=bot_id, now=now)
            chunk.append(self.checked(new))
            if len(chunk) == ADD_AT_ONCE:
                added += [one.reminder for one in await self.store_all(chunk)]
                chunk = []
        return added + [one.reminder for one in await self.store_all(chunk)]

    def checked(self, new: NewReminder) -> NewReminder:
        """Return it if its message could be sent. Raises BadInputError."""
        fields = dict(new.fields)
        if new.handler is not None and "method" in fields:
            return new  # what it needs beside these fields is made when it is due
        if new.handler is not None and fields.get("text") is None:
            fields["text"] = "made when it is due"
        self._host.producer.compose(new.bot, {"chat_id": new.chat_id, **fields})
        return new

    async def store_all(self, reminders: list[NewReminder], *, stays_paused: bool = False) -> Additions:
        """Store reminders that are checked, all or none, at most ADD_AT_ONCE; see `add_again` for keys."""
        if not reminders:
            return []
        now = self._host.clock.now()
        store = await self._opened()

        def first(new: NewReminder, number: int, old: Reminder | None) -> Reminder:
            if old is None:
                return first_state(new, number, now)
            return add_again(old, new, now, stays_paused=stays_paused)

        additions = await store.add(reminders, first)
        replaced = [one.replaced for one in additions if not one.is_unchanged]
        await self._cancel_all(old for old in replaced if old is not None)
        await self._wake()
        return additions

    async def exist(self) -> bool:
        """Return whether there may be reminders: whether their database was made. Creates none."""
        return await self._store.may_hold_rows()

    async def get(self, which: Which, *, bot: object = None) -> Reminder | None:
        """Return a reminder by its id or key; None if there is none."""
        which = _checked(which)
        store = await self._opened()
        if isinstance(which, int):
            found = await store.get([which])
        else:
            found = await store.find(bot=self._host.bot_id(bot), key=which, limit=1)
        return found[0] if found else None

    async def list(
        self,
        *,
        user_id: int | None = None,
        chat_id: ChatId | None = None,
        bot: object = None,
        after: int = 0,
        limit: int = 100,
    ) -> FoundReminders:
        """Return reminders in order of their ids, from the one after the id `after` on."""
        _check_limit(limit)
        user_id = None if user_id is None else parse_number("user_id", user_id)
        chat_id = None if chat_id is None else check_chat(chat_id)
        store = await self._opened()
        whose = None if bot is None else self._host.bot_id(bot)
        return await store.find(bot=whose, user_id=user_id, chat_id=chat_id, after=after, limit=limit)

    async def upcoming(self, *, bot: object = None, limit: int = 100) -> FoundReminders:
        """Return the reminders that are due next."""
        _check_limit(limit)
        store = await self._opened()
        return await store.upcoming(bot=None if bot is None else self._host.bot_id(bot), limit=limit)

    async def counts(self) -> ReminderCounts:
        """Return how many reminders there are."""
        return await (await self._opened()).counts(self._host.clock.now())

    async def due_counts(self, start: float, step: float, steps: int, *, bot: object = None) -> Numbers:
        """Return how many active reminders are due in each of so many steps of time from `start` on.

        Each counts once, with its next time: one that comes every hour is in one step.
        """
        whose = None if bot is None else self._host.bot_id(bot)
        return await (await self._opened()).due_counts(start, step, steps, whose)

    async def pause(self, which: Which, *, bot: object = None) -> Reminder:
        """Stop a reminder. What is already queued of it is cancelled."""
        return await self._change(which, bot, pause)

    async def resume(self, which: Which, *, bot: object = None) -> Reminder:
        """Let a paused reminder go on with its next occurrence from now."""
        return await self._change(which, bot, resume)

    async def skip_next(self, which: Which, *, bot: object = None) -> Reminder:
        """Leave out the next occurrence, which may be queued already."""
        return await self._change(which, bot, skip_next)

    async def snooze(self, which: Which, until: Moment, *, bot: object = None) -> Reminder:
        """Remind again at `until`: a datetime; a timedelta or "10m" from now. Then the schedule goes on."""

        def change(reminder: Reminder, now: float) -> Change:
            if isinstance(until, str) and is_duration(until):
                moment = now + duration("until", until)
            else:
                moment = parse_moment("until", until, reminder.zone, now)
            if moment <= now:
                raise BadInputError("until is past: give a time to come, such as timedelta(minutes=10)")
            return snooze(reminder, moment, now)

        return await self._change(which, bot, change)

    async def change(self, which: Which, *, bot: object = None, **options: Any) -> Reminder:  # noqa: ANN401
        """Change options of a reminder or fields of its message; what is not given stays.

        What is queued is cancelled and, if it was not due yet, queued anew.
        """

        def change(reminder: Reminder, now: float) -> Change:
            return reschedule(reminder, self.checked(changed_reminder(reminder, options, now=now)), now)

        return await self._change(which, bot, change)

    async def remove(self, *which: Which, bot: object = None) -> int:
        """Delete reminders, and cancel what is queued of them; return how many there were."""
        wanted = [_checked(one) for one in which]
        store = await self._opened()
        ids = [one if isinstance(one, int) else await self._id_of(one, bot) for one in wanted]
        removed = await store.remove([one for one in ids if one is not None])
        await self._cancel_all(removed)
        return len(removed)

    async def forget(self, chat_id: ChatId, bot: object = None, *, rewrite: bool = False) -> int:
        """Delete every reminder of a chat; return how many there were. Creates no database.

        With `rewrite`, a SQLite file is then written anew, so that nothing of them can be found in it.
        """
        if not await self.exist():
            return 0
        removed = 0
        while found := await self.list(chat_id=chat_id, bot=bot, limit=PAGE):
            removed += await self.remove(*(one.id for one in found))
        if removed and rewrite:
            await (await self._opened()).rewrite()
        return removed

    def handler(self, name: str) -> Callable[[ReminderHandler], ReminderHandler]:
        """Register `async def make(due)` for reminders with `handler=name`: it makes their message when due.

        It returns the text or the fields of the message, or None to leave this one out. One that fails is
        called again each minute for as long as its message is of use. Handlers do not wait for each other.
        """
        if not name.strip():
            raise BadInputError(f"{name!r} is no name of a handler: write @gate.reminders.handler('week')")

        def register(make: ReminderHandler) -> ReminderHandler:
            if not any(map(inspect.iscoroutinefunction, (make, getattr(make, "__call__", None)))):  # noqa: B004
                raise BadInputError(f"the handler {name!r} of reminders must be an `async def`: got {make!r}")
            if name in self._handlers:
                raise BadInputError(f"there is a handler {name!r} of reminders already: give another name")
            self._handlers[name] = make
            return make

        return register

    @asynccontextmanager
    async def deliver(self) -> AsyncIterator[None]:
        """While the body runs, fire reminders in this process, if there are any, or as soon as there are."""
        self._delivers += 1
        if not self._store.is_open and not self._handlers:
            self._tasks.start(self._start_if_any(), "looks for reminders")
        else:
            self._tasks.start(self._start_when_reachable(), "begins with reminders")
        try:
            yield
        finally:
            self._delivers -= 1
            if self._delivers == 0:
                await self.stop()

    @asynccontextmanager
    async def schedule(
        self, *, shard: Shard | None = None, chunk: int = CHUNK, offset: float = 0.0
    ) -> AsyncIterator[ReminderScheduler]:
        """Run a scheduler of its own while the body runs. Raises StoreAwayError if there is no database."""
        store = await self._opened()
        host = self._host
        scheduler = ReminderScheduler(
            store,
            host.producer,
            host.clock,
            events=host.events,
            handlers=self._handlers,
            shard=shard,
            chunk=chunk,
            offset=offset,
        )
        async with scheduler:
            self._schedulers.append(scheduler)
            try:
                yield scheduler
            finally:
                self._schedulers.remove(scheduler)

    def problems(self) -> Problems:
        """Why reminders are not fired as they should be, a line each."""
        return [
            *self._tasks.problems(),
            *(problem for scheduler in self._schedulers for problem in scheduler.problems()),
        ]

    async def close(self) -> None:
        """Disconnect. It is opened again when it is needed."""
        await self.stop()
        await self._store.close()

    async def _start_if_any(self) -> None:
        """Look whether there are reminders, without creating anything. Other processes may add the first."""
        failures = 0
        while self._running is None:
            try:
                if await self.exist():
                    await self._start()
                    return
                if self._look_every is None:
                    return
                await self._host.clock.sleep(self._look_every)
            except StoreAwayError as error:
                failures += 1
                log.log(
                    logging.WARNING if failures == 1 else logging.DEBUG,
                    "whether there are reminders is not known, and looked up again: %s",
                    error,
                )
                await self._host.clock.sleep(pause_after(failures))
            except TidegateError as error:  # such as an address that is of another kind of database
                about = "DATABASE_URL is " if isinstance(error, BadInputError) else ""
                log.warning("no reminders are looked for: %s%s", about, error)
                return

    async def _start_when_reachable(self) -> None:
        failures = 0
        while True:
            try:
                await self._start()
            except StoreError as error:
                failures += 1
                if failures == 1:
                    log.warning("reminders wait until this is mended, and nothing is lost: %s", error)
                await self._host.clock.sleep(pause_after(failures))
            else:
                return

    async def _start(self) -> None:
        """Run the scheduler, if this process delivers and it does not run yet."""
        await self._opened()
        if self._delivers and self._running is None:
            self._running = AsyncExitStack()
            await self._running.enter_async_context(self.schedule())

    async def stop(self) -> None:
        """End what runs in the background. It stays connected."""
        await self._tasks.stop()
        running, self._running = self._running, None
        if running is not None:
            await running.aclose()

    async def _wake(self) -> None:
        if self._delivers and self._running is None:
            await self._start()
        for scheduler in self._schedulers:
            scheduler.wake()

    async def _opened(self) -> ReminderStore:
        self._host.check_open()
        if not self._store.is_open:
            await asyncio.to_thread(all_zones)  # it reads files, once
        return await self._store.opened()

    async def _change(
        self, which: Which, bot: object, change: Callable[[Reminder, float], Change]
    ) -> Reminder:
        which = _checked(which)
        store, now = await self._opened(), self._host.clock.now()
        reminder_id = which if isinstance(which, int) else await self._id_of(which, bot)
        decided: list[tuple[Reminder, Change]] = []

        def decide(reminder: Reminder) -> Reminder:
            decided.append((reminder, change(reminder, now)))
            return decided[-1][1].reminder

        changed = None if reminder_id is None else await store.change(reminder_id, decide)
        if changed is None:
            raise BadInputError(f"there is no reminder {which!r}")
        before, (_, cancelled) = decided[-1]
        await self._cancel(self._keys_in_outbox(before, cancelled, changed))
        await self._wake()
        return changed

    async def _id_of(self, key: str, bot: object) -> int | None:
        found = await (await self._opened()).find(bot=self._host.bot_id(bot), key=key, limit=1)
        return found[0].id if found else None

    def _keys_in_outbox(
        self, before: Reminder, queued: Iterable[str], after: Reminder | None = None
    ) -> OutboxKeys:
        """Return the dedup keys of what is to be taken back: those that are queued.

        Also what a scheduler that died has put before it could note that: the occurrence that was next,
        unless it is still next under the same key, which the outbox would not take again.
        """
        keys = [(before.bot, key) for key in queued]
        still_next = after is not None and (after.revision, after.occurrence_at) == (
            before.revision,
            before.occurrence_at,
        )
        may_be_put = before.next_at is not None and before.next_at < self._host.clock.now() + PUT_AHEAD
        if before.occurrence_at is not None and may_be_put and not still_next:
            keys.append((before.bot, before.occurrence_key(before.occurrence_at)))
        return keys

    async def _cancel_all(self, reminders: Iterable[Reminder]) -> None:
        await self._cancel(key for one in reminders for key in self._keys_in_outbox(one, one.queued_keys))

    async def _cancel(self, keys: Iterable[OutboxKey]) -> None:
        outbox = self._host.outbox
        found = [await outbox.find_by_key(bot, key) for bot, key in keys]
        if tickets := [ticket for ticket in found if ticket is not None]:
            with suppress(ClosedError):
                await outbox.cancel(tickets)


def _check_limit(limit: int) -> None:
    if parse_number("limit", limit) < 1:
        raise BadInputError(f"limit is {limit}: give 1 or more")


def _checked(which: object) -> Which:
    """Return an id or a key. Raises BadInputError for anything else: None would be any reminder."""
    if isinstance(which, bool) or not isinstance(which, int | str) or which == "":
        raise BadInputError(f"{which!r} is neither the id nor the key of a reminder: give a number or a text")
    return which


async def _each(
    items: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
) -> AsyncIterator[Mapping[str, Any]]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
