"""Calls the application's `on_incident` functions: beside the loop, and also while the loop is blocked."""

import asyncio
import inspect
import logging
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tidegate.call_stack import function_name
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.incidents import Incident, IncidentLog
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate")

MOST_WAITING: Final = 1000  # calls; more are dropped
CALL_TIMEOUT: Final = 30.0  # seconds, of an async callback

OnIncident = Callable[[Incident], Awaitable[None] | None]


class IncidentCallbacks:
    """An async callback runs in the loop of the gate, any other one in a thread of its own, one at a time."""

    def __init__(self, incidents: IncidentLog, clock: Clock) -> None:
        self._incidents = incidents
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks = BackgroundTasks()
        self._calls: queue.SimpleQueue[tuple[OnIncident, Incident]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, callback: OnIncident) -> None:
        """Raises BadInputError for what cannot be called with an incident."""
        try:
            inspect.signature(callback).bind(None)
        except (TypeError, ValueError):
            raise BadInputError(
                f"the callback {callback!r} is called with one argument: def callback(incident)"
            ) from None
        is_async = inspect.iscoroutinefunction(callback)
        call = self._call_in_loop if is_async else self._call_in_thread
        self._incidents.subscribe(lambda incident: call(callback, incident))

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        self._loop = None

    def _call_in_loop(self, callback: Callable[[Incident], Any], incident: Incident) -> None:
        if self._loop is None or self._loop.is_closed() or len(self._tasks) >= MOST_WAITING:
            return
        self._loop.call_soon_threadsafe(
            lambda: self._tasks.start(self._await(callback, incident), "incident callback", awaited=True)
        )

    async def _await(self, callback: Callable[[Incident], Awaitable[None]], incident: Incident) -> None:
        try:
            async with self._clock.timeout(CALL_TIMEOUT):
                await callback(incident)
        except Exception:
            log.exception("the callback %s of an incident has failed", function_name(callback))

    def _call_in_thread(self, callback: OnIncident, incident: Incident) -> None:
        if self._calls.qsize() >= MOST_WAITING:
            return
        self._calls.put((callback, incident))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tidegate: incidents", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            callback, incident = self._calls.get()
            try:
                callback(incident)
            except Exception:
                log.exception("the callback %s of an incident has failed", function_name(callback))
