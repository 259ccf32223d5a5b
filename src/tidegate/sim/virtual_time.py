"""An event loop with virtual time: when nothing can run, the clock jumps to the next timer.

The real components run on it unchanged. The same program with the same seed gives the same run;
another seed runs timers that are due at the same instant in another order.
"""

import asyncio
import heapq
import itertools
import random
import selectors
import sys
import types
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.clock import Clock

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

T = TypeVar("T")

# A weekday morning, far from any daylight-saving change: 2026-01-05 09:00 UTC.
EPOCH = 1_767_603_600.0
virtual = sys.modules[__name__]  # `from tidegate.sim import virtual`, the spelling before 1.0
FEWEST_CANCELLED = 1_000  # timers; fewer are not worth a sweep


class DeadlockError(RuntimeError):
    """Nothing is left to run while tasks wait. The text names the tasks and the lines they wait in."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs in one thread, without waiting and without real I/O.

    Work given to an executor runs inline. A socket or pipe on this loop is an error,
    as what happens on it would depend on real time.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._now = 0.0
        self._timers: list[tuple[float, float, int, asyncio.TimerHandle]] = []
        self._cancelled = 0  # of the timers
        self._created = itertools.count()
        self._ties = None if seed is None else random.Random(seed)  # noqa: S311  (repeatable, not secret)
        selector = _VirtualSelector()
        super().__init__(selector)
        selector.sealed = True

    def time(self) -> float:
        return self._now

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        # Without a seed, timers of one instant run in the order of their creation.
        tie = self._ties.random() if self._ties else 0.0
        heapq.heappush(self._timers, (when, tie, next(self._created), timer))
        timer._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001  (asyncio then reports its end)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:  # noqa: ARG002  (asyncio's signature)
        """Remove cancelled timers (asyncio calls this): unused timeouts must not fill the memory."""
        self._cancelled += 1
        if self._cancelled > FEWEST_CANCELLED and 2 * self._cancelled > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[3].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def run_in_executor(
        self,
        executor: Executor | None,  # noqa: ARG002  (work runs inline)
        func: Callable[..., T],
        *args: object,
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  (it is raised where the future is awaited)
            future.set_exception(error)
        return future

    def _run_once(self) -> None:
        """Run what is ready; if nothing is, jump to the next timers. asyncio would ask its selector here."""
        ready = self._ready  # type: ignore[attr-defined]  # where asyncio puts what is to run
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            self._advance()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:  # noqa: SLF001
                handle._run()  # noqa: SLF001

    def _advance(self) -> None:
        """Jump to the next instant that has a timer, and make its timers ready to run."""
        timers = self._timers
        while timers and timers[0][3].cancelled():
            self._pop()
        if not timers:
            raise DeadlockError(_describe_waiting(self))
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            timer = self._pop()
            if not timer.cancelled():
                self._ready.append(timer)  # type: ignore[attr-defined]

    def _pop(self) -> asyncio.TimerHandle:
        timer = heapq.heappop(self._timers)[3]
        timer._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001
        self._cancelled -= timer.cancelled()
        return timer


class VirtualClock(Clock):
    """The clock of a `VirtualLoop`. Two clocks with different `epoch` act as two machines that disagree."""

    def __init__(self, loop: asyncio.AbstractEventLoop, epoch: float = EPOCH) -> None:
        self._loop = loop
        self.epoch = epoch

    def now(self) -> float:
        return self.epoch + self._loop.time()

    def monotonic(self) -> float:
        return self._loop.time()


def run(main: Callable[[VirtualClock], Coroutine[Any, Any, T]], seed: int | None = None) -> T:
    """Run `main(clock)` to its end in virtual time."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(seed)) as runner:
        return runner.run(main(VirtualClock(runner.get_loop())))


class _VirtualSelector(selectors.BaseSelector):
    """Takes what asyncio registers for itself, and refuses all else."""

    def __init__(self) -> None:
        self._keys: dict[int, selectors.SelectorKey] = {}
        self.sealed = False

    def register(
        self, fileobj: "FileDescriptorLike", events: int, data: object = None
    ) -> selectors.SelectorKey:
        if self.sealed:
            raise RuntimeError("real I/O on a virtual loop: use the in-process simulator here")
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return key

    def unregister(self, fileobj: "FileDescriptorLike") -> selectors.SelectorKey:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:  # noqa: ARG002
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


def _describe_waiting(loop: asyncio.AbstractEventLoop) -> str:
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    lines = [f"  {task.get_name()}: {_where(task.get_coro())}" for task in tasks if not task.done()]
    return "\n".join([f"deadlock at {loop.time():.3f} s: nothing left to run, and these wait:", *lines])


def _where(awaited: object) -> str:
    """Return the innermost coroutine that a task is suspended in, with its file and line."""
    place = repr(awaited)
    while isinstance(awaited, types.CoroutineType):
        if awaited.cr_frame is not None:
            file = awaited.cr_code.co_filename
            place = f"{awaited.__qualname__} ({file}:{awaited.cr_frame.f_lineno})"
        awaited = awaited.cr_await
    return place
