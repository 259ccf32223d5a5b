"""The sender: makes one call in time, judges its answer, and leaves a bot alone that cannot send."""

import asyncio
import logging
import random
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec

from tidegate.clock import Clock
from tidegate.delivery.outage_tracker import GIVE_WAY, OutageTracker
from tidegate.delivery.outcome_policy import RetryBackoff, judge
from tidegate.delivery.request_body import files_in
from tidegate.delivery.transport import ApiAnswer, BotApiTransport, NoAnswer
from tidegate.errors import name_of
from tidegate.incidents import SlowCalls
from tidegate.model import (
    LOST_ANSWERS,
    BotId,
    Dead,
    NotSent,
    Outcome,
    Probe,
    Refused,
    Retry,
    Unknown,
    Unreachable,
    shows_that_bot_sends,
)
from tidegate.scrubber import hide, scrub_secrets
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.worker")

LATE_AFTER: Final = 5.0  # seconds after its claim, after which a call is not sent any more
NOT_ADDED: Final = "its token is not known here: add the bot"
REVOKED: Final = "its token was refused, 401: add the bot again with its new token"
WRONG_PATH: Final = (
    "404 for the path of the method: its token is malformed, or the address of its server wrong"
)
SILENCE_AFTER: Final = 5.0  # seconds without an answer after which the slots of a call cool
_UNKNOWN_METHOD = re.compile(r"method not found")  # Telegram's text where only the method is wrong


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
    key: str = ""  # names its message, or what a direct call asks for
    queued: bool = False  # from the queue: it can wait
    probe: Probe | None = None
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
        outage_limit: float | None = None,
        slow_calls: SlowCalls | None = None,
    ) -> None:
        self._wire = wire
        self._clock = clock
        self._policy = policy or RetryBackoff()
        self._draw = draw or random.Random()  # noqa: S311  (jitter)
        self._late, self._silence = late, silence
        self._slow_calls = slow_calls
        self._outages = OutageTracker(self._policy, self._draw, outage_limit)
        self._tasks = BackgroundTasks()
        self.bots: dict[BotId, BotAccess] = {}
        self.look_for_bots: Callable[[], Awaitable[None]] | None = None  # another process may have added one

    @property
    def max_attempts(self) -> int:
        """The attempts of a message that has no number of its own."""
        return self._policy.max_attempts

    async def send(self, call: OutgoingCall) -> Outcome:
        """Make a call, at most once. If the task is cancelled, `interrupted` gives the outcome."""
        if call.bot not in self.bots and self.look_for_bots is not None:
            await self.look_for_bots()
        access, call.ended_at = self.bots.get(call.bot), self._clock.monotonic()
        if access is None:
            return self._note(call, Unreachable(0.0, NOT_ADDED))
        if not call.queued and (known := self._outages.known(call.bot, call.ended_at)) is not None:
            return Unreachable(known.wait, known.reason, known.lasted)
        if call.queued and (held := await self._hold_back(call, access)) is not None:
            return held
        return self._note(call, self._judge(call, await self._make(call, access)))

    async def _hold_back(self, call: OutgoingCall, access: BotAccess) -> Outcome | None:
        """In an outage, decide what becomes of a message that is not sent now; None: it is sent."""
        outages, probe = self._outages, call.probe
        if not outages.asks_first(call.bot, call.key, probe):
            return None
        if probe is not None and outages.gives_way(call.bot, call.key, self._clock.monotonic()):
            return NotSent(LOST_ANSWERS, GIVE_WAY)
        outcome = self._judge(call, await self._ask(call, access))
        call.ended_at = self._clock.monotonic()
        if not shows_that_bot_sends(outcome):
            return outages.unanswered(call.bot, outcome, call.ended_at, probe)
        if probe is not None:
            outages.sends_probe(call.bot, call.ended_at)
        return None

    async def _ask(self, call: OutgoingCall, access: BotAccess) -> ApiAnswer | NoAnswer:
        """Find out whether an answer comes soon, by a call that copies nothing and costs no limit."""
        wire, deadline = access.wire or self._wire, call.claimed_at + self._late
        try:
            async with self._clock.timeout(self._silence):
                return await wire.call(access.token, "getMe", {}, api_url=access.api_url, deadline=deadline)
        except TimeoutError:
            return NoAnswer(left=True, reason="timeout")

    async def _make(self, call: OutgoingCall, access: BotAccess) -> ApiAnswer | NoAnswer:
        timer: asyncio.TimerHandle | None = None
        began = self._clock.monotonic()

        def left() -> None:
            call.left = True

        def written() -> None:
            nonlocal timer
            call.left = True
            timer = self._clock.call_later(
                self._silence, lambda: self._tasks.start(call.on_silence(), "cool a silent call")
            )

        try:
            return await (access.wire or self._wire).call(
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
            self._note_duration(call, call.ended_at - began)

    def _note_duration(self, call: OutgoingCall, seconds: float) -> None:
        """Report a slow call, but no upload: that takes as long as the file is large."""
        slow = self._slow_calls
        if slow is not None and slow.is_slow_http(seconds) and not files_in(call.method, call.params):
            slow.note_http("Telegram", call.method, seconds)

    def _judge(self, call: OutgoingCall, answer: ApiAnswer | NoAnswer) -> Outcome:
        policy = self._policy
        outcome = judge(answer, attempt=call.attempt, policy=policy, draw=self._draw, method=call.method)
        if isinstance(outcome, Refused) and outcome.retry_after >= policy.longest_closure:
            log.warning(
                "Telegram closed %s for long: it is tried again in %.0f s (see `tidegate limits`)",
                name_of(call.method, call.params.get("chat_id")),
                outcome.retry_after,
            )
        if not call.queued or not isinstance(outcome, Dead):
            return outcome
        # These are not the message's fault: it waits for a new token, or for the right address.
        if outcome.reason == "unauthorized":
            return Unreachable(0.0, REVOKED)
        if outcome.reason == "not_found_method" and not _UNKNOWN_METHOD.search(outcome.description.lower()):
            return Retry(policy.delay(call.attempt, self._draw), WRONG_PATH, counted=False)
        return outcome

    def _note(self, call: OutgoingCall, outcome: Outcome) -> Outcome:
        return self._outages.note(
            call.bot, call.key, outcome, call.ended_at, probe=call.probe, attempt=call.attempt
        )

    def outages(self) -> list[str]:
        """The bots that cannot send now, in words, as far as this process has seen it."""
        return self._outages.words(self._clock.monotonic())

    async def close(self) -> None:
        await self._wire.close()


def interrupted(call: OutgoingCall) -> Outcome:
    """The outcome of a call that was cancelled on its way."""
    return Unknown("interrupted") if call.left else NotSent("interrupted")
