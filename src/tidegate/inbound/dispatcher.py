"""The dispatcher of the inbox: claim, handle, settle. One chat in order, chats side by side, bounded."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import nullcontext, suppress
from typing import Any, Final

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreAwayError, StoreError
from tidegate.failure import describe_error, traceback_text, waiting_place
from tidegate.handler_run import HandlerRun, running
from tidegate.inbound.inbox import UNREADABLE, ClaimedItem, Inbox, InboxItem, InboxSource, UnreadableBodyError
from tidegate.incidents import SlowCalls
from tidegate.outbox.effect_keys import effect_keys_for
from tidegate.stop_notice import log_wait
from tidegate.tasks import BackgroundTasks, SupervisedLoop

log = logging.getLogger("tidegate.inbound")

HANDLERS_AT_ONCE: Final = 256
HANDLER_DEADLINE: Final = 120.0  # seconds: a reply may have to wait a minute for its turn in a busy group
CRASHES_BEFORE_PARKING: Final = 5  # processes that may die while they handle an item
STORE_RETRY_PAUSE: Final = 1.0  # seconds after a failure of the store
CANCEL_GRACE: Final = 5.0  # seconds that a cancelled handler has to end
CLAIM_BATCH: Final = 25  # items claimed in a step: the first steps of their handlers must not block the loop
MAX_HANDLER_BACKOFF: Final = 300.0  # seconds
SHORTEST_LOOK: Final = 0.1  # seconds between two looks at a handler that is near its deadline

Turn = Callable[[InboxItem], Awaitable[float]]
ItemHandler = Callable[[ClaimedItem], Awaitable[None]]
SettleStep = Callable[[], Coroutine[Any, Any, None]]  # a call of the inbox


class RegisteredHandler(msgspec.Struct, frozen=True):
    """The handler of a source. After `attempts` failed ones an item is parked.

    `is_repeatable`: an item whose handler is cut off when the process stops is handled again, from the start.
    Otherwise it is parked, unless the handler itself has said that it may be repeated.
    """

    handle: ItemHandler
    attempts: int = 1
    is_repeatable: bool = False


class InboxDispatcher:
    """Runs between `start` and `stop`. `handlers` may change meanwhile; call `wake` when one is added."""

    def __init__(
        self,
        inbox: Inbox,
        clock: Clock,
        handlers: Mapping[InboxSource, RegisteredHandler],
        *,
        at_once: int = HANDLERS_AT_ONCE,
        deadline: float = HANDLER_DEADLINE,
        turn: Turn | None = None,
        slow_calls: SlowCalls | None = None,
    ) -> None:
        """`turn` returns the seconds that an item has to wait before it is handled."""
        if at_once < 1 or deadline <= 0:
            raise BadInputError("at least one update is handled at a time, in more than 0 seconds")
        self._inbox = inbox
        self._clock = clock
        self._handlers = handlers
        self._at_once = at_once
        self._deadline = deadline
        self._turn = turn
        self._slow_calls = slow_calls
        self._handling: dict[asyncio.Task[None], ClaimedItem] = {}
        self._finishing: set[asyncio.Task[None]] = set()  # those whose end is waited for
        self._handled: list[ClaimedItem] = []
        self._to_settle: list[SettleStep] = []
        self._changed = asyncio.Event()
        self._running: SupervisedLoop | None = None
        self._inbox_wait: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks()
        self._handler_tasks = BackgroundTasks()  # also those that do not end, though cancelled
        self._is_open = self._is_stopping = self._ends_at_once = False
        self._trouble: str | None = None

    @property
    def handling(self) -> int:
        return len(self._handling)

    def problems(self) -> list[str]:
        """Why updates are not handled as they should be, a line each."""
        return self._tasks.problems()

    async def start(self) -> None:
        """A store that is away is opened as soon as it is back."""
        self._is_stopping = self._ends_at_once = False
        self._is_open = False
        with suppress(StoreAwayError):
            await self._open()
        self._running = self._tasks.supervise(self._run, "the inbox dispatcher", self._clock)

    async def stop(self, grace: float) -> None:
        """Claim no more. Handlers that run after `grace` seconds are cut off: see `RegisteredHandler`."""
        self._is_stopping = True
        self._changed.set()
        if self._running is not None:
            if self._running.is_pausing:
                self._running.task.cancel()
            await asyncio.wait([self._running.task])  # not cancelled: the items of a claim would be lost
        await self._finish(list(self._handling), grace)
        await self._tasks.stop()
        with suppress(StoreError):  # items that could not be settled are handled again
            await self._settle()
        await self._inbox.close()

    def end_at_once(self) -> None:
        """Give handlers no time to end when it stops, or no more if it does so now."""
        self._ends_at_once = True
        for task in self._finishing:
            task.cancel()

    async def finish(self, source: InboxSource, grace: float) -> None:
        """End the handlers of one source in the same way, after its handler was removed."""
        await self._finish([task for task, one in self._handling.items() if one.item.source == source], grace)

    async def _finish(self, tasks: list[asyncio.Task[None]], grace: float) -> None:
        if not tasks:
            return
        grace = 0.0 if self._ends_at_once else grace
        log_wait(log, grace, handlers=len(tasks))
        self._finishing.update(tasks)
        try:
            _, late = await asyncio.wait(tasks, timeout=grace)
        finally:
            self._finishing.difference_update(tasks)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)  # not for long: a handler that does not end is abandoned

    def wake(self) -> None:
        self._changed.set()

    async def _run(self) -> None:
        while not self._is_stopping:
            self._changed.clear()
            try:
                await self._open()
                await self._settle()
                claimed = await self._claim()
            except StoreError as error:
                self._log_trouble(str(error))
                await self._clock.sleep(STORE_RETRY_PAUSE)
                continue
            self._log_trouble(None)
            for one in claimed:
                self._start_handling(one)
            if self._running is not None:
                self._running.works()
            await (self._clock.sleep(0) if claimed else self._until_something_changes())

    def _log_trouble(self, trouble: str | None) -> None:
        """Log it once, until it is another trouble or over."""
        if trouble is not None and trouble != self._trouble:
            log.warning("updates wait: %s", trouble)
        self._trouble = trouble

    async def _open(self) -> None:
        if not self._is_open:
            await self._inbox.open()
            self._is_open = True

    async def _claim(self) -> list[ClaimedItem]:
        room = min(self._room(), CLAIM_BATCH)
        if not room:
            return []
        suspects = any(one.is_suspect for one in self._handling.values())
        return await self._inbox.claim(list(self._handlers), room, suspects=0 if suspects else 1)

    def _room(self) -> int:
        return max(0, self._at_once - len(self._handling)) if self._handlers else 0

    def _start_handling(self, claimed: ClaimedItem) -> None:
        task = self._handler_tasks.start(self._handle(claimed), claimed.item.source, awaited=True)
        self._handling[task] = claimed
        task.add_done_callback(self._on_handling_ended)

    def _on_handling_ended(self, task: asyncio.Task[None]) -> None:
        claimed = self._handling.pop(task)
        if task.cancelled():  # on stop, before its handler began
            self._to_settle.append(lambda: self._inbox.release(claimed))
        elif (error := task.exception()) is not None:  # an error of ours: its chat must not wait for ever
            self._park(claimed, describe_error(error), error)
        self._changed.set()

    async def _handle(self, claimed: ClaimedItem) -> None:
        if claimed.crashes >= CRASHES_BEFORE_PARKING:
            self._park(claimed, f"killed the process that handled it {claimed.crashes} times")
            return
        handler = self._handlers.get(claimed.item.source)
        if handler is None:  # removed meanwhile
            self._to_settle.append(lambda: self._inbox.release(claimed))
            return
        if claimed.attempts >= max(handler.attempts, CRASHES_BEFORE_PARKING):
            self._park(claimed, f"was not done when its process ended, {claimed.attempts} times")
            return
        if self._turn is not None and not claimed.attempts and (wait := await self._turn(claimed.item)):
            self._to_settle.append(lambda: self._inbox.release(claimed, after=wait))
            return
        run = HandlerRun()
        work = self._handler_tasks.start(
            _call(handler.handle, claimed, run, self._slow_calls), claimed.item.source, awaited=True
        )
        try:
            while not work.done() and (left := self._deadline - run.own_seconds()) > 0:
                await asyncio.wait([work], timeout=max(left, SHORTEST_LOOK))
            if work.done():
                self._judge(claimed, handler, work)
            else:
                await self._cancel_overdue(claimed, work)
        except asyncio.CancelledError:  # the dispatcher stops
            place = waiting_place(work)
            work.cancel()
            await asyncio.wait([work], timeout=CANCEL_GRACE)
            if work.done() and not work.cancelled():  # it ended by itself, perhaps with sys.exit()
                self._judge(claimed, handler, work)
                return
            if not work.done():
                _log_abandoned(claimed, work)
            self._cut_off(claimed, place, repeat=handler.is_repeatable or run.is_repeatable)

    def _cut_off(self, claimed: ClaimedItem, place: str, *, repeat: bool) -> None:
        """Its handler had begun and did not end in time: only its author knows whether it may run again."""
        if repeat:
            log.warning("%s was cut off %s: it is handled again", _describe(claimed), place)
            # Counted: this item may be what stops the process, again and again.
            self._to_settle.append(lambda: self._inbox.release(claimed, failed=True))
            return
        self._park(claimed, f"was cut off {place} when its process stopped, and may be half done")

    def _judge(self, claimed: ClaimedItem, handler: RegisteredHandler, work: asyncio.Task[None]) -> None:
        cancelled = asyncio.CancelledError("what it waited for was cancelled")
        error = cancelled if work.cancelled() else work.exception()
        if error is None:
            self._handled.append(claimed)
            return
        if isinstance(error, UnreadableBodyError):
            self._park(claimed, f"{UNREADABLE}: {error}")
            return
        reason, attempts = describe_error(error), claimed.attempts + 1
        if attempts >= handler.attempts:
            self._park(claimed, reason, error)
            return
        after = min(2.0**attempts, MAX_HANDLER_BACKOFF)
        log.warning("%s failed, again in %.0f s: %s", _describe(claimed), after, reason)
        self._to_settle.append(lambda: self._inbox.release(claimed, after=after, failed=True))

    async def _cancel_overdue(self, claimed: ClaimedItem, work: asyncio.Task[None]) -> None:
        place = waiting_place(work)
        work.cancel()
        await asyncio.wait([work], timeout=CANCEL_GRACE)
        self._park(claimed, f"took longer than {self._deadline:g} s and was cancelled {place}")
        if not work.done():
            _log_abandoned(claimed, work)
        elif not work.cancelled():
            work.exception()  # retrieved, else asyncio would report it: the deadline is the reason

    def _park(self, claimed: ClaimedItem, reason: str, error: BaseException | None = None) -> None:
        trace = "" if error is None else f"\n{traceback_text(error)}"
        log.error("%s is parked: %s%s", _describe(claimed), reason, trace)
        self._to_settle.append(lambda: self._inbox.park(claimed, reason))

    async def _settle(self) -> None:
        """Settle the items that have ended. If the store fails, the rest is settled next time."""
        handled = self._handled[:]
        if handled:
            await self._inbox.done(handled)
            del self._handled[: len(handled)]
        while self._to_settle:
            try:
                await self._to_settle[0]()
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001  (the others must be settled all the same)
                log.error("an update could not be settled:\n%s", traceback_text(error))  # noqa: TRY400
            del self._to_settle[0]

    async def _until_something_changes(self) -> None:
        """Wait for something new to claim, if there is room for it, or for a handler that ends."""
        if self._room() and (self._inbox_wait is None or self._inbox_wait.done()):
            self._inbox_wait = self._tasks.start(self._wait_for_inbox(), "inbox")
        if not self._is_stopping:
            await self._changed.wait()

    async def _wait_for_inbox(self) -> None:
        try:
            await self._inbox.wait()
        except StoreError:  # logged by the next claim
            await self._clock.sleep(STORE_RETRY_PAUSE)
        self._changed.set()


async def _call(handle: ItemHandler, claimed: ClaimedItem, run: HandlerRun, slow: SlowCalls | None) -> None:
    watch = nullcontext() if slow is None else slow.handler(run)
    with running(run), watch, effect_keys_for(f"{claimed.item.source}:{claimed.item.key}"):
        await handle(claimed)


def _describe(claimed: ClaimedItem) -> str:
    kind, _, name = claimed.item.source.partition(":")
    what = "update" if kind == "bot" else "event"
    return f"{what} {claimed.item.key} of {kind} {name}"


def _log_abandoned(claimed: ClaimedItem, work: asyncio.Task[None]) -> None:
    place = waiting_place(work)
    log.error("%s does not end, though it was cancelled %s: it goes on alone", _describe(claimed), place)
