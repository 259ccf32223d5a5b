"""The worker: claim, send, judge, settle."""

import asyncio
import logging
from contextlib import suppress
from typing import Final, Self

from tidegate.clock import Clock
from tidegate.delivery.sender import OutgoingCall, Sender, interrupted
from tidegate.errors import BadInputError
from tidegate.model import Claim, Dead, Outcome, Settlement
from tidegate.outbox.port import OutboxSender
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.worker")

CONCURRENCY: Final = 100
HEARTBEAT: Final = 10.0  # seconds; a third of a lease
STORE_RETRY_PAUSE: Final = 1.0  # seconds after a failure of the store


class Worker:
    """`async with` it: delivers while the body runs, then finishes the calls in flight.

    Never more than `concurrency` calls at once. At the end it claims no more, waits `grace` seconds for the
    calls in flight, and hands back the rest: as unknown if the request had left, else as not sent.
    """

    def __init__(
        self,
        outbox: OutboxSender,
        sender: Sender,
        clock: Clock,
        *,
        concurrency: int = CONCURRENCY,
        grace: float = 10.0,
        heartbeat: float = HEARTBEAT,
    ) -> None:
        if concurrency < 1:
            raise BadInputError(f"a worker needs a concurrency of at least 1, not {concurrency}")
        self._outbox = outbox
        self._sender = sender
        self._clock = clock
        self._concurrency = concurrency
        self._grace = grace
        self._heartbeat = heartbeat
        self._calls: dict[asyncio.Task[None], Claim] = {}
        self._room = asyncio.Event()
        self._ended: list[tuple[Claim, Outcome, float]] = []
        self._news = asyncio.Event()
        self._tasks = BackgroundTasks()
        self._loops: list[asyncio.Task[None]] = []
        self._over = False

    async def __aenter__(self) -> Self:
        loops = {"claim": self._claim(), "settle": self._settle(), "renew": self._renew()}
        self._loops = [
            self._tasks.start(loop, f"worker: {name}", awaited=True) for name, loop in loops.items()
        ]
        for task in self._loops:
            task.add_done_callback(_log_failure)
        return self

    async def __aexit__(self, *exc: object) -> None:
        claiming, settling, renewing = self._loops
        try:
            await _cancel_all([claiming])
            if self._calls:
                with suppress(TimeoutError):
                    async with self._clock.timeout(self._grace):
                        await asyncio.wait(self._calls)
        finally:  # also if this is cancelled: no task may outlive the worker
            await _cancel_all([*self._calls, renewing])
            self._over = True
            self._news.set()
            await asyncio.wait([settling])  # not cancelled: an interrupted settlement would be made twice
            await self._settle_all()

    async def _claim(self) -> None:
        while True:
            try:
                while len(self._calls) >= self._concurrency:
                    self._room.clear()
                    await self._room.wait()
                claims = await self._outbox.claim(self._concurrency - len(self._calls))
            except OSError:
                log.exception("cannot claim; trying again in %s s", STORE_RETRY_PAUSE)
                await self._clock.sleep(STORE_RETRY_PAUSE)
                continue
            for claim in claims:
                task = asyncio.create_task(self._send(claim))
                self._calls[task] = claim
                task.add_done_callback(self._forget)

    async def _send(self, claim: Claim) -> None:
        message = claim.message
        call = OutgoingCall(
            bot=message.bot,
            method=message.method,
            params={"chat_id": message.chat_id, **message.params},
            attempt=claim.attempt,
            claimed_at=claim.granted_at,
            on_silence=lambda: self._outbox.cool([claim]),
            queued=True,
        )
        try:
            outcome = await self._sender.send(call)
        except asyncio.CancelledError:
            self._end(claim, interrupted(call), call.ended_at)
            raise
        except BadInputError as error:  # a file is gone, a parameter cannot be sent
            outcome = Dead("bad_input", str(error))
        self._end(claim, outcome, call.ended_at)

    def _end(self, claim: Claim, outcome: Outcome, at: float) -> None:
        self._ended.append((claim, outcome, at))
        self._news.set()

    async def _settle(self) -> None:
        while not self._over:
            await self._news.wait()
            self._news.clear()
            try:
                await self._settle_all()
            except OSError:
                log.exception("cannot settle; trying again in %s s", STORE_RETRY_PAUSE)
                self._news.set()
                await self._clock.sleep(STORE_RETRY_PAUSE)

    async def _settle_all(self) -> None:
        """Settle everything that ended since the last time in one step, each with its answer's age."""
        if not self._ended:
            return
        now = self._clock.monotonic()
        settlements = [Settlement(claim, outcome, now - at) for claim, outcome, at in self._ended]
        records = await self._outbox.settle(settlements)
        del self._ended[: len(settlements)]  # not before: what the store did not take is settled again
        for settlement, record in zip(settlements, records, strict=True):
            if record is None:
                log.warning(
                    "message %s was settled too late: its lease had run out", settlement.claim.message.id
                )

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(self._heartbeat)
            try:
                await self._outbox.extend(list(self._calls.values()))
            except OSError:
                log.exception("cannot renew leases; trying again in %s s", self._heartbeat)

    def _forget(self, task: asyncio.Task[None]) -> None:
        del self._calls[task]
        self._room.set()


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.critical(
            "%s has failed: nothing is delivered any more", task.get_name(), exc_info=task.exception()
        )


async def _cancel_all(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
