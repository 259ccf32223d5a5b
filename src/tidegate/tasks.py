"""Background tasks of a component: started by name, ended together, never failing in silence."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from tidegate.clock import Clock
from tidegate.failure import describe_error, pause_after, traceback_text

log = logging.getLogger("tidegate")

T = TypeVar("T")

RECOVERED_AFTER: Final = 60.0  # seconds that a loop has to run after a failure to count as recovered
HOPELESS_AFTER: Final = 6  # failures in a row: half a minute of pauses lies between the first and the last


class BackgroundTasks:
    """The background tasks that a component owns. It keeps them alive, and forgets those that have ended."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._loops: set[SupervisedLoop] = set()

    def __len__(self) -> int:
        """How many have not ended. One that ends in this very moment does not count any more."""
        return sum(not task.done() for task in self._running)

    def start(self, work: Coroutine[Any, Any, T], name: str, *, awaited: bool = False) -> asyncio.Task[T]:
        """Run `work` in a task. A failure is logged, unless somebody awaits the task and so meets it."""
        task = asyncio.create_task(work, name=f"tidegate: {name}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        if not awaited:
            task.add_done_callback(_log_failure)
        return task

    def supervise(
        self, run: Callable[[], Coroutine[Any, Any, None]], name: str, clock: Clock
    ) -> "SupervisedLoop":
        """Run a loop that lives long: if it fails, it is started again after a pause, longer each time.

        It ends when `run` returns, or is cancelled.
        """
        loop = SupervisedLoop(name, run, clock)
        self._loops.add(loop)
        loop.task = self.start(loop.keep_running(), name, awaited=True)
        loop.task.add_done_callback(lambda _: self._loops.discard(loop))
        return loop

    def problems(self) -> list[str]:
        """The supervised loops that fail, a line each."""
        return [loop.problem for loop in self._loops if loop.problem is not None]

    async def stop(self) -> None:
        """Cancel every task and wait until all have ended. Their exceptions do not escape."""
        tasks = self._running - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def join(self) -> None:
        """Wait until every task has ended by itself. Cancelling this cancels none of them."""
        if tasks := self._running - {asyncio.current_task()}:
            await asyncio.wait(tasks)


class SupervisedLoop:
    """A loop that is started again when it fails. `problem` says so in words until it has recovered.

    It has recovered when it says that it `works`, or has run for RECOVERED_AFTER seconds. After
    HOPELESS_AFTER failures in a row `hopeless` is set; the loop is still started again.
    """

    def __init__(self, name: str, run: Callable[[], Coroutine[Any, Any, None]], clock: Clock) -> None:
        self.name = name
        self.hopeless = asyncio.Event()
        self.is_pausing = False
        self.task: asyncio.Task[None]
        self._run = run
        self._clock = clock
        self._failures = 0
        self._error = ""
        self._runs_since = 0.0  # monotonic

    def works(self) -> None:
        """The loop has done what it is for."""
        if self._failures:
            log.warning("%s works again", self.name)
            self._failures = 0
            self.hopeless.clear()

    @property
    def problem(self) -> str | None:
        if not self._failures or self._has_recovered():
            return None
        times = "once" if self._failures == 1 else f"{self._failures} times in a row"
        return f"{self.name} has failed {times}: {self._error}"

    async def keep_running(self) -> None:
        while True:
            self._runs_since = self._clock.monotonic()
            try:
                await self._run()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                await self._pause_after(RuntimeError("what it waited for was cancelled"))
            except Exception as error:  # noqa: BLE001  (whatever failed, the loop is needed)
                await self._pause_after(error)
            else:
                return

    def _has_recovered(self) -> bool:
        return not self.is_pausing and self._clock.monotonic() - self._runs_since > RECOVERED_AFTER

    async def _pause_after(self, error: Exception) -> None:
        if self._has_recovered():
            self._failures = 0
        self._failures, self._error = self._failures + 1, describe_error(error)
        pause = pause_after(self._failures)
        log.error(
            "%s has failed, and is started again in %.0f s:\n%s", self.name, pause, traceback_text(error)
        )
        if self._failures >= HOPELESS_AFTER:
            self.hopeless.set()
        self.is_pausing = True
        try:
            await self._clock.sleep(pause)
        finally:
            self.is_pausing = False


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("background task %r failed: %s", task.get_name(), describe_error(error))
