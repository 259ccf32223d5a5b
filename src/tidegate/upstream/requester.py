"""One request until it is answered: wait for a turn, send, judge the answer, perhaps retry."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, assert_never

import msgspec

from tidegate.clock import Clock
from tidegate.errors import (
    ClosedError,
    UpstreamAwayError,
    UpstreamError,
    UpstreamGarbledError,
    UpstreamRefusedError,
    UpstreamUnknownError,
)
from tidegate.handler_run import waiting_for_gate
from tidegate.upstream.limiter import Limiter
from tidegate.upstream.request_log import Exchange, RequestLog, records_in
from tidegate.upstream.retry import (
    IDEMPOTENT,
    UpstreamAttempts,
    UpstreamAway,
    UpstreamFailure,
    UpstreamGarbled,
    UpstreamOk,
    UpstreamRefused,
    UpstreamRetry,
    UpstreamRetryPolicy,
    UpstreamUnknown,
    failure_word,
    judge,
    lockout_of,
)
from tidegate.upstream.transport import (
    NoResponse,
    UpstreamOutcome,
    UpstreamRequest,
    UpstreamResponse,
    UpstreamTransport,
)

CANCELLED: Final = NoResponse(left=True, reason="cancelled")
MAY_HAVE_HAPPENED: Final = "it may have happened: look before you repeat it"


class UpstreamCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request and how it is to be sent."""

    request: UpstreamRequest
    idempotent: bool | None = None  # None: as its method promises
    background: bool = False
    record: str | None = None  # for the log

    @property
    def repeatable(self) -> bool:
        return self.request.method in IDEMPOTENT if self.idempotent is None else self.idempotent


class Requester:
    """Sends requests of one client. Every slot that is taken is settled or given back, whatever happens."""

    def __init__(
        self,
        name: str,
        transport: UpstreamTransport,
        limiter: Limiter,
        clock: Clock,
        *,
        policy: UpstreamRetryPolicy,
        lockout: float,
        log: RequestLog,
    ) -> None:
        self._name, self._transport, self._limiter, self._clock = name, transport, limiter, clock
        self._policy, self._lockout, self._log = policy, lockout, log
        self._draw = random.Random()  # noqa: S311  (spreads retries, is no secret)
        self._waits: set[asyncio.Timeout] = set()  # for a turn, or between two attempts
        self._closed = False

    async def close(self) -> None:
        """End calls that wait at once, and calls on the wire when the transport has closed."""
        self._closed = True
        while self._waits:
            self._waits.pop().reschedule(asyncio.get_running_loop().time())
        await self._transport.close()

    def check_open(self, request: UpstreamRequest, tries: UpstreamAttempts = UpstreamAttempts()) -> None:  # noqa: B008  (frozen)
        if self._closed:
            raise _closed_error(self._name, request, tries)

    async def send(self, call: UpstreamCall) -> UpstreamResponse:
        """Return a good answer (2xx), or raise."""
        request, tries, deadline = call.request, UpstreamAttempts(), float("inf")
        while True:
            self._check_patience(request, tries, deadline)
            waited = await self._take_turn(call, tries)
            deadline = min(deadline, self._clock.monotonic() + self._policy.patience)
            outcome = await self._send_once(call, tries, waited)
            tries = tries.after(outcome, request.method)
            verdict = judge(
                outcome,
                method=request.method,
                idempotent=call.repeatable,
                tries=tries,
                policy=self._policy,
                draw=self._draw,
                hide=self._transport.hide,
            )
            if isinstance(outcome, UpstreamResponse) and isinstance(verdict, UpstreamOk):
                return outcome
            if not isinstance(verdict, UpstreamOk | UpstreamRetry):
                raise _error_for(verdict, self._name, request, self._limiter.closed_for)
            pause = verdict.delay if isinstance(verdict, UpstreamRetry) else 0.0
            self._check_patience(request, tries, deadline - pause)
            async with self._until_closed(request, tries):
                await self._clock.sleep(pause)

    def _check_patience(self, request: UpstreamRequest, tries: UpstreamAttempts, deadline: float) -> None:
        """Raise if the client is closed, or the API stays closed for longer than the call may wait."""
        self.check_open(request, tries)
        now, closed = self._clock.monotonic(), self._limiter.closed_for
        if now + closed > min(deadline, now + self._policy.patience):
            raise _patience_error(self._name, request, tries, closed)

    @asynccontextmanager
    async def _until_closed(self, request: UpstreamRequest, tries: UpstreamAttempts) -> AsyncIterator[None]:
        try:
            async with self._clock.timeout(None) as wait:
                self._waits.add(wait)
                try:
                    yield
                finally:
                    self._waits.discard(wait)
        except TimeoutError:
            raise _closed_error(self._name, request, tries) from None

    async def _take_turn(self, call: UpstreamCall, tries: UpstreamAttempts) -> float:
        async with self._until_closed(call.request, tries):
            with waiting_for_gate():
                waited = await self._limiter.take(background=call.background)
        if self._closed:
            await self._limiter.give_back()
        self.check_open(call.request, tries)
        return waited

    async def _send_once(self, call: UpstreamCall, tries: UpstreamAttempts, waited: float) -> UpstreamOutcome:
        at, began = self._clock.now(), self._clock.monotonic()
        outcome: UpstreamOutcome = CANCELLED
        try:
            outcome = await self._transport.send(call.request)
        finally:
            seconds = self._clock.monotonic() - began
            try:  # before logging: whatever a hook or a log handler does, no slot is lost
                await self._settle(outcome)
            finally:
                answer = outcome if isinstance(outcome, UpstreamResponse) else None
                exchange = Exchange(
                    api=self._name,
                    method=call.request.method,
                    endpoint=call.request.path,
                    status=answer.status if answer else None,
                    seconds=seconds,
                    size=len(answer.body) if answer else 0,
                    record=call.record,
                    records=records_in(outcome) if self._log.in_detail else None,
                    waited=waited,
                    attempt=tries.attempts + tries.refusals + 1,
                    reason=failure_word(outcome),
                    at=at,
                )
                self._log.add(exchange)
        return outcome

    async def _settle(self, outcome: UpstreamOutcome) -> None:
        try:  # before the slot is settled, or the next in line would take it
            seconds = lockout_of(outcome, lockout=self._lockout, now=self._clock.now())
            if seconds is not None:
                refused = isinstance(outcome, UpstreamResponse) and outcome.is_refused
                await self._limiter.close_for(seconds, refused=refused)
        finally:
            if isinstance(outcome, NoResponse) and not outcome.left:
                await self._limiter.give_back()
            else:
                await self._limiter.answered()


def _error_for(
    verdict: UpstreamFailure, api: str, request: UpstreamRequest, closed_for: float
) -> UpstreamError:
    method, endpoint = request.method, request.path
    match verdict:
        case UpstreamRefused(status, text):
            return UpstreamRefusedError(text, api=api, method=method, endpoint=endpoint, status=status)
        case UpstreamAway(reason):
            retry_after = closed_for or None
            return UpstreamAwayError(
                reason, api=api, method=method, endpoint=endpoint, retry_after=retry_after
            )
        case UpstreamUnknown(reason):
            text = f"no certain answer ({reason}), {MAY_HAVE_HAPPENED}"
            return UpstreamUnknownError(text, api=api, method=method, endpoint=endpoint)
        case UpstreamGarbled(reason):
            return UpstreamGarbledError(reason, api=api, method=method, endpoint=endpoint)
        case _:
            assert_never(verdict)


def _patience_error(
    api: str, request: UpstreamRequest, tries: UpstreamAttempts, closed_for: float
) -> UpstreamError:
    """The error of a call whose patience ends before it may be sent again."""
    if tries.unsure:
        verdict: UpstreamFailure = UpstreamUnknown("no answer within its patience")
    else:
        why = f"the API is closed for another {closed_for:.1f} s" if closed_for else "its patience is over"
        history = f" (after {tries.attempts} attempts and {tries.refusals} refusals)"
        verdict = UpstreamAway(f"not waited for: {why}{history if tries != UpstreamAttempts() else ''}")
    return _error_for(verdict, api, request, closed_for)


def _closed_error(api: str, request: UpstreamRequest, tries: UpstreamAttempts) -> UpstreamError | ClosedError:
    """The error of a call whose client was closed before it was sent, or sent again."""
    if tries.unsure:
        return _error_for(UpstreamUnknown("the client was closed"), api, request, 0.0)
    return ClosedError(
        f"{api}: the client is closed and sends nothing: make a new one (gate.upstream(…) or gate.nocodb(…),"
        " after the gate was opened again)"
    )
