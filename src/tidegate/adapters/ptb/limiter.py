"""The rate limiter of a python-telegram-bot application: every call it makes goes through the gate."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from telegram import Bot
from telegram.ext import Application, BaseRateLimiter

from tidegate.adapters.catching import catch
from tidegate.adapters.gate import Gate
from tidegate.adapters.ptb.bots import KnownBots, bot_behind
from tidegate.adapters.ptb.call import Call, Callback, Result
from tidegate.adapters.ptb.direct import Directly
from tidegate.adapters.ptb.equipping import App, Builder, equip
from tidegate.adapters.ptb.following import GROUP, Follower
from tidegate.adapters.ptb.handover import Handover
from tidegate.adapters.ptb.intake import Intake
from tidegate.adapters.ptb.pace import Pace
from tidegate.adapters.ptb.queueing import Queueing
from tidegate.errors import BadInputError, NotTheSenderError
from tidegate.inbound.throttle.rules import ThrottleRules
from tidegate.model import Priority

log = logging.getLogger("tidegate")

ASK: Final = 1.0  # seconds between two tries to take over from another process
GRACE: Final = 5.0  # seconds that handlers have to end when the application stops

RateLimitArgs = Pace | Mapping[str, Any] | str


class TidegateLimiter(BaseRateLimiter[RateLimitArgs]):
    """Paces one application; its gate opens and closes with it. Several may share a gate.

    `max_wait`: seconds that a call waits for its turn (TELEGRAM_RATE_LIMIT_WAIT if not given, else as it
    takes), then RetryAfter. `rate_limit_args` of a call: `"low"`, a mapping, or a `Pace`.
    """

    def __init__(self, gate: Gate, *, max_wait: float | None = None) -> None:
        Pace(max_wait=max_wait)  # checks it
        self._gate = gate
        self._bots = KnownBots(gate)
        self._directly = Directly(gate, self._bots, max_wait=max_wait)
        self._queueing = Queueing(gate, self._bots)
        self._equipped = False
        self._intake: Intake | None = None  # of the application that is equipped
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
        said = False
        while self._is_due():
            try:
                await self._start(bot)
            except NotTheSenderError as error:
                if not self._equipped:
                    raise
                if not said:
                    log.warning("%s. This one waits to take over", error)
                said = True
                await self._gate.clock.sleep(ASK)

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

        def tie(application: App, handover: Handover) -> Intake:
            handover.bot = self._bots.id_of(application.bot)
            self._intake = Intake(
                self._gate, application.bot, handover.bot, handover, grace=grace, throttle=throttle
            )
            return self._intake

        try:
            builder.rate_limiter(self)
            equip(builder, tie)
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
        application.add_handler(Follower(self._bots.id_of(application.bot)), GROUP)
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
        call = Call(
            callback=callback,
            args=tuple(args),
            kwargs=kwargs,
            endpoint=endpoint,
            data=data,
            bot=bot_behind(callback),
            pace=Pace.of(rate_limit_args),
        )
        if call.paced or call.pace.queue:
            self._directly.check_open(call)
            await self._open(call.bot)
        catch(lambda options: self._queueing.put(call, options))
        result = await (self._queueing if call.pace.queue else self._directly).make(call)
        await self._open(call.bot)
        return result
