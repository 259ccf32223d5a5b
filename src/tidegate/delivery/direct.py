"""Direct calls: a turn in the schedule instead of a place in the queue, and one retry loop for all."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

import msgspec

from tidegate.clock import Clock
from tidegate.delivery.sender import SILENCE_AFTER, OutgoingCall, Sender, interrupted
from tidegate.errors import (
    BadInputError,
    DeadError,
    LimitedError,
    NotDeliveredError,
    OutcomeUnknownError,
    StoreError,
    name_of,
)
from tidegate.events import CallAttempted, EventStream, TurnTaken
from tidegate.handler_run import waiting_for_gate
from tidegate.model import (
    BotId,
    ChatId,
    Dead,
    Delivered,
    Migrated,
    NotSent,
    Outcome,
    Priority,
    Refused,
    Retry,
    Unknown,
    Unreachable,
)
from tidegate.outbox.admission import check_chat
from tidegate.outbox.port import OutboxSender, Turn
from tidegate.outbox.transitions import given_up
from tidegate.pacing.rules import Family, cost_of, family_of
from tidegate.tasks import BackgroundTasks

WAIT_FOR_TIMEOUT: Final = 1.0  # seconds, with a store that is asked when a turn may be had
LONGEST_PAUSE: Final = 1.0  # seconds after a failure of the server: a caller waits
# Seconds for which a call that surely was not made is tried again, from the beginning of an outage.
OUTAGE_PATIENCE: Final = 5.0

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class DirectRetryPolicy(msgspec.Struct, frozen=True):
    """The rules by which a direct call is attempted again. Pure.

    A refusal (429) does. So does whatever surely did not happen: a failure of the server, no connection (both
    for a few seconds), a chat that has moved; with `only_refusals` these end the call, for a library whose
    users expect that. What may have happened is never repeated.
    """

    max_attempts: int
    only_refusals: bool = False

    def pause(  # noqa: PLR0911  (one a case)
        self, outcome: Outcome, attempt: int, *, in_lane: bool
    ) -> float | None:
        """Seconds before the next attempt; None if there is none.

        A call in a lane does not pause after a refusal: that has closed its lane, so its next turn waits.
        """
        if attempt >= self.max_attempts:
            return None
        if isinstance(outcome, Refused):
            return 0.0 if in_lane else outcome.retry_after
        if self.only_refusals:
            return None
        match outcome:
            case Retry(delay=delay):
                return min(delay, LONGEST_PAUSE)
            case Unreachable(wait=pause) | NotSent(delay=pause):
                return pause
            case Migrated():
                return 0.0
            case _:
                return None


class DirectCall(Protocol[T_co]):
    """One direct call as its library makes it. Its `str` names it in the log."""

    @property
    def in_lane(self) -> bool:
        """Return whether its chat has a lane in which it waits for its turn."""
        ...

    async def attempt(self, number: int, max_wait: float | None) -> tuple[Outcome, T_co]:
        """Make it once, in its turn, waiting `max_wait` seconds at most for that.

        Returns what became of it, and the library's own answer or error. Whatever it raises ends the call.
        """
        ...

    def readdress(self, chat_id: ChatId) -> None:
        """The chat has moved: the next attempt goes there."""


class DescribedCall(Protocol):
    """A direct call as others are told of it. Its `str` names it in the log."""

    @property
    def in_lane(self) -> bool: ...

    @property
    def api_method(self) -> str:
        """The method, as Telegram spells it."""
        ...

    @property
    def chat_id(self) -> ChatId | None: ...

    @property
    def seconds(self) -> float:
        """The seconds that the last attempt was on the wire."""
        ...

    def content(self) -> Mapping[str, Any]:
        """Return what is sent, as Telegram spells it: texts, and the messages that it refers to."""
        ...

    def result(self) -> Any:  # noqa: ANN401  (Telegram's)
        """Return Telegram's answer to the last attempt as plain values; None if it was not delivered."""
        ...


class DirectResult(NamedTuple, Generic[T]):
    """The last attempt of a direct call."""

    outcome: Outcome
    answer: T
    too_late: bool = False  # another attempt was due, later than the caller wanted to wait


async def call_with_retries(
    call: DirectCall[T],
    policy: DirectRetryPolicy,
    clock: Clock,
    max_wait: float | None,
    *,
    sleep: Callable[[float], Awaitable[None]] | None = None,
    note: Callable[[Outcome | None], None] = lambda _: None,
) -> DirectResult[T]:
    """Make a call until it ends, with `max_wait` seconds of waiting in all (None: without a bound).

    `note` is told the outcome of each attempt, and None if the call is given up because of `max_wait`.
    """
    give_up = math.inf if max_wait is None else clock.monotonic() + max_wait
    attempt, troubled_until = 0, math.inf
    while True:
        attempt += 1
        left = None if max_wait is None else max(0.0, give_up - clock.monotonic())
        try:
            with waiting_for_gate():
                outcome, answer = await call.attempt(attempt, left)
        except LimitedError:
            note(None)
            raise
        note(outcome)
        if isinstance(outcome, Delivered):
            return DirectResult(outcome, answer)
        pause = policy.pause(outcome, attempt, in_lane=call.in_lane)
        if isinstance(outcome, Migrated) and not policy.only_refusals:
            call.readdress(outcome.chat_id)
        if pause is None:
            return DirectResult(outcome, answer)
        wait = outcome.retry_after if isinstance(outcome, Refused) else pause
        if isinstance(outcome, Retry | Unreachable | NotSent):
            now, lasted = clock.monotonic(), outcome.lasted if isinstance(outcome, Unreachable) else 0.0
            troubled_until = min(troubled_until, now - lasted + OUTAGE_PATIENCE)
            if now + wait > troubled_until or (attempt > 1 and now + wait >= give_up):
                return DirectResult(outcome, answer)  # a short failure is waited for, an outage is told
        if wait and clock.monotonic() + wait > give_up:  # a retry without a wait is for its turn to refuse
            note(None)
            return DirectResult(outcome, answer, too_late=True)
        if pause:
            with waiting_for_gate():
                await (sleep or clock.sleep)(pause)


class DirectCalls:
    """Turns for direct calls, and the calls that the gate makes itself."""

    def __init__(
        self,
        outbox: OutboxSender,
        sender: Sender,
        clock: Clock,
        max_attempts: int,
        events: EventStream | None = None,
    ) -> None:
        self._outbox = outbox
        self._sender = sender
        self._clock = clock
        self._events = events or EventStream()
        self._policy = DirectRetryPolicy(max_attempts)
        self._silences = SilenceTimer(clock)

    async def call(
        self,
        bot: BotId,
        method: str,
        params: dict[str, Any],
        *,
        priority: Priority = Priority.HIGH,
        max_wait: float | None = None,
    ) -> Any:  # noqa: ANN401  (Telegram's result)
        """Make a call and return Telegram's result. Raises NotDeliveredError; see `DirectRetryPolicy`."""
        call = _GateCall(self, bot, method, params, priority)
        outcome, _, _ = await call_with_retries(
            call, self._policy, self._clock, max_wait, note=lambda outcome: self._note_own(call, outcome)
        )
        if isinstance(outcome, Delivered):
            return outcome.result
        raise error_for(outcome, method, call.params.get("chat_id"))

    async def once(self, bot: BotId, method: str, params: dict[str, Any]) -> Outcome:
        """Make a call if that is allowed at this instant. Raises LimitedError if not."""
        call = _GateCall(self, bot, method, params, Priority.HIGH)
        outcome, _ = await call.attempt(1, 0.0)
        self._note_own(call, outcome)
        return outcome

    def note(self, bot: BotId, call: DescribedCall, outcome: Outcome | None) -> None:
        """Count an attempt of a call; None: it was given up because of `max_wait`."""
        self._outbox.note_call(bot, str(call), outcome, in_lane=call.in_lane)
        if self._events.has(CallAttempted):
            self._events.publish(
                CallAttempted(
                    bot, call.api_method, call.chat_id, outcome, call.seconds, call.content, call.result
                )
            )

    def _note_own(self, call: "_GateCall", outcome: Outcome | None) -> None:
        if outcome is None or call.made:
            self.note(call.bot, call, outcome)

    def turn(
        self,
        bot: BotId,
        method: str,
        params: Mapping[str, Any],
        *,
        priority: Priority = Priority.HIGH,
        max_wait: float | None = None,
        uploads: bool = False,
    ) -> "HeldTurn":
        """A turn for a call that a bot library makes: `async with` it, and set its `outcome`.

        Waits for the right to call, `max_wait` seconds at most (then LimitedError; None: without a bound).
        Where no limit applies it is granted at once. Of `params` only the chat and the cost are looked at.
        The slots of a call that uploads are held until it ends, however long it is silent.
        """
        silences = None if uploads else self._silences
        return HeldTurn(
            self._outbox, self._clock, self._events, bot, method, params, priority, max_wait, silences
        )

    async def send(
        self, bot: BotId, method: str, params: Mapping[str, Any], attempt: int, held: "HeldTurn"
    ) -> Outcome:
        """Make one attempt in a turn."""
        async with held:
            held.outcome = NotSent("failed")
            call = OutgoingCall(
                bot=bot,
                method=method,
                params=params,
                attempt=attempt,
                claimed_at=self._clock.monotonic(),
                on_silence=held.cool,
                key=name_of(method, params.get("chat_id")),
            )
            try:
                held.outcome = await self._sender.send(call)
            except asyncio.CancelledError:
                held.outcome = interrupted(call)
                raise
            finally:
                held.ended_at, held.made = call.ended_at, call.left
                held.seconds = max(0.0, call.ended_at - call.claimed_at)
        return held.outcome


class _GateCall:
    """A call through the gate's own client."""

    def __init__(
        self, calls: DirectCalls, bot: BotId, method: str, params: dict[str, Any], priority: Priority
    ) -> None:
        self.params = params
        self.bot = bot
        self.made = False  # the last attempt reached the network
        self.seconds = 0.0
        self.api_method = method
        self._outcome: Outcome | None = None  # of the last attempt
        self._calls = calls
        self._priority = priority

    def __str__(self) -> str:
        return name_of(self.api_method, self.chat_id)

    @property
    def chat_id(self) -> ChatId | None:
        chat_id: ChatId | None = self.params.get("chat_id")
        return chat_id

    @property
    def in_lane(self) -> bool:
        return has_lane(self.api_method, self.params)

    def content(self) -> Mapping[str, Any]:
        return self.params

    def result(self) -> Any:  # noqa: ANN401  (Telegram's)
        return self._outcome.result if isinstance(self._outcome, Delivered) else None

    async def attempt(self, number: int, max_wait: float | None) -> tuple[Outcome, None]:
        # The sender watches its own silence: a turn of the gate's own call needs no timer.
        held = self._calls.turn(
            self.bot, self.api_method, self.params, priority=self._priority, max_wait=max_wait, uploads=True
        )
        self._outcome = await self._calls.send(self.bot, self.api_method, self.params, number, held)
        self.made, self.seconds = held.made, held.seconds
        return self._outcome, None

    def readdress(self, chat_id: ChatId) -> None:
        self.params = {**self.params, "chat_id": chat_id}


def error_for(outcome: Outcome, method: str, chat_id: ChatId | None) -> NotDeliveredError:
    """The error that a caller gets for a call that was not delivered."""
    match outcome:
        case Dead(reason=reason, description=description):
            return DeadError(method=method, chat_id=chat_id, reason=reason, description=description)
        case Unknown(reason=reason):
            text = f"{name_of(method, chat_id)} left and was not answered ({reason}): it may have happened"
            return OutcomeUnknownError(text, method=method, chat_id=chat_id)
        case Refused(retry_after=retry_after):
            return LimitedError(method=method, chat_id=chat_id, retry_after=retry_after)
        case Unreachable(reason=reason, lasted=lasted):
            text = f"cannot reach Telegram: {reason}; for {lasted:.0f} s now"
            return DeadError(method=method, chat_id=chat_id, reason="unreachable", description=text)
        case Retry(reason=last) | NotSent(reason=last):
            pass
        case _:
            last = "migrated"
    text = given_up("all", last)
    return DeadError(method=method, chat_id=chat_id, reason="attempts", description=text)


class HeldTurn(msgspec.Struct, eq=False):
    """The right to make one call now. Its slots are held while the body runs, which sets `outcome`."""

    _outbox: OutboxSender
    _clock: Clock
    _events: EventStream
    _bot: BotId
    _method: str
    _params: Mapping[str, Any]
    _priority: Priority
    _max_wait: float | None
    _silences: "SilenceTimer | None"
    # A body that does not set it was cancelled or failed on the way: the call may have been sent.
    outcome: Outcome = Unknown("interrupted")
    ended_at: float | None = None  # monotonic; None: when the body ends
    seconds: float = 0.0  # on the wire; likewise
    made: bool = False  # known for the gate's own calls: a byte of it may have reached the network
    _turn: Turn | None = None

    def __repr__(self) -> str:
        return f"HeldTurn({self._method})"  # its parameters are private

    async def __aenter__(self) -> Self:
        family, chat_id = family_of(self._method), _lane_chat(self._params.get("chat_id"))
        if family == "free" or chat_id is None:
            return self
        cost = cost_of(self._method, self._params)
        paid = bool(self._params.get("allow_paid_broadcast"))
        began = self._clock.monotonic()
        try:
            self._turn = await self._outbox.turn(
                self._bot, chat_id, family, cost, self._priority, paid=paid, max_wait=self._max_wait
            )
        except TimeoutError:
            self._events.publish(TurnTaken(self._bot, None))
            wait = await self._wait(chat_id, family, cost)
            raise LimitedError(method=self._method, chat_id=chat_id, retry_after=wait) from None
        self._events.publish(TurnTaken(self._bot, self._clock.monotonic() - began))
        if self._silences is not None:
            self._silences.begin(self)
        return self

    async def _wait(self, chat_id: ChatId, family: Family, cost: int) -> float:
        """Seconds until another try is worth it. A store that does not answer soon counts as a full wait."""
        try:
            async with self._clock.timeout(WAIT_FOR_TIMEOUT):
                return await self._outbox.wait_for(self._bot, chat_id, family, cost)
        except (StoreError, TimeoutError):
            return max(WAIT_FOR_TIMEOUT, self._max_wait or 0.0)

    async def __aexit__(self, *exc: object) -> None:
        if self._turn is None:
            return
        if self._silences is not None:
            self._silences.end(self)
        age = 0.0 if self.ended_at is None else self._clock.monotonic() - self.ended_at
        await self._outbox.end_turn(self._turn, self.outcome, age)

    async def cool(self) -> None:
        """No answer for too long: the slots cool from now on, though the call may still be answered."""
        if self._turn is not None:
            await self._outbox.cool([self._turn])


class SilenceTimer:
    """Cools the slots of calls that others make, once their answers are late.

    One timer for all of them: one for each would cost as much as its turn.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[HeldTurn, float] = {}  # in order of time
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = BackgroundTasks()

    def begin(self, held: HeldTurn) -> None:
        self._since[held] = self._clock.monotonic()
        if self._timer is None:
            self._timer = self._clock.call_later(SILENCE_AFTER, self._look)

    def end(self, held: HeldTurn) -> None:
        self._since.pop(held, None)

    def _look(self) -> None:
        self._timer, now = None, self._clock.monotonic()
        while self._since:
            held, began = next(iter(self._since.items()))
            if began + SILENCE_AFTER > now:
                self._timer = self._clock.call_later(began + SILENCE_AFTER - now, self._look)
                return
            del self._since[held]
            self._tasks.start(held.cool(), "cool a silent call")


def has_lane(method: str, params: Mapping[str, Any]) -> bool:
    """Return whether a call falls under a limit that can be waited for."""
    return family_of(method) != "free" and _lane_chat(params.get("chat_id")) is not None


def _lane_chat(chat_id: object) -> ChatId | None:
    """The chat as the schedule knows it; None if there is none, or if it is for Telegram to reject."""
    try:
        return check_chat(chat_id) if chat_id is not None else None
    except BadInputError:
        return None
