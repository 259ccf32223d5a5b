"""The sender: makes one call in time, judges its answer, and leaves a bot alone that cannot send."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec

from tidegate.clock import Clock
from tidegate.delivery.outcome_policy import RetryBackoff, judge
from tidegate.delivery.transport import BotApiTransport
from tidegate.model import BotId, Dead, NotSent, Outcome, Unknown, Unreachable
from tidegate.scrubber import hide, scrub_secrets
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.worker")

LONGEST_OUTAGE_WAIT: Final = 30.0  # seconds: what waits should leave soon after the end of an outage
MOST_OUTAGE_DOUBLINGS: Final = 10
LATE_AFTER: Final = 5.0  # seconds after its claim, after which a call is not sent any more
NOT_ADDED: Final = "its token is not known here: add the bot"
REVOKED: Final = "its token was refused, 401: add the bot again with its new token"
SILENCE_AFTER: Final = 5.0  # seconds without an answer after which the slots of a call cool


class BotAccess(msgspec.Struct, frozen=True):
    """The credentials of a bot. Its repr hides the token."""

    token: str
    api_url: str  # or a pattern that has {token} and {method} in it
    wire: BotApiTransport | None = None  # its own transport, for instance through a proxy

    def __post_init__(self) -> None:
        hide(self.token)  # tokens of test servers may not look like Telegram's

    def __repr__(self) -> str:
        return f"BotAccess({self.token.partition(':')[0]}:…, {scrub_secrets(self.api_url)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # else rich would show the fields in a traceback
        return [("api_url", scrub_secrets(self.api_url))]


class OutgoingCall(msgspec.Struct):
    """A call to be made. The sender fills in `left` and `ended_at`."""

    bot: BotId
    method: str
    params: Mapping[str, Any]
    attempt: int
    claimed_at: float  # monotonic
    on_silence: Callable[[], Coroutine[Any, Any, None]]  # lets the slots cool
    queued: bool = False  # from the queue: it can wait
    left: bool = False  # a byte of it may have reached the network
    ended_at: float = 0.0  # monotonic: when the answer came, or the call was given up


class Sender:
    """Makes calls for any number of bots."""

    def __init__(
        self,
        wire: BotApiTransport,
        clock: Clock,
        *,
        policy: RetryBackoff | None = None,
        draw: random.Random | None = None,
        late: float = LATE_AFTER,
        silence: float = SILENCE_AFTER,
    ) -> None:
        self._wire = wire
        self._clock = clock
        self._policy = policy or RetryBackoff()
        self._draw = draw or random.Random()  # noqa: S311  (jitter)
        self._late, self._silence = late, silence
        self._outages = OutageTracker(self._policy.base_delay)
        self._tasks = BackgroundTasks()
        self.bots: dict[BotId, BotAccess] = {}
        self.look_for_bots: Callable[[], Awaitable[None]] | None = None  # another process may have added one

    async def send(self, call: OutgoingCall) -> Outcome:
        """Make a call, at most once. If the task is cancelled, `interrupted` gives the outcome."""
        if call.bot not in self.bots and self.look_for_bots is not None:
            await self.look_for_bots()
        access = self.bots.get(call.bot)
        if access is None:
            call.ended_at = self._clock.monotonic()
            return self._outages.note(call.bot, Unreachable(0.0, NOT_ADDED), call.ended_at)
        timer: asyncio.TimerHandle | None = None

        def left() -> None:
            call.left = True

        def written() -> None:
            nonlocal timer
            call.left = True
            timer = self._clock.call_later(
                self._silence, lambda: self._tasks.start(call.on_silence(), "cool a silent call")
            )

        try:
            answer = await (access.wire or self._wire).call(
                access.token,
                call.method,
                call.params,
                api_url=access.api_url,
                deadline=call.claimed_at + self._late,
                on_left=left,
                on_written=written,
                wait_for_upload=not call.queued,  # a queued one waits in its line, without a slot
            )
        finally:
            call.ended_at = self._clock.monotonic()
            if timer is not None:
                timer.cancel()
        outcome = judge(
            answer, attempt=call.attempt, policy=self._policy, draw=self._draw, method=call.method
        )
        if call.queued and isinstance(outcome, Dead) and outcome.reason == "unauthorized":
            outcome = Unreachable(0.0, REVOKED)  # not the message's fault: it waits for a new token
        return self._outages.note(call.bot, outcome, call.ended_at)

    async def close(self) -> None:
        await self._wire.close()


def interrupted(call: OutgoingCall) -> Outcome:
    """The outcome of a call that was cancelled on its way."""
    return Unknown("interrupted") if call.left else NotSent("interrupted")


class _Outage(msgspec.Struct):
    tries: int
    until: float  # monotonic


class OutageTracker:
    """Decides how long to leave a bot alone while it cannot send: longer each time, logged once a time."""

    def __init__(self, first: float) -> None:
        self._first = first
        self._of: dict[BotId, _Outage] = {}

    def note(self, bot: BotId, outcome: Outcome, now: float) -> Outcome:
        """Note the outcome of a call. One that could not be made is returned with the wait that is due."""
        if not isinstance(outcome, Unreachable):
            if self._of.pop(bot, None) is not None:
                log.warning("bot %s:… sends again", bot)
            return outcome
        outage = self._of.setdefault(bot, _Outage(0, now))
        if now >= outage.until:  # else the call was under way when the wait began
            wait = min(LONGEST_OUTAGE_WAIT, self._first * 2.0 ** min(outage.tries, MOST_OUTAGE_DOUBLINGS))
            outage.tries, outage.until = outage.tries + 1, now + wait
            log.warning("bot %s:… cannot send (%s): waiting %.0f s", bot, outcome.reason, wait)
        return Unreachable(outage.until - now, outcome.reason)
