"""Group commit: what many tasks ask for at the same time is done in one step of the store."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from tidegate.errors import StoreError
from tidegate.tasks import BackgroundTasks

T = TypeVar("T")
R = TypeVar("R")


class GroupCommit(Generic[T, R]):
    """Requests join the step that has not begun yet, up to `most` items; none is cut in two.

    `start` begins a step for a list of requests, to which more are appended while `is_open(step)`; it gives
    the answers in order. A cancelled caller takes nothing from the others: its request is done all the same.
    If a step fails by the fault of one request, each is done alone, and only that one fails. A StoreError or
    TimeoutError is no request's fault and fails all of them.
    """

    def __init__(
        self,
        start: Callable[[list[Sequence[T]]], "asyncio.Future[list[R]]"],
        is_open: Callable[["asyncio.Future[list[R]]"], bool],
        most: int,
    ) -> None:
        self._start = start
        self._is_open = is_open
        self._most = most
        self._requests: list[Sequence[T]] = []  # of the latest step
        self._step: asyncio.Future[list[R]] | None = None
        self._size = 0

    async def ask(self, request: Sequence[T]) -> R:
        """The answer to this request. Requests are done in the order of these calls."""
        if self._step is None or self._size + len(request) > self._most or not self._is_open(self._step):
            self._requests, self._size = [], 0
            self._step = self._start(self._requests)
        requests, step, place = self._requests, self._step, len(self._requests)
        requests.append(request)
        self._size += len(request)
        try:
            answers = await asyncio.shield(step)
        except (StoreError, TimeoutError):
            raise
        except Exception:
            if len(requests) == 1:
                raise
            return (await asyncio.shield(self._start([request])))[0]
        finally:
            if self._step is step and step.done():  # what it held can go
                self._requests, self._step = [], None
        return answers[place]


class SerialGroupCommit(GroupCommit[T, R]):
    """Runs one step at a time: what is asked for meanwhile goes into the next one together."""

    def __init__(self, run: Callable[[list[Sequence[T]]], Awaitable[list[R]]], most: int, name: str) -> None:
        super().__init__(self._begin, lambda step: step is self._waiting, most)
        self._run = run
        self._name = name
        self._tasks = BackgroundTasks()
        self._last: asyncio.Task[list[R]] | None = None
        self._waiting: asyncio.Task[list[R]] | None = None  # it has not begun
        self._unfinished: dict[asyncio.Task[list[R]], list[Sequence[T]]] = {}

    @property
    def pending(self) -> int:
        """The items of requests that are not answered yet."""
        return sum(len(request) for requests in self._unfinished.values() for request in requests)

    async def join(self) -> None:
        """Wait until everything that was asked for is answered."""
        await self._tasks.join()

    def _begin(self, requests: list[Sequence[T]]) -> "asyncio.Task[list[R]]":
        step = self._tasks.start(self._work(requests, self._last), self._name, awaited=True)
        self._waiting = self._last = step
        self._unfinished[step] = requests
        step.add_done_callback(self._unfinished.pop)
        return step

    async def _work(self, requests: list[Sequence[T]], before: "asyncio.Task[list[R]] | None") -> list[R]:
        if before is not None:
            await asyncio.wait([before])
        if self._waiting is asyncio.current_task():
            self._waiting = None
        return await self._run(requests)
