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

log = logging.getLogger("tidegate.flows")

WORKS_AT_ONCE: Final = 64
WORK_TRIES: Final = 3
WORK_RETRY_PAUSES: Final = (1.0, 4.0, 15.0)  # seconds after a try that failed; the last one from then on


class WorkContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a work function is given. `key` is the same whenever this work is tried again, also after a crash,
    and never that of another: give it to whoever promises to do a thing once. `data` is a copy.
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
        self._room = asyncio.Semaphore(WORKS_AT_ONCE)
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def is_under_way(self, key: str, run: object) -> bool:
        return isinstance(run, RunWork) and (key, run.visit) in self._tasks

    def begin(self, key: str, visit: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """In the background, unless it is under way."""
        if (key, visit) in self._tasks:
            return
        task = asyncio.create_task(work(), name=f"tidegate: works for {key}")
        self._tasks[key, visit] = task
        task.add_done_callback(lambda task: self._ended(task, key, visit))

    def _ended(self, task: asyncio.Task[None], key: str, visit: int) -> None:
        self._tasks.pop((key, visit), None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the work for session %s is begun again soon: %s", key, describe_error(error))

    async def stop(self, grace: float) -> None:
        """What does not end within `grace` seconds is begun again after the next start."""
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def attempt(self, place: SessionKey, session: Session, run: RunWork) -> WorkDone | WorkFailed:
        """What came of it. No text of an exception gets further than the log."""
        if (function := self.functions.get(run.work)) is None:
            log.error("the work %s for session %s is not there any more", run.work, place.key)
            return self.gave_up(run, "it is not there any more")
        context = self._context(place, session, run)
        reason = ""
        for number in range(1, self._tries + 1):
            async with self._room:
                result = await call_fetch(lambda: function(context), self._clock)
            if not isinstance(result, FetchFailure):
                return WorkDone(run.work, run.visit, result, **self._cause(run, "done"))
            reason = type(result.error).__name__
            text = "the work %s for session %s failed, try %d of %d: %s"
            log.warning(text, run.work, place.key, number, self._tries, describe_error(result.error))
            if number < self._tries:
                await self._clock.sleep(WORK_RETRY_PAUSES[min(number, len(WORK_RETRY_PAUSES)) - 1])
        return self.gave_up(run, reason)

    def gave_up(self, run: RunWork, reason: str) -> WorkFailed:
        self.failed += 1
        return WorkFailed(run.work, run.visit, reason, **self._cause(run, "failed"))

    def _cause(self, run: RunWork, how: str) -> dict[str, Any]:
        return {"id": f"w{run.visit}:{how}", "at": self._clock.now()}

    def _context(self, place: SessionKey, session: Session, run: RunWork) -> WorkContext:
        return WorkContext(
            chat=place.chat,
            user=place.user,
            data=copy.deepcopy(session.data),
            key=f"{self._flow}:{place.key}:{session.tag}:{run.visit}",
            gate=self._gate,
            bot=place.bot,
            thread=place.thread,
            language=session.language,
        )


def _is_async(function: object) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004  (an object with an async __call__ will do)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
