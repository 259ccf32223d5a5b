"""Background tasks of a component: started by name, ended together, never failing in silence."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from tidegate.failure import describe_error

log = logging.getLogger("tidegate")

T = TypeVar("T")


class BackgroundTasks:
    """The background tasks that a component owns. It keeps them alive, and forgets those that have ended."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

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


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("background task %r failed: %s", task.get_name(), describe_error(error))
