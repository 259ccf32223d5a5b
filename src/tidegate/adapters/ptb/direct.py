"""Calls that python-telegram-bot makes by itself, each in its turn."""

import asyncio
import logging
import math
from typing import NamedTuple

from telegram.error import TelegramError

from tidegate.adapters.gate import Gate
from tidegate.adapters.ptb.bots import KnownBots
from tidegate.adapters.ptb.call import Call, Result
from tidegate.adapters.ptb.errors import TurnTooLateError, in_both, unknown
from tidegate.adapters.ptb.outcomes import outcome_of
from tidegate.errors import ClosedError, LimitedError
from tidegate.model import Delivered, NotSent, Outcome, Priority, Refused, Unknown

log = logging.getLogger("tidegate")


class Directly:
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

    async def make(self, call: Call) -> Result:
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
                raise unknown(tried.error, tried.outcome.reason, call.endpoint, call.chat_id) from tried.error
            if not isinstance(tried.outcome, Refused) or not tries_left:
                raise tried.error
            await self._stand_back(call, tried.outcome.retry_after, give_up, tried.error)

    def _patience(self, call: Call) -> float:
        """Seconds that it may wait in all."""
        usual = self._gate.settings.telegram_rate_limit_wait if self._max_wait is None else self._max_wait
        wait = call.pace.wait(usual)
        return math.inf if wait is None else wait

    async def _try(self, call: Call, give_up: float) -> "Result | _Failed":
        if not call.paced:  # also while nothing is open: getMe comes first, deleteWebhook last
            return await _made(call)
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
                made = await _made(call)
                held.outcome = made.outcome if isinstance(made, _Failed) else Delivered(made)
                return made
        except LimitedError as error:
            raise in_both(error) from None
        except ClosedError:
            self.check_open(call)  # says it better
            raise

    async def _stand_back(self, call: Call, wait: float, give_up: float, error: TelegramError) -> None:
        """A refusal has closed the chat, so that its next turn waits. What has no turn waits here."""
        if self._gate.clock.monotonic() + wait > give_up:
            raise TurnTooLateError(method=call.endpoint, chat_id=call.chat_id, retry_after=wait) from error
        log.warning("Telegram refused %s: it is tried again in %.0f s", call, wait)
        if call.paced:
            return
        try:
            async with self._gate.clock.timeout(wait):
                await self._closed.wait()
        except TimeoutError:
            return
        self.check_open(call)

    def check_open(self, call: Call) -> None:
        """Raises ClosedError."""
        if self._closed.is_set():
            raise ClosedError(f"{call} was not made: the application is shut down, and its limiter with it")


class _Failed(NamedTuple):
    outcome: Outcome
    error: TelegramError


async def _made(call: Call) -> Result | _Failed:
    try:
        return await call.make()
    except TelegramError as error:
        return _Failed(outcome_of(error, call.endpoint), error)
