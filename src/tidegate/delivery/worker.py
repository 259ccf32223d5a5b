"""The worker: claim, send, judge, settle."""

import asyncio
import logging
from contextlib import suppress
from typing import Final, Self

from tidegate.clock import Clock
from tidegate.delivery.sender import OutgoingCall, Sender, interrupted
from tidegate.errors import BadInputError, ClosedError
from tidegate.events import Attempted, Claimed, EventStream
from tidegate.failure import describe_error, pause_after, traceback_text
from tidegate.model import Claim, Dead, Delivered, Outcome, Record, Retry, Settlement, Unknown
from tidegate.outbox.port import OutboxSender
from tidegate.stop_notice import log_wait
from tidegate.tasks import BackgroundTasks, SupervisedLoop

log = logging.getLogger("tidegate.worker")

CONCURRENCY: Final = 100
HEARTBEAT: Final = 10.0  # seconds; a third of a lease
STORE_RETRY_PAUSE: Final = 1.0  # seconds after a failure of the store
STALLED_AFTER: Final = 60.0  # seconds in which messages may go and nothing is claimed or settled


class Worker:
    """`async with` it: delivers while the body runs, then finishes the calls in flight.

    Never more than `concurrency` calls at once. At the end it claims no more, waits `grace` seconds for the
    calls in flight, and hands back the rest: as unknown if the request had left, else as not sent.
    No message and no answer ends it: what fails is set aside alone, and a loop that fails is started again.
    """

    def __init__(
        self,
        outbox: OutboxSender,
        sender: Sender,
        clock: Clock,
        events: EventStream | None = None,
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
        self._events = events or EventStream()
        self._concurrency = concurrency
        self._grace = grace
        self._heartbeat = heartbeat
        self._calls: dict[asyncio.Task[None], Claim] = {}
        self._room = asyncio.Event()
        self._ended: list[tuple[Claim, Outcome, float]] = []
        self._news = asyncio.Event()
        self._tasks = BackgroundTasks()
        self._loops: dict[str, SupervisedLoop] = {}
        self._is_stopping = self._over = False
        self._has_moved = False  # something was claimed or settled since the last heartbeat
        self._stalled_since: float | None = None  # monotonic

    async def __aenter__(self) -> Self:
        for name, run in (("claim", self._claim), ("settle", self._settle), ("renew", self._renew)):
            self._loops[name] = self._tasks.supervise(run, f"the worker's loop that {name}s", self._clock)
        return self

    async def __aexit__(self, *exc: object) -> None:
        settling = self._loops["settle"]
        try:
            await _cancel_all([self._loops["claim"].task])
            self._is_stopping = True
            if self._calls:
                log_wait(log, self._grace, calls=len(self._calls))
                with suppress(TimeoutError):
                    async with self._clock.timeout(self._grace):
                        await asyncio.wait(self._calls)
        finally:  # also if this is cancelled: no task may outlive the worker
            await _cancel_all([*self._calls, self._loops["renew"].task])
            self._over = True
            self._news.set()
            if settling.is_pausing:
                settling.task.cancel()
            await asyncio.wait([settling.task])  # an interrupted settlement would be made twice
            await self._settle_all()

    def end_at_once(self) -> None:
        """Wait for no call when it stops, or no longer if it does so now."""
        self._grace = 0.0
        if self._is_stopping:
            for call in self._calls:
                call.cancel()

    def problems(self) -> list[str]:
        """Why it does not deliver as it should, a line each; none if it does."""
        problems = self._tasks.problems()
        if self._stalled_since is not None:
            stalled = self._clock.monotonic() - self._stalled_since
            if stalled >= STALLED_AFTER:
                problems.append(f"messages may go, and nothing was claimed or settled for {stalled:.0f} s")
        return problems

    async def hopeless(self) -> str:
        """Wait until one of its loops has failed so often in a row that it will not recover; say which."""
        waits = {asyncio.ensure_future(loop.hopeless.wait()): loop for loop in self._loops.values()}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        loop = waits[done.pop()]
        return loop.problem or f"{loop.name} has failed"

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
            self._moved("claim")
            self._events.publish(Claimed(claims))
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
            key=message.id,
            queued=True,
            probe=claim.probe,
        )
        began = self._clock.monotonic()
        try:
            outcome = await self._sender.send(call)
        except asyncio.CancelledError:
            self._end(claim, interrupted(call), call.ended_at, began)
            raise
        except BadInputError as error:  # a file is gone, a parameter cannot be sent
            outcome = Dead("bad_input", str(error))
        except Exception as error:  # noqa: BLE001  (an error of ours must not hold this chat until its lease ends)
            log.error("message %s could not be sent:\n%s", message.id, traceback_text(error))  # noqa: TRY400
            reason, pause = describe_error(error), pause_after(claim.attempt)
            outcome = Unknown(reason, pause) if call.left else Retry(pause, reason)
        self._end(claim, outcome, call.ended_at, began)

    def _end(self, claim: Claim, outcome: Outcome, at: float, began: float) -> None:
        self._ended.append((claim, outcome, at))
        self._news.set()
        self._events.publish(Attempted(claim, outcome, max(0.0, at - began)))

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
        settlements = self._settlements(len(self._ended))
        try:
            records = await self._outbox.settle(settlements)
        except (OSError, ClosedError):
            raise
        except Exception as error:  # noqa: BLE001  (one of them is to blame: the others are settled alone)
            log.error("%s settlements failed together:\n%s", len(settlements), traceback_text(error))  # noqa: TRY400
            for _ in settlements:
                await self._settle_first()
        else:
            del self._ended[: len(settlements)]  # not before: what the store did not take is settled again
            _report_late(settlements, records)
        self._moved("settle")

    async def _settle_first(self) -> None:
        """Settle one message alone. If the store cannot take how it ended, it takes that it ended.

        If not even that, the message is left to its lease, as after a crash.
        """
        [settlement] = self._settlements(1)
        try:
            records = await self._outbox.settle([settlement])
        except (OSError, ClosedError):
            raise
        except Exception as error:  # noqa: BLE001  (whatever is wrong with this one, it ends alone)
            records = await self._set_aside(settlement, describe_error(error))
        del self._ended[0]
        _report_late([settlement], records)

    async def _set_aside(self, settlement: Settlement, reason: str) -> list[Record | None]:
        claim, sent = settlement.claim, isinstance(settlement.outcome, Delivered)
        log.error("message %s cannot be settled, and is set aside: %s", claim.message.id, reason)
        plain = Delivered(None) if sent else Dead("unsettled", reason)
        try:
            return await self._outbox.settle([Settlement(claim, plain, settlement.age)])
        except (OSError, ClosedError):
            raise
        except Exception as error:  # noqa: BLE001  (its lease ends by itself)
            log.error(  # noqa: TRY400
                "message %s is left until its lease runs out: %s", claim.message.id, describe_error(error)
            )
            return []

    def _settlements(self, count: int) -> list[Settlement]:
        now = self._clock.monotonic()
        most = self._sender.max_attempts
        return [Settlement(claim, outcome, now - at, most) for claim, outcome, at in self._ended[:count]]

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(self._heartbeat)
            self._look_for_a_stall()
            try:
                await self._outbox.extend(list(self._calls.values()))
            except OSError:
                log.exception("cannot renew leases; trying again in %s s", self._heartbeat)

    def _look_for_a_stall(self) -> None:
        if self._has_moved or not self._outbox.may_claim():
            self._stalled_since = None
        elif self._stalled_since is None:
            self._stalled_since = self._clock.monotonic()
        self._has_moved = False

    def _moved(self, loop: str) -> None:
        self._has_moved, self._stalled_since = True, None
        self._loops[loop].works()

    def _forget(self, task: asyncio.Task[None]) -> None:
        del self._calls[task]
        self._room.set()


def _report_late(settlements: list[Settlement], records: list[Record | None]) -> None:
    for settlement, record in zip(settlements, records, strict=False):
        if record is None:
            log.warning("message %s was settled too late: its lease had run out", settlement.claim.message.id)


async def _cancel_all(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
