"""A call that takes its turn inside the request of its client, and is passed on as it came."""

import asyncio
import random
from collections.abc import Mapping
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.delivery.bot_api import decode_answer
from tidegate.delivery.direct import DirectRetryPolicy, call_with_retries, has_lane
from tidegate.delivery.outcome_policy import RetryBackoff, judge
from tidegate.delivery.sender import LATE_AFTER
from tidegate.delivery.transport import ApiAnswer, NoAnswer, RawAnswer
from tidegate.errors import LimitedError, name_of
from tidegate.gateway.answers import too_many
from tidegate.gateway.bot_access import Caller
from tidegate.gateway.forwarding import ForwardingClient
from tidegate.gateway.received_call import ReceivedCall, plain
from tidegate.lifecycle import GateCore
from tidegate.model import ChatId, Delivered, NotSent, Outcome, Priority, Refused, Unknown

_OK: Final = b'{"ok":true'  # how Telegram begins an answer: what follows need not be decoded
_TEXTS: Final = ("text", "caption", "question")  # for those who record what was said
_REFERENCES: Final = ("message_id", "message_ids", "reply_parameters", "media")


class PacedCalls:
    """Makes calls in their turn. Telegram's answers come back as they are, except a 429.

    That is heard here, and the call takes another turn; what cannot be had within `max_wait` seconds is
    answered 429 with the true wait.
    """

    def __init__(self, core: GateCore, client: ForwardingClient, max_wait: float) -> None:
        settings = core.settings
        self.core = core
        self.client = client
        self.draw = random.Random()  # noqa: S311  (jitter)
        self.backoff = RetryBackoff(
            settings.telegram_base_delay, settings.telegram_max_delay, settings.tidegate_longest_closure
        )
        self.waiting: set[asyncio.Task[Any]] = set()  # for a turn
        self._max_wait = max_wait
        self._has_given_up = False
        self._policy = DirectRetryPolicy(settings.telegram_max_retries, only_refusals=True)

    async def make(
        self,
        caller: Caller,
        received: ReceivedCall,
        priority: Priority,
        *,
        answer_within: float | None = None,
    ) -> RawAnswer | NoAnswer:
        """Make a call. `answer_within`: seconds that Telegram has; None: the usual ones.

        Raises ApiRefusal (429) if its turn comes later than `max_wait`, or if Telegram refuses so long.
        """
        call = _Call(self, caller, received, priority, answer_within)
        task = this_task()
        try:
            outcome, answer, _ = await call_with_retries(
                call,
                self._policy,
                self.core.clock,
                self._max_wait,
                note=lambda outcome: self.core.direct.note(caller.bot, call, outcome),
            )
        except LimitedError as error:
            raise too_many(error.retry_after) from None
        except asyncio.CancelledError:
            if not self._has_given_up or task not in self.waiting:
                raise
            task.uncancel()
            self.core.direct.note(caller.bot, call, None)
            raise too_many(1, "the gateway stops: ") from None
        finally:
            self.waiting.discard(task)
        if isinstance(outcome, Refused):
            raise too_many(outcome.retry_after)
        return answer

    def give_up(self) -> None:
        """Answer the calls that still wait for a turn: the server stops soon."""
        self._has_given_up = True
        for task in self.waiting:
            task.cancel()


class _Call:
    """One direct call, as `call_with_retries` makes it and as others are told of it."""

    def __init__(
        self,
        calls: PacedCalls,
        caller: Caller,
        received: ReceivedCall,
        priority: Priority,
        answer_within: float | None,
    ) -> None:
        self._calls = calls
        self._caller = caller
        self._received = received
        self._priority = priority
        self._answer_within = answer_within
        self._answer: RawAnswer | NoAnswer = NoAnswer(left=False, reason="late")
        self._params = received.paced_params()
        self.api_method = received.method
        self.seconds = 0.0

    def __str__(self) -> str:
        return name_of(self.api_method, self.chat_id)

    @property
    def chat_id(self) -> ChatId | None:
        return self._received.chat_id

    @property
    def in_lane(self) -> bool:
        return has_lane(self.api_method, self._params)

    def content(self) -> Mapping[str, Any]:
        params = self._received.params
        texts = {name: params[name] for name in _TEXTS if name in params}
        return texts | {name: plain(params[name]) for name in _REFERENCES if name in params}

    def result(self) -> Any:  # noqa: ANN401  (Telegram's)
        body = decode_answer(self._answer) if isinstance(self._answer, RawAnswer) else None
        return None if body is None else body.get("result")

    def readdress(self, chat_id: ChatId) -> None:
        """Nothing: with `only_refusals`, the answer that names the new chat goes to the client."""

    async def attempt(self, number: int, max_wait: float | None) -> tuple[Outcome, RawAnswer | NoAnswer]:
        calls, core, received = self._calls, self._calls.core, self._received
        clock: Clock = core.clock
        turn = core.direct.turn(
            self._caller.bot,
            self.api_method,
            self._params,
            priority=self._priority,
            max_wait=max_wait,
            uploads=received.has_files,
        )
        task = this_task()
        calls.waiting.add(task)
        async with turn as held:
            calls.waiting.discard(task)
            left = False

            def leaving() -> None:
                nonlocal left
                left = True

            began = clock.monotonic()
            held.outcome = NotSent("failed")
            access = self._caller.access
            try:
                answer = await calls.client.forward(
                    access.token,
                    received.raw,
                    api_url=access.api_url,
                    deadline=began + LATE_AFTER,
                    timeout=self._answer_within,
                    on_left=leaving,
                )
                held.outcome = self._judge(answer, number)
            finally:
                if left and isinstance(held.outcome, NotSent):  # cancelled on its way
                    held.outcome = Unknown("interrupted")
                self.seconds = clock.monotonic() - began
                if not received.has_files and self._answer_within is None:
                    core.slow_calls.note_http("Telegram", self.api_method, self.seconds)
            self._answer = answer
            return held.outcome, answer

    def _judge(self, answer: RawAnswer | NoAnswer, number: int) -> Outcome:
        """Judge an answer. Of a success only a new number of an @name is of use: the rest is not decoded."""
        if isinstance(answer, RawAnswer):
            is_name = isinstance(self.chat_id, str) and self.chat_id.startswith("@")
            if answer.body.startswith(_OK) and not is_name:
                return Delivered(None)
            judged: ApiAnswer | NoAnswer = ApiAnswer(answer.status, decode_answer(answer))
        else:
            judged = answer
        calls = self._calls
        return judge(judged, attempt=number, policy=calls.backoff, draw=calls.draw, method=self.api_method)


def this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a call is made in a task")
    return task
