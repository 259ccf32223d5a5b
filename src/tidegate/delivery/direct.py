"""Calls that are made now: a turn in the schedule instead of a place in the queue."""

import asyncio
import math
from collections.abc import Mapping
from typing import Any, Final, Self, assert_never

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
from tidegate.outbox.port import Outbox, Turn
from tidegate.pacing.rules import Family, cost_of, family_of

WAIT_FOR_TIMEOUT: Final = 1.0  # seconds, with a store that is asked when a turn may be had


class DirectCalls:
    def __init__(self, outbox: Outbox, sender: Sender, clock: Clock, max_attempts: int) -> None:
        self._outbox = outbox
        self._sender = sender
        self._clock = clock
        self._max_attempts = max_attempts
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
        """Make a call, again where it surely did not happen; `max_wait` seconds of waiting in all."""
        give_up = math.inf if max_wait is None else self._clock.monotonic() + max_wait
        outcome: Outcome = NotSent("never tried")
        for attempt in range(1, self._max_attempts + 1):
            left = give_up - self._clock.monotonic()
            wait = None if left == math.inf else left
            outcome = await self._try(bot, method, params, attempt, priority=priority, max_wait=wait)
            match outcome:
                case Delivered(result=result):
                    return result
                case Migrated(chat_id=chat_id):
                    params = {**params, "chat_id": chat_id}
                case Dead() | Unknown():
                    break
                case Retry() | Refused() | NotSent() | Unreachable():
                    pause = _pause(outcome, method, params)
                    if attempt == self._max_attempts or self._clock.monotonic() + pause > give_up:
                        break
                    await self._clock.sleep(pause)
                case _:
                    assert_never(outcome)
        raise error_for(outcome, method, params.get("chat_id"))

    async def once(self, bot: BotId, method: str, params: dict[str, Any]) -> Outcome:
        """Make a call if it may be made at this instant. LimitedError if not."""
        return await self._try(bot, method, params, 1, priority=Priority.HIGH, max_wait=0.0)

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
        """For a call that somebody else makes: `async with` it, and say in its `outcome` how it ended.

        Waits for the right to call, `max_wait` seconds at most (then LimitedError; None: as it takes). Where
        no limit applies it is granted at once. Of `params` only the chat and what a call costs are looked at.
        One that uploads takes its time: its silence means nothing, and its slots are held until it ends.
        """
        silences = None if uploads else self._silences
        return HeldTurn(self._outbox, self._clock, bot, method, params, priority, max_wait, silences)

    async def _try(
        self,
        bot: BotId,
        method: str,
        params: Mapping[str, Any],
        attempt: int,
        *,
        priority: Priority,
        max_wait: float | None,
    ) -> Outcome:
        held = HeldTurn(self._outbox, self._clock, bot, method, params, priority, max_wait, None)
        async with held:
            held.outcome = NotSent("failed")
            call = OutgoingCall(
                bot=bot,
                method=method,
                params=params,
                attempt=attempt,
                claimed_at=self._clock.monotonic(),
                on_silence=held.cool,
            )
            try:
                held.outcome = await self._sender.send(call)
            except asyncio.CancelledError:
                held.outcome = interrupted(call)
                raise
            finally:
                held.ended_at = call.ended_at
        return held.outcome


class HeldTurn:
    """The right to make one call now. Its slots are held while the body runs."""

    __slots__ = (
        "_bot",
        "_clock",
        "_max_wait",
        "_method",
        "_outbox",
        "_params",
        "_priority",
        "_silences",
        "_turn",
        "ended_at",
        "outcome",
    )

    def __init__(  # noqa: PLR0917  (made in two places, for each call)
        self,
        outbox: Outbox,
        clock: Clock,
        bot: BotId,
        method: str,
        params: Mapping[str, Any],
        priority: Priority,
        max_wait: float | None,
        silences: "SilenceTimer | None",
    ) -> None:
        # Whoever leaves without a word was cancelled or failed on the way: it may have been sent.
        self.outcome: Outcome = Unknown("interrupted")
        self.ended_at: float | None = None  # monotonic; None: when the body ends
        self._outbox, self._clock = outbox, clock
        self._bot, self._method, self._params = bot, method, params
        self._priority, self._max_wait, self._silences = priority, max_wait, silences
        self._turn: Turn | None = None

    async def __aenter__(self) -> Self:
        family, chat_id = family_of(self._method), _lane_chat(self._params.get("chat_id"))
        if family == "free" or chat_id is None:
            return self
        cost = cost_of(self._method, self._params)
        paid = bool(self._params.get("allow_paid_broadcast"))
        try:
            self._turn = await self._outbox.turn(
                self._bot, chat_id, family, cost, self._priority, paid=paid, max_wait=self._max_wait
            )
        except TimeoutError:
            wait = await self._wait(chat_id, family, cost)
            raise LimitedError(method=self._method, chat_id=chat_id, retry_after=wait) from None
        if self._silences is not None:
            self._silences.begin(self)
        return self

    async def _wait(self, chat_id: ChatId, family: Family, cost: int) -> float:
        """Seconds until another try is worth it; if the store does not say it soon, as long as this one."""
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
        """No answer for too long: the slots cool from now, though the call may still be answered."""
        if self._turn is not None:
            await self._outbox.cool([self._turn])


class SilenceTimer:
    """Calls that others make, by when they began: if an answer is too long in coming, the slots cool.

    One timer for all of them: one for each would cost as much as its turn.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[HeldTurn, float] = {}  # in order of time
        self._timer: asyncio.TimerHandle | None = None
        self._cooling: set[asyncio.Task[None]] = set()  # held until they are done

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
            self._cooling.add(task := asyncio.create_task(held.cool()))
            task.add_done_callback(self._cooling.discard)


def _lane_chat(chat_id: object) -> ChatId | None:
    """As the schedule knows it; None if there is none, or if Telegram will say what is wrong with it."""
    try:
        return check_chat(chat_id) if chat_id is not None else None
    except BadInputError:
        return None


def has_lane(method: str, params: Mapping[str, Any]) -> bool:
    """Whether any limit applies that can be waited for."""
    return family_of(method) != "free" and _lane_chat(params.get("chat_id")) is not None


def _pause(outcome: Retry | Refused | NotSent | Unreachable, method: str, params: Mapping[str, Any]) -> float:
    """Seconds before the next attempt. What has a lane waits there: a refusal has closed it."""
    if isinstance(outcome, Retry):
        return outcome.delay
    if isinstance(outcome, Unreachable):
        return outcome.wait
    return outcome.retry_after if isinstance(outcome, Refused) and not has_lane(method, params) else 0.0


def error_for(outcome: Outcome, method: str, chat_id: ChatId | None) -> NotDeliveredError:
    """What a caller is told of a call that was not delivered."""
    match outcome:
        case Dead(reason=reason, description=description):
            return DeadError(method=method, chat_id=chat_id, reason=reason, description=description)
        case Unknown(reason=reason):
            text = f"{name_of(method, chat_id)} left and was not answered ({reason}): it may have happened"
            return OutcomeUnknownError(text, method=method, chat_id=chat_id)
        case Refused(retry_after=retry_after):
            return LimitedError(method=method, chat_id=chat_id, retry_after=retry_after)
        case Retry(reason=reason) | NotSent(reason=reason) | Unreachable(reason=reason):
            return DeadError(
                method=method, chat_id=chat_id, reason="attempts", description=f"the last: {reason}"
            )
        case _:
            return DeadError(
                method=method, chat_id=chat_id, reason="attempts", description="the last: migrated"
            )
