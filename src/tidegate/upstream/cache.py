"""A cache of answers, and one shared request for all callers that ask the same at the same time."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from tidegate.clock import Clock
from tidegate.errors import ClosedError
from tidegate.tasks import BackgroundTasks

MOST_ANSWERS: Final = 1_024
MOST_BYTES: Final = 64 * 1024 * 1024

CacheKey = tuple[str, tuple[tuple[str, str], ...]]  # path and query
Load = Callable[[], Coroutine[Any, Any, bytes]]


class _CachedAnswer(NamedTuple):
    body: bytes
    at: float  # monotonic


class _SharedRequest:
    """One request that several callers await. `stale`: written to meanwhile, so its answer is not cached."""

    __slots__ = ("stale", "task", "waiting")

    def __init__(self, task: asyncio.Task[bytes]) -> None:
        self.task = task
        self.waiting = 0
        self.stale = False


class ResponseCache:
    """Bounded: the least recently used answer goes first. Errors are not cached."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: OrderedDict[CacheKey, _CachedAnswer] = OrderedDict()
        self._size = 0  # bytes
        self._tasks = BackgroundTasks()
        self._requests: dict[tuple[CacheKey, bool], _SharedRequest] = {}  # by key and background

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, key: CacheKey, fresh_for: float) -> bytes | None:
        """Return an answer that is at most so many seconds old."""
        answer = self._answers.get(key)
        if answer is None or self._clock.monotonic() - answer.at >= fresh_for:
            return None
        self._answers.move_to_end(key)
        return answer.body

    async def load(self, key: CacheKey, load: Load, *, background: bool) -> bytes:
        """Load, or join the request under way. It is cancelled only when its last caller is."""
        where = (key, background)
        request = self._requests.get(where)
        if request is None or request.task.done():
            request = self._start(key, load, background=background)
        request.waiting += 1
        try:
            return await asyncio.shield(request.task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise ClosedError("the client was closed: nothing is read any more") from None
        finally:
            request.waiting -= 1
            if not request.waiting and not request.task.done():
                request.task.cancel()
                self._remove(where, request)

    def drop(self, path: str) -> None:
        """Forget answers of this path, of paths below and above it; requests under way are not cached."""
        for key in [key for key in self._answers if _related(key[0], path)]:
            self._forget(key)
        for where, request in list(self._requests.items()):
            if _related(where[0][0], path):
                request.stale = True
                del self._requests[where]

    async def close(self) -> None:
        await self._tasks.stop()

    def _start(self, key: CacheKey, load: Load, *, background: bool) -> _SharedRequest:
        request = _SharedRequest(self._tasks.start(load(), f"read {key[0]}", awaited=True))
        self._requests[key, background] = request

        def ended(task: asyncio.Task[bytes]) -> None:
            self._remove((key, background), request)
            if not task.cancelled() and task.exception() is None and not request.stale:
                self._store(key, task.result())

        request.task.add_done_callback(ended)
        return request

    def _remove(self, where: tuple[CacheKey, bool], request: _SharedRequest) -> None:
        if self._requests.get(where) is request:
            del self._requests[where]

    def _store(self, key: CacheKey, body: bytes) -> None:
        self._forget(key)
        self._answers[key] = _CachedAnswer(body, self._clock.monotonic())
        self._size += len(body)
        while len(self._answers) > MOST_ANSWERS or self._size > MOST_BYTES:
            self._forget(next(iter(self._answers)))

    def _forget(self, key: CacheKey) -> None:
        answer = self._answers.pop(key, None)
        if answer is not None:
            self._size -= len(answer.body)


def _related(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
