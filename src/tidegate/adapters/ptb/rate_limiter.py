"""The rate limiter of a python-telegram-bot application: every call it makes goes through the gate."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from telegram import Bot
from telegram.error import TelegramError
from telegram.ext import Application, BaseRateLimiter

from tidegate.adapters.call_context import capture_if_queued
from tidegate.adapters.port import Gate
from tidegate.adapters.ptb.application_inbox import ApplicationInbox
from tidegate.adapters.ptb.call import Callback, CallOptions, KnownBots, PtbCall, Result, bot_of_callback
from tidegate.adapters.ptb.errors import (
    LimitedRetryAfterError,
    as_ptb_error,
    outcome_of,
    unknown_outcome_error,
)
from tidegate.adapters.ptb.queued_call import CallQueue
from tidegate.adapters.ptb.update_processor import REPLY_TRACKER_GROUP, ReplyTracker
from tidegate.delivery.direct import DirectRetryPolicy, HeldTurn, call_with_retries
from tidegate.errors import ClosedError, LimitedError
from tidegate.inbound.throttle import ThrottleRules
from tidegate.leader_lease import take_over
from tidegate.model import BotId, ChatId, Delivered, NotSent, Outcome, Priority, Refused, Unknown

if TYPE_CHECKING:
    from tidegate.adapters.ptb.attachment import Builder

log = logging.getLogger("tidegate")

HANDLER_GRACE: Final = 5.0  # seconds that handlers have to end when the application stops

App = Application[Any, Any, Any, Any, Any, Any]
RateLimitArgs = CallOptions | Mapping[str, Any] | str
Hook = Callable[[], Awaitable[None]]


class TidegateLimiter(BaseRateLimiter[RateLimitArgs]):
    """Paces one application; its gate opens and closes with it. Several may share a gate.

    `max_wait`: seconds that a call waits for its turn (TELEGRAM_RATE_LIMIT_WAIT if not given, else without a
    bound), then RetryAfter. `rate_limit_args` of a call: `"low"`, a mapping, or `CallOptions`.
    """

    def __init__(self, gate: Gate, *, max_wait: float | None = None, takes_over: bool = False) -> None:
        CallOptions(max_wait=max_wait)  # checks it
        self.gate = gate
        self._takes_over = takes_over  # waits while another process has the store
        self.bots = KnownBots(gate)
        self._direct = PtbDirectCalls(gate, self.bots, max_wait=max_wait)
        self._queue = CallQueue(gate, self.bots)
        self.has_inbox = False
        self.inbox: ApplicationInbox | None = None  # of its application, once that is built
        self._is_wanted = self._is_started = False
        self._start_lock = asyncio.Lock()
        self._on_open: list[tuple[Hook, Hook]] = []  # called after the gate opened, and before it closes

    def belongs_to(self, core: object) -> bool:
        """Return whether this is a limiter of the gate with this core."""
        return self.gate is core

    def on_open(self, opened: Hook, closing: Hook) -> None:
        """Have a function called when the gate has opened for the application, and one before it closes."""
        self._on_open.append((opened, closing))

    # An application calls these twice, for itself and for its updater, and again if a start failed.

    async def initialize(self) -> None:
        """Let the gate open as soon as Telegram has answered the getMe that comes right after.

        Before that its bot is not known, and an application whose token is wrong is never shut down.
        """
        async with self._start_lock:
            self._is_wanted = True
            self._direct.open()

    async def shutdown(self) -> None:
        """End calls that wait for their turn with ClosedError. Queued calls stay in the store."""
        async with self._start_lock:
            self._is_wanted = False
            if self.inbox is not None:
                await self.inbox.close()  # its handlers may still reply
            self._direct.close()
            if self._is_started:
                self._is_started = False
                for _, closing in self._on_open:
                    await closing()
                await self.gate.stop()

    def refuse_calls(self) -> None:
        """End calls that wait for their turn with ClosedError, and those that come: the application stops."""
        self._direct.close()

    def accept_calls(self) -> None:
        """Take back `refuse_calls`, unless the application is shut down."""
        if self._is_wanted:
            self._direct.open()

    async def _open(self, bot: Bot) -> None:
        """Start the gate."""
        if not self._is_due():
            return
        if self._takes_over:
            await take_over(partial(self._start, bot), self.gate.clock, log, is_wanted=self._is_due)
        else:
            await self._start(bot)

    async def _start(self, bot: Bot) -> None:
        async with self._start_lock:
            if self._is_due():
                self.bots.id_of(bot)  # known before anything is sent: messages may wait in the store
                await self.gate.start()
                self._is_started = True
                for opened, _ in self._on_open:
                    await opened()

    def _is_due(self) -> bool:
        return self._is_wanted and not self._is_started

    def equip(
        self, builder: "Builder", *, grace: float = HANDLER_GRACE, throttle: ThrottleRules | bool = True
    ) -> "Builder":
        """Give the application that is built this limiter and an inbox. Call it last before `build()`.

        `gate.attach(builder)` does the same with a limiter of its own. An update is stored before Telegram is
        told that it came; updates of one chat are handled in order, chats side by side, 256 at once
        (TIDEGATE_HANDLERS), each for 120 s at most (TIDEGATE_HANDLER_DEADLINE); those of a dead process are
        handled again. Replies go first, as with `follow`. When the application stops, handlers have `grace`
        seconds to end; then their updates wait for the next start. Of several processes one handles, and
        another takes over from it.

        Updates above TIDEGATE_USER_RATE (30 a minute) per user are dropped, and the user is told once;
        `throttle` gives other rules, or False.
        """
        from tidegate.adapters.ptb.attachment import equip  # noqa: PLC0415  (it makes limiters)

        return equip(self, builder, grace=grace, throttle=throttle)

    def use_inbox(self) -> None:
        """The application has an inbox, which tells replies from other calls."""
        self.has_inbox = self._takes_over = True
        self._direct.default_priority = Priority.NORMAL

    def follow(self, application: App) -> None:
        """Give calls to the chat whose update is being handled high priority, others normal.

        Tasks and jobs that a handler starts count as part of it.
        """
        if not application.concurrent_updates:
            log.warning(
                "the application handles one update at a time: while one handler waits for its turn,"
                " all others do. Build it with concurrent_updates(True)"
            )
        tracker = ReplyTracker(self.bots.id_of(application.bot), self.gate.events)
        application.add_handler(tracker, REPLY_TRACKER_GROUP)
        # Without it no call can be told from a reply. Replies must not wait, so all calls are high then.
        self._direct.default_priority = Priority.NORMAL

    async def process_request(  # noqa: PLR0917  (the library's signature)
        self,
        callback: Callback,
        args: Any,  # noqa: ANN401
        kwargs: dict[str, Any],
        endpoint: str,
        data: dict[str, Any],
        rate_limit_args: RateLimitArgs | None,
    ) -> Result:
        """Make one request in its turn and return its result. Only a refusal (429) is retried."""
        call = PtbCall(
            callback=callback,
            args=tuple(args),
            kwargs=kwargs,
            endpoint=endpoint,
            data=data,
            bot=bot_of_callback(callback),
            options=CallOptions.of(rate_limit_args),
        )
        if call.in_lane or call.options.queue:
            self._direct.check_open(call)
            await self._open(call.bot)
        capture_if_queued(lambda options: self._queue.put(call, options))
        result = await (self._queue if call.options.queue else self._direct).make(call)
        await self._open(call.bot)
        return result


class PtbDirectCalls:
    """Makes direct calls while it is open. `default_priority` is that of calls which are no replies."""

    def __init__(self, gate: Gate, bots: KnownBots, *, max_wait: float | None) -> None:
        self.gate = gate
        self.bots = bots
        self._max_wait = gate.settings.telegram_rate_limit_wait if max_wait is None else max_wait
        self._policy = DirectRetryPolicy(gate.settings.telegram_max_retries, only_refusals=True)
        self._closed = asyncio.Event()
        self._waits: set[asyncio.Timeout] = set()  # for a turn
        self.default_priority = Priority.HIGH

    def open(self) -> None:
        self._closed.clear()

    def close(self) -> None:
        """Calls that wait raise ClosedError."""
        self._closed.set()
        while self._waits:
            self._waits.pop().reschedule(0.0)

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    def check_open(self, call: PtbCall) -> None:
        """Raises ClosedError."""
        if self.is_closed:
            raise ClosedError(f"{call} was not made: the application stops, or has stopped") from None

    async def enter_turn(self, turn: HeldTurn, stack: AsyncExitStack) -> HeldTurn:
        """Wait for a turn. Raises TimeoutError if it is closed meanwhile."""
        async with self.gate.clock.timeout(None) as wait:
            self._waits.add(wait)
            try:
                return await stack.enter_async_context(turn)
            finally:
                self._waits.discard(wait)

    async def make(self, call: PtbCall) -> Result:
        """Raises the library's error; a refusal is waited for and the call retried.

        The error of a call that may have happened is also an OutcomeUnknownError.
        """
        direct, max_wait = _DirectPtbCall(self, call), call.options.wait_bound(self._max_wait)
        outcome, answer, too_late = await call_with_retries(
            direct,
            self._policy,
            self.gate.clock,
            max_wait,
            sleep=partial(self._sleep, call),
            note=partial(self._note, direct, call),
        )
        if not isinstance(answer, TelegramError):
            return answer
        # A call that only reads cannot have done anything.
        if isinstance(outcome, Unknown) and not call.endpoint.startswith("get"):
            raise unknown_outcome_error(answer, outcome.reason, call.endpoint, call.chat_id) from answer
        if too_late and isinstance(outcome, Refused):
            raise LimitedRetryAfterError(
                method=call.endpoint, chat_id=call.chat_id, retry_after=outcome.retry_after
            ) from answer
        raise answer

    def _note(self, direct: "_DirectPtbCall", call: PtbCall, outcome: Outcome | None) -> None:
        number = call.bot.token.partition(":")[0]
        if number.isdecimal():  # else Telegram is about to say so
            self.gate.direct.note(BotId(int(number)), direct, outcome)

    async def _sleep(self, call: PtbCall, seconds: float) -> None:
        """Raises ClosedError if the application is shut down meanwhile."""
        with suppress(TimeoutError):
            async with self.gate.clock.timeout(seconds):
                await self._closed.wait()
        self.check_open(call)


class _DirectPtbCall:
    """A direct call that python-telegram-bot makes."""

    def __init__(self, calls: PtbDirectCalls, call: PtbCall) -> None:
        self._calls = calls
        self._call = call
        self.in_lane = call.in_lane
        self.api_method = call.endpoint
        self.chat_id = call.chat_id
        self.seconds = 0.0
        self._result: Any = None

    def __str__(self) -> str:
        return str(self._call)

    def content(self) -> dict[str, Any]:
        return self._call.content()

    def result(self) -> Any:  # noqa: ANN401  (Telegram's)
        return self._result

    async def attempt(
        self,
        number: int,  # noqa: ARG002  (only refusals are retried, and they say when)
        max_wait: float | None,
    ) -> tuple[Outcome, Result | TelegramError]:
        call, calls = self._call, self._calls
        if not self.in_lane:  # also while the gate is not open: getMe comes first, deleteWebhook last
            return await self._make_once()
        bot = calls.bots.id_of(call.bot)
        priority = call.priority(bot, calls.default_priority)
        turn = calls.gate.direct.turn(
            bot, call.endpoint, call.data, priority=priority, max_wait=max_wait, uploads=call.has_upload
        )
        try:
            async with AsyncExitStack() as stack:
                held = await calls.enter_turn(turn, stack)
                if calls.is_closed:
                    held.outcome = NotSent("closed")
                    calls.check_open(call)
                held.outcome, answer = await self._make_once()
                return held.outcome, answer
        except LimitedError as error:
            raise as_ptb_error(error) from None
        except (ClosedError, TimeoutError):
            calls.check_open(call)  # its text says more
            raise

    async def _make_once(self) -> tuple[Outcome, Result | TelegramError]:
        gate = self._calls.gate
        began = gate.clock.monotonic()
        try:
            result = await self._call.make()
        except TelegramError as error:
            return outcome_of(error, self._call.endpoint), error
        finally:
            self.seconds = gate.clock.monotonic() - began
            if not self._call.has_upload:
                gate.slow_calls.note_http("Telegram", self._call.endpoint, self.seconds)
        self._result = result
        return Delivered(result), result

    def readdress(self, chat_id: ChatId) -> None:
        raise AssertionError(f"ChatMigrated ends a call, so it is not made again to {chat_id}")
