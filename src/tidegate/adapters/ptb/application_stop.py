"""The stop of an attached python-telegram-bot application: it says what it waits for, and can be hurried."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from tidegate.adapters.ptb.rate_limiter import App, TidegateLimiter
from tidegate.stop_notice import log_wait

log = logging.getLogger("tidegate")


class ApplicationStop:
    """One for each application: see `stoppable`."""

    def __init__(self, limiter: TidegateLimiter, grace: float) -> None:
        self._limiter = limiter
        self._grace = grace
        self._signals = 0  # since the application was initialized

    def reset(self) -> None:
        self._signals = 0

    async def handle(self, handling: Awaitable[None]) -> None:
        """Handle an update. One that takes long is reported."""
        with self._limiter.gate.slow_calls.outer_handler():
            await handling

    async def stop(self, application: App, stop: Callable[[], Awaitable[None]]) -> None:
        """Stop it as the library does, which waits for its handlers however long they take.

        What they wait for at the gate has a bound: calls that have no turn after `grace` seconds fail. With
        an inbox the dispatcher of that does both: it says what it waits for, and cuts handlers off.
        """
        if self._limiter.inbox is not None:
            await stop()
            return
        log_wait(log, None, **_waited_for(application))
        timer = self._limiter.gate.clock.call_later(self._grace, self._limiter.refuse_calls)
        try:
            await stop()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._signals < 2 or (task is not None and task.cancelling()):  # noqa: PLR2004
                raise  # else `_cancel_handlers` did it: the application goes on to its shutdown
        finally:
            timer.cancel()
            self._limiter.accept_calls()  # of `post_stop`

    def on_signal(self, application: App) -> None:
        """Raises SystemExit, as the library does at every signal, but not at the second.

        That one cuts off the handlers, so that the application ends in good order, and soon.
        """
        self._signals += 1
        if self._signals != 2:  # noqa: PLR2004
            raise SystemExit
        self._limiter.gate.end_at_once()
        if self._limiter.inbox is None:
            _cancel_handlers(application)


def stoppable(application_class: type[App], stop: ApplicationStop) -> type[App]:
    """Return a subclass whose stop is watched: the library has no hook for that."""

    class Application(application_class):  # type: ignore[misc, valid-type]
        __slots__ = ()

        async def initialize(self) -> None:
            stop.reset()
            await super().initialize()

        async def stop(self) -> None:
            await stop.stop(self, super().stop)

        async def process_update(self, update: object) -> None:
            await stop.handle(super().process_update(update))

        def _raise_system_exit(self) -> None:
            """Called for each stop signal of `run_polling` and `run_webhook`, by the event loop."""
            stop.on_signal(self)

    Application.__name__ = application_class.__name__
    Application.__qualname__ = application_class.__qualname__
    return Application


def _waited_for(application: App) -> dict[str, Any]:
    processor = application.update_processor
    handlers, tasks = processor.current_concurrent_updates, len(_tasks_of(application))
    if processor.max_concurrent_updates > 1:  # then each update is handled in one of the tasks
        tasks = max(0, tasks - handlers)
    return {"handlers": handlers, "tasks": tasks, "updates": application.update_queue.qsize()}


def _cancel_handlers(application: App) -> None:
    fetcher: asyncio.Task[None] | None = getattr(application, "_Application__update_fetcher_task", None)
    if fetcher is not None and application.update_processor.max_concurrent_updates == 1:
        fetcher.cancel()  # it handles one update after another itself
    for task in _tasks_of(application):
        task.cancel()


def _tasks_of(application: App) -> list[asyncio.Task[Any]]:
    """Return its handlers that do not block others, and what its users gave to `create_task`."""
    return list(getattr(application, "_Application__create_task_tasks", ()))
