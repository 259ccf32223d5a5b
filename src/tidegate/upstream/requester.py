"""One request until it is answered: wait for a turn, send, judge the answer, perhaps retry."""

import asyncio
import copyreg
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final, assert_never

import msgspec

from tidegate.clock import Clock
from tidegate.errors import (
    ClosedError,
    PartlyDoneError,
    UpstreamAwayError,
    UpstreamError,
    UpstreamGarbledError,
    UpstreamRefusedError,
    UpstreamUnknownError,
)
from tidegate.upstream.limiter import Limiter
from tidegate.upstream.request_log import Exchange, RequestLog, records_in
from tidegate.upstream.retry import (
    IDEMPOTENT,
    UpstreamAttempts,
    UpstreamAway,
    UpstreamGarbled,
    UpstreamOk,
    UpstreamRefused,
    UpstreamRetry,
    UpstreamRetryPolicy,
    UpstreamUnknown,
    failure_word,
    judge,
    lockout_of,
    unredacted,
)
from tidegate.upstream.transport import (
    NoResponse,
    RedactingTransport,
    UpstreamRequest,
    UpstreamResponse,
    UpstreamTransport,
)

MAY_HAVE_HAPPENED = "it may have happened: look before you repeat it"


def error_for(
    verdict: UpstreamRefused | UpstreamAway | UpstreamUnknown | UpstreamGarbled,
    api: str,
    asked: UpstreamRequest,
    closed: float,
) -> UpstreamError:
    """`closed`: seconds for which nobody may ask, if so."""
    match verdict:
        case UpstreamRefused(status, text):
            return UpstreamRefusedError(
                text, api=api, method=asked.method, endpoint=asked.path, status=status
            )
        case UpstreamAway(reason):
            return UpstreamAwayError(
                reason, api=api, method=asked.method, endpoint=asked.path, retry_after=closed or None
            )
        case UpstreamUnknown(reason):
            text = f"no certain answer ({reason}), {MAY_HAVE_HAPPENED}"
            return UpstreamUnknownError(text, api=api, method=asked.method, endpoint=asked.path)
        case UpstreamGarbled(reason):
            return UpstreamGarbledError(reason, api=api, method=asked.method, endpoint=asked.path)
        case _:
            assert_never(verdict)


def patience_error(api: str, asked: UpstreamRequest, tries: UpstreamAttempts, closed: float) -> UpstreamError:
    """Its patience would end before it may be asked again."""
    if tries.unsure:
        return error_for(UpstreamUnknown("no answer within its patience"), api, asked, closed)
    why = f"nobody may ask for another {closed:.1f} s" if closed else "its patience is over"
    seen = (
        f" (after {tries.attempts} attempts and {tries.refusals} refusals)"
        if tries != UpstreamAttempts()
        else ""
    )
    return error_for(UpstreamAway(f"not waited for: {why}{seen}"), api, asked, closed)


def closed_error(api: str, asked: UpstreamRequest, tries: UpstreamAttempts) -> UpstreamError | ClosedError:
    """The client was closed before it could be asked, or asked again."""
    if tries.unsure:
        return error_for(UpstreamUnknown("the client was closed"), api, asked, 0.0)
    return ClosedError(
        f"{api}: the client was closed, and asks nothing any more: make a new one (gate.upstream(…) or"
        " gate.nocodb(…), when the gate was opened again)"
    )


def _rebuild_error(kind: type[UpstreamError], args: tuple[Any, ...], data: dict[str, Any]) -> UpstreamError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(data)
    return error


def _reduce_error(error: UpstreamError) -> tuple[Any, ...]:
    return _rebuild_error, (type(error), error.args, vars(error))


# By itself an exception is made anew from its text alone. These cross processes with the results of tasks.
for _kind in (
    UpstreamError,
    UpstreamRefusedError,
    UpstreamAwayError,
    UpstreamUnknownError,
    UpstreamGarbledError,
    PartlyDoneError,
):
    copyreg.pickle(_kind, _reduce_error)


CANCELLED: Final = NoResponse(left=True, reason="cancelled")


class UpstreamCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and how it is to be asked."""

    request: UpstreamRequest
    idempotent: bool | None = None  # None: as its method promises
    background: bool = False
    record: str | None = None

    @property
    def repeatable(self) -> bool:
        return self.request.method in IDEMPOTENT if self.idempotent is None else self.idempotent


class Requester:
    """Every slot that is taken cools, or is given back, whatever happens in between."""

    def __init__(
        self,
        name: str,
        wire: UpstreamTransport,
        limiter: Limiter,
        clock: Clock,
        *,
        policy: UpstreamRetryPolicy,
        lockout: float,
        telling: RequestLog,
    ) -> None:
        self._name, self._wire, self._limiter, self._clock = name, wire, limiter, clock
        self._policy, self._lockout, self._telling = policy, lockout, telling
        self._draw = random.Random()  # noqa: S311  (spreads retries, is no secret)
        self._hide = wire.hide if isinstance(wire, RedactingTransport) else unredacted
        self._waiting: set[asyncio.Timeout] = set()  # of those who wait for a turn or between two attempts
        self._closed = False

    async def close(self) -> None:
        """Who waits is told so at once, who is on the wire as soon as that has hung up."""
        self._closed = True
        while self._waiting:
            self._waiting.pop().reschedule(asyncio.get_running_loop().time())
        await self._wire.close()

    def check_open(self, request: UpstreamRequest, tries: UpstreamAttempts = UpstreamAttempts()) -> None:  # noqa: B008  (frozen)
        if self._closed:
            raise closed_error(self._name, request, tries)

    async def ask(self, question: UpstreamCall) -> UpstreamResponse:
        """Until there is a good answer (2xx); else an error."""
        tries, deadline = UpstreamAttempts(), float("inf")
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
            if isinstance(outcome, UpstreamResponse) and isinstance(verdict, UpstreamOk):
                return outcome
            if not isinstance(verdict, UpstreamOk | UpstreamRetry):
                raise error_for(verdict, self._name, question.request, self._limiter.closed_for)
            pause = verdict.delay if isinstance(verdict, UpstreamRetry) else 0.0
            self._check(question, tries, deadline - pause)
            async with self._until_closed(question, tries):
                await self._clock.sleep(pause)

    def _check(self, question: UpstreamCall, tries: UpstreamAttempts, deadline: float) -> None:
        """Raise if there is no use in waiting for a turn."""
        self.check_open(question.request, tries)
        now, closed = self._clock.monotonic(), self._limiter.closed_for
        if now + closed > min(deadline, now + self._policy.patience):
            raise patience_error(self._name, question.request, tries, closed)

    @asynccontextmanager
    async def _until_closed(self, question: UpstreamCall, tries: UpstreamAttempts) -> AsyncIterator[None]:
        try:
            async with self._clock.timeout(None) as waits:
                self._waiting.add(waits)
                try:
                    yield
                finally:
                    self._waiting.discard(waits)
        except TimeoutError:
            raise closed_error(self._name, question.request, tries) from None

    async def _turn(self, question: UpstreamCall, tries: UpstreamAttempts) -> float:
        async with self._until_closed(question, tries):
            waited = await self._limiter.take(background=question.background)
        if self._closed:
            await self._limiter.give_back()
        self.check_open(question.request, tries)
        return waited

    async def _exchange(
        self, question: UpstreamCall, tries: UpstreamAttempts, waited: float
    ) -> UpstreamResponse | NoResponse:
        at, began = self._clock.now(), self._clock.monotonic()
        outcome: UpstreamResponse | NoResponse = CANCELLED
        try:
            outcome = await self._wire.send(question.request)
        finally:
            seconds = self._clock.monotonic() - began
            try:  # first: whatever a hook or a handler of logs does, no slot is lost
                await self._settle(outcome)
            finally:
                self._tell(question, outcome, at=at, seconds=seconds, waited=waited, tries=tries)
        return outcome

    async def _settle(self, outcome: UpstreamResponse | NoResponse) -> None:
        try:  # first, or the slot would be given to the next in line
            await self._close_if_told(outcome)
        finally:
            if isinstance(outcome, NoResponse) and not outcome.left:
                await self._limiter.give_back()
            else:
                await self._limiter.answered()

    async def _close_if_told(self, outcome: UpstreamResponse | NoResponse) -> None:
        seconds = lockout_of(outcome, lockout=self._lockout, now=self._clock.now())
        if seconds is not None:
            refused = isinstance(outcome, UpstreamResponse) and outcome.status == HTTPStatus.TOO_MANY_REQUESTS
            await self._limiter.close_for(seconds, refused=refused)

    def _tell(
        self,
        question: UpstreamCall,
        outcome: UpstreamResponse | NoResponse,
        *,
        at: float,
        seconds: float,
        waited: float,
        tries: UpstreamAttempts,
    ) -> None:
        answer = outcome if isinstance(outcome, UpstreamResponse) else None
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
                reason=failure_word(outcome),
                at=at,
            )
        )
