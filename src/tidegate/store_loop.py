"""A loop that works on a store: step, pause until it is woken, and wait for a store that is away."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.failure import pause_after


class StoreLoop:
    """Calls `step` again and again. It returns the seconds until there may be more to do.

    While the store fails, the pauses grow; that is logged when it begins and when it ends.
    """

    def __init__(
        self, what: str, step: Callable[[], Awaitable[float]], clock: Clock, log: logging.Logger
    ) -> None:
        """`what`: the things that wait meanwhile, in the plural."""
        self._what = what
        self._step = step
        self._clock = clock
        self._log = log
        self._woken = asyncio.Event()
        self._failures = 0
        self._trouble: str | None = None
        self._stop = asyncio.Event()

    def wake(self) -> None:
        """Step now."""
        self._woken.set()

    def stop(self) -> None:
        """Let `run` return after the step that it is at: what that has claimed is not lost."""
        self._stop.set()
        self._woken.set()

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    def problems(self) -> list[str]:
        return [] if self._trouble is None else [f"{self._what} wait: {self._trouble}"]

    async def run(self) -> None:
        while not self.is_stopping:
            self._woken.clear()
            try:
                pause = await self._step()
            except StoreError as error:
                pause = self._note_trouble(error)
            else:
                self._note_success()
            with suppress(TimeoutError):
                async with self._clock.timeout(pause):
                    await self._woken.wait()  # `stop` has set it, also during the step

    def _note_trouble(self, error: StoreError) -> float:
        self._failures += 1
        if self._trouble is None:
            self._log.warning("%s wait until this is mended, and nothing is lost: %s", self._what, error)
        self._trouble = str(error)
        return pause_after(self._failures)

    def _note_success(self) -> None:
        if self._trouble is not None:
            self._log.warning("%s go on", self._what)
        self._failures, self._trouble = 0, None
