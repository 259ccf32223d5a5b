"""A request until it is answered: a turn, the wire, a verdict, and perhaps another turn."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.upstream.complaint import as_it_is
from tidegate.upstream.exchange import Exchange
from tidegate.upstream.failing import as_error, hung_up, too_long
from tidegate.upstream.limiter.base import Limiter
from tidegate.upstream.retry_after import closing
from tidegate.upstream.retrying import IDEMPOTENT, Again, Good, RetryPolicy, Tries, judge, reason_of
from tidegate.upstream.telling import Telling, records_in
from tidegate.upstream.wire import Discreet, NoResponse, Request, Response, Wire

CANCELLED: Final = NoResponse(left=True, reason="cancelled")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and how it is to be asked."""

    request: Request
    idempotent: bool | None = None  # None: as its method promises
    background: bool = False
    record: str | None = None

    @property
    def repeatable(self) -> bool:
        return self.request.method in IDEMPOTENT if self.idempotent is None else self.idempotent


class Asking:
    """Every slot that is taken cools, or is given back, whatever happens in between."""

    def __init__(
        self,
        name: str,
        wire: Wire,
        limiter: Limiter,
        clock: Clock,
        *,
        policy: RetryPolicy,
        lockout: float,
        telling: Telling,
    ) -> None:
        self._name, self._wire, self._limiter, self._clock = name, wire, limiter, clock
        self._policy, self._lockout, self._telling = policy, lockout, telling
        self._draw = random.Random()  # noqa: S311  (spreads retries, is no secret)
        self._hide = wire.hide if isinstance(wire, Discreet) else as_it_is
        self._waiting: set[asyncio.Timeout] = set()  # of those who wait for a turn or between two attempts
        self._closed = False

    async def close(self) -> None:
        """Who waits is told so at once, who is on the wire as soon as that has hung up."""
        self._closed = True
        while self._waiting:
            self._waiting.pop().reschedule(asyncio.get_running_loop().time())
        await self._wire.close()

    def check_open(self, request: Request, tries: Tries = Tries()) -> None:  # noqa: B008  (frozen)
        if self._closed:
            raise hung_up(self._name, request, tries)

    async def ask(self, question: Question) -> Response:
        """Until there is a good answer (2xx); else an error."""
        tries, deadline = Tries(), float("inf")
        while True:
            self._check(question, tries, deadline)
            waited = await self._turn(question, tries)
            deadline = min(deadline, self._clock.monotonic() + self._policy.patience)
            outcome = await self._exchange(question, tries, waited)
            tries = tries.after(outcome, question.request.method)
            verdict = judge(
                outcome,
                method=question.request.method,
                idempotent=question.repeatable,
                tries=tries,
                policy=self._policy,
                draw=self._draw,
                hide=self._hide,
            )
            if isinstance(outcome, Response) and isinstance(verdict, Good):
                return outcome
            if not isinstance(verdict, Good | Again):
                raise as_error(verdict, self._name, question.request, self._limiter.closed_for)
            pause = verdict.delay if isinstance(verdict, Again) else 0.0
            self._check(question, tries, deadline - pause)
            async with self._until_closed(question, tries):
                await self._clock.sleep(pause)

    def _check(self, question: Question, tries: Tries, deadline: float) -> None:
        """Raise if there is no use in waiting for a turn."""
        self.check_open(question.request, tries)
        now, closed = self._clock.monotonic(), self._limiter.closed_for
        if now + closed > min(deadline, now + self._policy.patience):
            raise too_long(self._name, question.request, tries, closed)

    @asynccontextmanager
    async def _until_closed(self, question: Question, tries: Tries) -> AsyncIterator[None]:
        try:
            async with self._clock.timeout(None) as waits:
                self._waiting.add(waits)
                try:
                    yield
                finally:
                    self._waiting.discard(waits)
        except TimeoutError:
            raise hung_up(self._name, question.request, tries) from None

    async def _turn(self, question: Question, tries: Tries) -> float:
        async with self._until_closed(question, tries):
            waited = await self._limiter.take(background=question.background)
        if self._closed:
            await self._limiter.give_back()
        self.check_open(question.request, tries)
        return waited

    async def _exchange(self, question: Question, tries: Tries, waited: float) -> Response | NoResponse:
        at, began = self._clock.now(), self._clock.monotonic()
        outcome: Response | NoResponse = CANCELLED
        try:
            outcome = await self._wire.send(question.request)
        finally:
            seconds = self._clock.monotonic() - began
            try:  # first: whatever a hook or a handler of logs does, no slot is lost
                await self._settle(outcome)
            finally:
                self._tell(question, outcome, at=at, seconds=seconds, waited=waited, tries=tries)
        return outcome

    async def _settle(self, outcome: Response | NoResponse) -> None:
        try:  # first, or the slot would be given to the next in line
            await self._close_if_told(outcome)
        finally:
            if isinstance(outcome, NoResponse) and not outcome.left:
                await self._limiter.give_back()
            else:
                await self._limiter.answered()

    async def _close_if_told(self, outcome: Response | NoResponse) -> None:
        seconds = closing(outcome, lockout=self._lockout, now=self._clock.now())
        if seconds is not None:
            refused = isinstance(outcome, Response) and outcome.status == HTTPStatus.TOO_MANY_REQUESTS
            await self._limiter.close_for(seconds, refused=refused)

    def _tell(
        self,
        question: Question,
        outcome: Response | NoResponse,
        *,
        at: float,
        seconds: float,
        waited: float,
        tries: Tries,
    ) -> None:
        answer = outcome if isinstance(outcome, Response) else None
        self._telling.tell(
            Exchange(
                api=self._name,
                method=question.request.method,
                endpoint=question.request.path,
                status=answer.status if answer else None,
                seconds=seconds,
                size=len(answer.body) if answer else 0,
                record=question.record,
                records=records_in(outcome) if self._telling.in_detail else None,
                waited=waited,
                attempt=tries.attempts + tries.refusals + 1,
                reason=reason_of(outcome),
                at=at,
            )
        )
