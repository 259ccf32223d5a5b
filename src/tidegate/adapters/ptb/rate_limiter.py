"""The rate limiter of a python-telegram-bot application: every call it makes goes through the gate."""

import asyncio
import logging
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from telegram import Bot
from telegram.error import TelegramError
from telegram.ext import Application, BaseRateLimiter

from tidegate.adapters.call_capture import capture_if_queued
from tidegate.adapters.port import Gate
from tidegate.adapters.ptb.application_inbox import ApplicationInbox
from tidegate.adapters.ptb.attachment import App, Builder, add_inbox
from tidegate.adapters.ptb.call import Callback, CallOptions, KnownBots, PtbCall, Result, bot_of_callback
from tidegate.adapters.ptb.errors import (
    LimitedRetryAfterError,
    as_ptb_error,
    outcome_of,
    unknown_outcome_error,
)
from tidegate.adapters.ptb.queued_call import CallQueue
from tidegate.adapters.ptb.update_processor import REPLY_TRACKER_GROUP, InboxUpdateProcessor, ReplyTracker
from tidegate.errors import BadInputError, ClosedError, LimitedError
from tidegate.inbound.throttle_rules import ThrottleRules
from tidegate.leader_lease import take_over
from tidegate.model import Delivered, NotSent, Outcome, Priority, Refused, Unknown

log = logging.getLogger("tidegate")


class PtbDirectCalls:
    """Makes calls while it is open. `otherwise` is the priority of what is known to answer nobody."""

    def __init__(self, gate: Gate, bots: KnownBots, *, max_wait: float | None) -> None:
        self._gate = gate
        self._bots = bots
        self._max_wait = max_wait
        self._closed = asyncio.Event()
        self.otherwise = Priority.HIGH

    def open(self) -> None:
        self._closed.clear()

    def close(self) -> None:
        """Whoever waits is sent away."""
        self._closed.set()

    async def make(self, call: PtbCall) -> Result:
        """Raises what the library raised, but for refusals: these are waited for and tried again.

        What may have happened says so: its error is also an OutcomeUnknownError.
        """
        give_up = self._gate.clock.monotonic() + self._patience(call)
        tries_left = self._gate.settings.telegram_max_retries
        while True:
            tried = await self._try(call, give_up)
            if not isinstance(tried, _Failed):
                return tried
            tries_left -= 1
            # What only reads cannot have done anything.
            if isinstance(tried.outcome, Unknown) and not call.endpoint.startswith("get"):
                raise unknown_outcome_error(
                    tried.error, tried.outcome.reason, call.endpoint, call.chat_id
                ) from tried.error
            if not isinstance(tried.outcome, Refused) or not tries_left:
                raise tried.error
            await self._stand_back(call, tried.outcome.retry_after, give_up, tried.error)

    def _patience(self, call: PtbCall) -> float:
        """Seconds that it may wait in all."""
        usual = self._gate.settings.telegram_rate_limit_wait if self._max_wait is None else self._max_wait
        wait = call.pace.wait(usual)
        return math.inf if wait is None else wait

    async def _try(self, call: PtbCall, give_up: float) -> "Result | _Failed":
        if not call.paced:  # also while nothing is open: getMe comes first, deleteWebhook last
            return await _make_once(call)
        bot = self._bots.id_of(call.bot)
        left = None if give_up == math.inf else max(0.0, give_up - self._gate.clock.monotonic())
        turn = self._gate.direct.turn(
            bot,
            call.endpoint,
            call.data,
            priority=call.priority(bot, self.otherwise),
            max_wait=left,
            uploads=call.uploads,
        )
        try:
            async with turn as held:
                if self._closed.is_set():
                    held.outcome = NotSent("closed")
                    self.check_open(call)
                made = await _make_once(call)
                held.outcome = made.outcome if isinstance(made, _Failed) else Delivered(made)
                return made
        except LimitedError as error:
            raise as_ptb_error(error) from None
        except ClosedError:
            self.check_open(call)  # says it better
            raise

    async def _stand_back(self, call: PtbCall, wait: float, give_up: float, error: TelegramError) -> None:
        """A refusal has closed the chat, so that its next turn waits. What has no turn waits here."""
        if self._gate.clock.monotonic() + wait > give_up:
            raise LimitedRetryAfterError(
                method=call.endpoint, chat_id=call.chat_id, retry_after=wait
            ) from error
        log.warning("Telegram refused %s: it is tried again in %.0f s", call, wait)
        if call.paced:
            return
        try:
            async with self._gate.clock.timeout(wait):
                await self._closed.wait()
        except TimeoutError:
            return
        self.check_open(call)

    def check_open(self, call: PtbCall) -> None:
        """Raises ClosedError."""
        if self._closed.is_set():
            raise ClosedError(f"{call} was not made: the application is shut down, and its limiter with it")


class _Failed(NamedTuple):
    outcome: Outcome
    error: TelegramError


async def _make_once(call: PtbCall) -> Result | _Failed:
    try:
        return await call.make()
    except TelegramError as error:
        return _Failed(outcome_of(error, call.endpoint), error)


GRACE: Final = 5.0  # seconds that handlers have to end when the application stops

RateLimitArgs = CallOptions | Mapping[str, Any] | str


class TidegateLimiter(BaseRateLimiter[RateLimitArgs]):
    """Paces one application; its gate opens and closes with it. Several may share a gate.

    `max_wait`: seconds that a call waits for its turn (TELEGRAM_RATE_LIMIT_WAIT if not given, else as it
    takes), then RetryAfter. `rate_limit_args` of a call: `"low"`, a mapping, or a `Pace`.
    """

    def __init__(self, gate: Gate, *, max_wait: float | None = None) -> None:
        CallOptions(max_wait=max_wait)  # checks it
        self._gate = gate
        self._bots = KnownBots(gate)
        self._directly = PtbDirectCalls(gate, self._bots, max_wait=max_wait)
        self._queueing = CallQueue(gate, self._bots)
        self._equipped = False
        self._intake: ApplicationInbox | None = None  # of the application that is equipped
        self._wanted = self._started = False
        self._starting = asyncio.Lock()

    # An application calls these twice, for itself and for its updater, and again if a start failed.

    async def initialize(self) -> None:
        """The gate opens as soon as Telegram has answered its bot: with the getMe that comes right after.

        Before that its bot is not known, and one whose token is wrong is never shut down.
        """
        async with self._starting:
            self._wanted = True
            self._directly.open()

    async def shutdown(self) -> None:
        """Calls that wait for their turn end with ClosedError; queued ones stay in the store."""
        async with self._starting:
            self._wanted = False
            if self._intake is not None:
                await self._intake.close()  # its handlers may still say something
            self._directly.close()
            if self._started:
                self._started = False
                await self._gate.stop()

    async def _open(self, bot: Bot) -> None:
        """An application with an inbox waits where another process has the store; others are refused."""
        if self._equipped:
            await take_over(lambda: self._start(bot), self._gate.clock, log, is_wanted=self._is_due)
        else:
            await self._start(bot)

    async def _start(self, bot: Bot) -> None:
        async with self._starting:
            if self._is_due():
                self._bots.id_of(bot)  # known before anything is sent: messages may wait in the store
                await self._gate.start()
                self._started = True

    def _is_due(self) -> bool:
        return self._wanted and not self._started

    def equip(
        self, builder: Builder, *, grace: float = GRACE, throttle: ThrottleRules | bool = True
    ) -> Builder:
        """Let the application that is built lose no update. The last thing to do before `build()`.

        An update is held in the gate's store before Telegram is told that it came; those of one chat are
        handled in order, others beside it, 256 at once (TIDEGATE_HANDLERS), each for 120 s at most
        (TIDEGATE_HANDLER_DEADLINE); what a dead process left is handled again. Replies go first, as with
        `follow`. When the application stops, handlers have `grace` seconds to end; then their updates wait
        for the next start. Of several processes one handles, the next takes over.

        Who writes too much is held (TIDEGATE_USER_RATE, 30 a minute) and told so once; `throttle` gives other
        rules, or False.
        """
        if self._equipped:
            raise BadInputError("this limiter has an application: each wants its own, as gate.ptb() gives")

        def tie(application: App, handover: InboxUpdateProcessor) -> ApplicationInbox:
            handover.bot = self._bots.id_of(application.bot)
            self._intake = ApplicationInbox(
                self._gate, application.bot, handover.bot, handover, grace=grace, throttle=throttle
            )
            return self._intake

        try:
            builder.rate_limiter(self)
            add_inbox(builder, tie)
        except RuntimeError as error:
            raise BadInputError(f"equip takes a builder with a token, not with a bot: {error}") from None
        self._equipped = True
        self._directly.otherwise = Priority.NORMAL
        return builder

    def follow(self, application: Application[Any, Any, Any, Any, Any, Any]) -> None:
        """Let replies go first: a call to the chat whose update is being handled is high, others are normal.

        Tasks and jobs that a handler starts count as part of it.
        """
        if not application.concurrent_updates:
            log.warning(
                "the application handles one update at a time: while one handler waits for its turn,"
                " everybody does. Build it with concurrent_updates(True)"
            )
        application.add_handler(ReplyTracker(self._bots.id_of(application.bot)), REPLY_TRACKER_GROUP)
        # Without this nobody could tell a reply from anything else. Replies must not wait, so all are high.
        self._directly.otherwise = Priority.NORMAL

    async def process_request(  # noqa: PLR0917  (the library's signature)
        self,
        callback: Callback,
        args: Any,  # noqa: ANN401
        kwargs: dict[str, Any],
        endpoint: str,
        data: dict[str, Any],
        rate_limit_args: RateLimitArgs | None,
    ) -> Result:
        """Make one request in its turn and return its result. Only a refusal (429) is tried again."""
        call = PtbCall(
            callback=callback,
            args=tuple(args),
            kwargs=kwargs,
            endpoint=endpoint,
            data=data,
            bot=bot_of_callback(callback),
            pace=CallOptions.of(rate_limit_args),
        )
        if call.paced or call.pace.queue:
            self._directly.check_open(call)
            await self._open(call.bot)
        capture_if_queued(lambda options: self._queueing.put(call, options))
        result = await (self._queueing if call.pace.queue else self._directly).make(call)
        await self._open(call.bot)
        return result
