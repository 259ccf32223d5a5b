"""Runs the application's work functions in the background, with a few tries each."""

import asyncio
import copy
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.failure import describe_error
from tidegate.flows.effects import RunWork
from tidegate.flows.events import WorkDone, WorkFailed
from tidegate.flows.port import FlowGate, SessionKey
from tidegate.flows.session import Session
from tidegate.polling.fetch import FetchFailure, call_fetch, is_count
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.flows")

WORKS_AT_ONCE: Final = 64
WORK_TRIES: Final = 3
WORK_RETRY_PAUSES: Final = (1.0, 4.0, 15.0)  # seconds after a failed try; the last one from then on


class WorkContext(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of a work function.

    `key` is the same whenever this work is tried again, also after a crash, and differs from that of any
    other work: give it to a service that promises to do a thing once. `data` is a copy.
    """

    chat: int
    user: int
    data: dict[str, Any]
    key: str
    gate: Any  # the Tidegate
    bot: int
    thread: int | None = None
    language: str | None = None


WorkFunction = Callable[[WorkContext], Awaitable[Mapping[str, Any] | None]]
"""Returns the fields that the flow may save. May be called again with the same key."""


class WorkRunner:
    def __init__(
        self, functions: Mapping[str, WorkFunction], gate: FlowGate, clock: Clock, *, flow: str, tries: int
    ) -> None:
        for name, function in functions.items():
            if not _is_async(function):
                raise BadInputError(f"the work {name} is {function!r}: give an async function of one context")
        if not is_count(tries):
            raise BadInputError(f"{tries!r} tries of a work do nothing: give 1 or more")
        self.functions = functions
        self.failed = 0
        self._gate = gate
        self._clock = clock
        self._flow = flow
        self._tries = tries
        self._slots = asyncio.Semaphore(WORKS_AT_ONCE)
        self._running: dict[tuple[SessionKey, int], asyncio.Task[None]] = {}
        self._tasks = BackgroundTasks()

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, key: SessionKey, visit: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the work of this visit in the background, unless it runs already."""
        if (key, visit) not in self._running:
            task = self._tasks.start(work(), f"works for {key.text}", awaited=True)
            self._running[key, visit] = task
            task.add_done_callback(lambda task: self._ended(task, key, visit))

    def _ended(self, task: asyncio.Task[None], key: SessionKey, visit: int) -> None:
        self._running.pop((key, visit), None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the work for session %s is begun again soon: %s", key.text, describe_error(error))

    async def stop(self, grace: float) -> None:
        """Work that does not end within `grace` seconds is begun again after the next start."""
        if self._running:
            await asyncio.wait(self._running.values(), timeout=grace)
        await self._tasks.stop()

    async def attempt(self, key: SessionKey, session: Session, run: RunWork) -> WorkDone | WorkFailed:
        """Call the function until it succeeds or the tries are used up. Exceptions reach only the log."""
        if (function := self.functions.get(run.work)) is None:
            log.error("the work %s for session %s is not there any more", run.work, key.text)
            return self.failure(run, "it is not there any more")
        context = self._context(key, session, run)
        reason = ""
        for number in range(1, self._tries + 1):
            async with self._slots:
                result = await call_fetch(lambda: function(context), self._clock)
            if not isinstance(result, FetchFailure):
                return WorkDone(run.work, run.visit, result, **self._cause(run, "done"))
            reason = type(result.error).__name__
            text = "the work %s for session %s failed, try %d of %d: %s"
            log.warning(text, run.work, key.text, number, self._tries, describe_error(result.error))
            if number < self._tries:
                await self._clock.sleep(WORK_RETRY_PAUSES[min(number, len(WORK_RETRY_PAUSES)) - 1])
        return self.failure(run, reason)

    def failure(self, run: RunWork, reason: str) -> WorkFailed:
        self.failed += 1
        return WorkFailed(run.work, run.visit, reason, **self._cause(run, "failed"))

    def _cause(self, run: RunWork, how: str) -> dict[str, Any]:
        return {"id": f"w{run.visit}:{how}", "at": self._clock.now()}

    def _context(self, key: SessionKey, session: Session, run: RunWork) -> WorkContext:
        return WorkContext(
            chat=key.chat,
            user=key.user,
            data=copy.deepcopy(session.data),
            key=f"{self._flow}:{key.text}:{session.tag}:{run.visit}",
            gate=self._gate,
            bot=key.bot,
            thread=key.thread,
            language=session.language,
        )


def _is_async(function: object) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004  (an object with an async __call__ will do)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
