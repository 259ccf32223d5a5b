"""The dispatcher of the inbox: claim, handle, settle. One chat in order, chats side by side, bounded."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreAwayError, StoreError
from tidegate.failure import describe_error, traceback_text, waiting_place
from tidegate.inbound.inbox import ClaimedItem, Inbox, InboxSource
from tidegate.outbox.effect_keys import effect_keys_for

log = logging.getLogger("tidegate.inbound")

HANDLERS_AT_ONCE: Final = 256  # handlers
HANDLER_DEADLINE: Final = 120.0  # seconds: a reply may have to wait a minute for its turn in a busy group
CRASHES_BEFORE_PARKING: Final = 5  # processes that may die over an arrival
STORE_RETRY_PAUSE: Final = 1.0  # seconds after a failure of the store
CANCEL_GRACE: Final = 5.0  # seconds that a handler has to end when it was cancelled
CLAIM_BATCH: Final = 25  # arrivals claimed in a step: what their handlers do first must not hold up the loop
MAX_HANDLER_BACKOFF: Final = 300.0  # seconds

ItemHandler = Callable[[ClaimedItem], Awaitable[None]]
SettleStep = Callable[[], Coroutine[Any, Any, None]]  # a step of the inbox


class RegisteredHandler(msgspec.Struct, frozen=True):
    """Who handles what a source sends. After `attempts` that failed, an arrival is parked."""

    handle: ItemHandler
    attempts: int = 1


class InboxDispatcher:
    """Runs between `start` and `stop`. `services` may grow meanwhile; call `look_again` then."""

    def __init__(
        self,
        inbox: Inbox,
        clock: Clock,
        services: dict[InboxSource, RegisteredHandler],
        *,
        at_once: int = HANDLERS_AT_ONCE,
        deadline: float = HANDLER_DEADLINE,
    ) -> None:
        if at_once < 1 or deadline <= 0:
            raise BadInputError("a desk handles at least one update at a time, in more than 0 seconds")
        self._inbox = inbox
        self._clock = clock
        self._services = services
        self._at_once = at_once
        self._deadline = deadline
        self._handling: dict[asyncio.Task[None], ClaimedItem] = {}
        self._left: set[asyncio.Task[None]] = set()  # handlers that do not end, though cancelled
        self._done: list[ClaimedItem] = []
        self._verdicts: list[SettleStep] = []
        self._news = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._is_open = self._over = False
        self._trouble: str | None = None

    @property
    def handling(self) -> int:
        return len(self._handling)

    async def start(self) -> None:
        """A store that is away for the moment is opened as soon as it is back."""
        self._over = False
        self._is_open = False
        with suppress(StoreAwayError):
            await self._open()
        self._running = asyncio.create_task(self._run(), name="tidegate: desk")
        self._running.add_done_callback(_log_failure)

    async def stop(self, grace: float) -> None:
        """Claim no more; what is not handled after `grace` seconds is cancelled and goes back."""
        self._over = True
        self._news.set()
        if self._running is not None:
            await asyncio.wait([self._running])  # not cancelled: what a claim gave would be nobody's
        await self._end_handling(lambda _: True, grace)
        await _cancel(self._listening)
        self._listening = None
        with suppress(StoreError):  # what could not be said is handled again
            await self._settle()
        await self._inbox.close()

    async def end(self, source: InboxSource, grace: float) -> None:
        """Likewise, for what this source sends: nobody serves it any more."""
        await self._end_handling(lambda held: held.arrival.source == source, grace)

    async def _end_handling(self, concerns: Callable[[ClaimedItem], bool], grace: float) -> None:
        tasks = [task for task, held in self._handling.items() if concerns(held)]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=grace)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)  # not for long: who does not end is left alone

    def look_again(self) -> None:
        self._news.set()

    async def _run(self) -> None:
        while not self._over:
            self._news.clear()
            try:
                await self._open()
                await self._settle()
                claimed = await self._claim()
            except StoreError as error:
                self._say(str(error))
                await self._clock.sleep(STORE_RETRY_PAUSE)
                continue
            self._say(None)
            for held in claimed:
                self._begin(held)
            await (self._clock.sleep(0) if claimed else self._until_something_happens())

    def _say(self, trouble: str | None) -> None:
        """Once, until it is another or over."""
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
        suspects = any(held.is_suspect for held in self._handling.values())
        return await self._inbox.claim(list(self._services), room, suspects=0 if suspects else 1)

    def _room(self) -> int:
        return max(0, self._at_once - len(self._handling)) if self._services else 0

    def _begin(self, held: ClaimedItem) -> None:
        task = asyncio.create_task(self._handle(held), name=f"tidegate: {held.arrival.source}")
        self._handling[task] = held
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        held = self._handling.pop(task)
        if task.cancelled():  # the desk closes. Counted: one may be what closes it, again and again
            self._verdicts.append(lambda: self._inbox.release(held, failed=True))
        elif (error := task.exception()) is not None:  # of ours: its chat must not wait for ever
            self._park(held, describe_error(error), error)
        self._news.set()

    async def _handle(self, held: ClaimedItem) -> None:
        if held.crashes >= CRASHES_BEFORE_PARKING:
            self._park(held, f"killed the process that handled it {held.crashes} times")
            return
        service = self._services.get(held.arrival.source)
        if service is None:  # it has left meanwhile
            self._verdicts.append(lambda: self._inbox.release(held))
            return
        if held.attempts >= max(service.attempts, CRASHES_BEFORE_PARKING):
            self._park(held, f"was not done when its process ended, {held.attempts} times")
            return
        working = asyncio.create_task(_call(service.handle, held))
        try:
            await asyncio.wait([working], timeout=self._deadline)
            if working.done():
                self._judge(held, service, working)
            else:
                await self._overran(held, working)
        except asyncio.CancelledError:  # the desk closes
            working.cancel()
            await asyncio.wait([working], timeout=CANCEL_GRACE)
            if not working.done():
                self._leave_alone(held, working)
            elif not working.cancelled():  # it has come to an end of its own, sys.exit() too
                self._judge(held, service, working)
                return
            raise

    def _judge(self, held: ClaimedItem, service: RegisteredHandler, working: asyncio.Task[None]) -> None:
        cut = asyncio.CancelledError("what it waited for was cancelled")
        error = cut if working.cancelled() else working.exception()
        if error is None:
            self._done.append(held)
            return
        reason, attempts = describe_error(error), held.attempts + 1
        if attempts >= service.attempts:
            self._park(held, reason, error)
            return
        after = min(2.0**attempts, MAX_HANDLER_BACKOFF)
        log.warning("%s failed, again in %.0f s: %s", _describe(held), after, reason)
        self._verdicts.append(lambda: self._inbox.release(held, after=after, failed=True))

    async def _overran(self, held: ClaimedItem, working: asyncio.Task[None]) -> None:
        place = waiting_place(working)
        working.cancel()
        await asyncio.wait([working], timeout=CANCEL_GRACE)
        self._park(held, f"took longer than {self._deadline:g} s and was cancelled {place}")
        if not working.done():
            self._leave_alone(held, working)
        elif not working.cancelled():
            working.exception()  # taken note of: the deadline is what is told

    def _leave_alone(self, held: ClaimedItem, working: asyncio.Task[None]) -> None:
        place = waiting_place(working)
        log.error("%s does not end, though it was cancelled %s: it goes on alone", _describe(held), place)
        self._left.add(working)
        working.add_done_callback(self._left.discard)

    def _park(self, held: ClaimedItem, reason: str, error: BaseException | None = None) -> None:
        log.error(
            "%s is parked: %s%s",
            _describe(held),
            reason,
            "" if error is None else f"\n{traceback_text(error)}",
        )
        self._verdicts.append(lambda: self._inbox.park(held, reason))

    async def _settle(self) -> None:
        """Tell the inbox what has ended. What it did not take is told again."""
        done = self._done[:]
        if done:
            await self._inbox.done(done)
            del self._done[: len(done)]
        while self._verdicts:
            try:
                await self._verdicts[0]()
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001  (the others must be told all the same)
                log.error("what became of an update cannot be written down:\n%s", traceback_text(error))  # noqa: TRY400
            del self._verdicts[0]

    async def _until_something_happens(self) -> None:
        """Something new to claim, if there is room for it; or a handler that has ended."""
        if self._room() and (self._listening is None or self._listening.done()):
            self._listening = asyncio.create_task(self._listen(), name="tidegate: inbox")
        if not self._over:
            await self._news.wait()

    async def _listen(self) -> None:
        try:
            await self._inbox.wait()
        except StoreError:  # told by who claims
            await self._clock.sleep(STORE_RETRY_PAUSE)
        self._news.set()


async def _call(handle: ItemHandler, held: ClaimedItem) -> None:
    with effect_keys_for(f"{held.arrival.source}:{held.arrival.key}"):
        await handle(held)


def _describe(held: ClaimedItem) -> str:
    kind, _, name = held.arrival.source.partition(":")
    what = "update" if kind == "bot" else "event"
    return f"{what} {held.arrival.key} of {kind} {name}"


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("the desk has failed: no update is handled any more\n%s", traceback_text(error))
