"""The rate limiter of a python-telegram-bot application: every call it makes goes through the gate."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from telegram import Bot
from telegram.ext import Application, BaseRateLimiter

from tidegate.adapters.catching import catch
from tidegate.adapters.gate import Gate
from tidegate.adapters.ptb.bots import KnownBots, bot_behind
from tidegate.adapters.ptb.call import Call, Callback, Result
from tidegate.adapters.ptb.direct import Directly
from tidegate.adapters.ptb.following import GROUP, Follower
from tidegate.adapters.ptb.pace import Pace
from tidegate.adapters.ptb.queueing import Queueing
from tidegate.model import Priority

log = logging.getLogger("tidegate")

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
            self._directly.close()
            if self._started:
                self._started = False
                await self._gate.stop()

    async def _open(self, bot: Bot) -> None:
        if not self._is_due():
            return
        async with self._starting:
            if self._is_due():
                self._bots.id_of(bot)  # known before anything is sent: messages may wait in the store
                await self._gate.start()
                self._started = True

    def _is_due(self) -> bool:
        return self._wanted and not self._started

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
