"""Joins many small requests into few: items that come while one is under way go with the next."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from tidegate import Clock

Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")


class Together(Generic[Item, Result]):
    """`ask(items)` answers for all of them; each caller gets its own answer, or the error of the request.

    One request at a time, of at most `most` items, and at most one in `every` seconds, to leave room for
    others. The first item does not wait.
    """

    def __init__(
        self,
        ask: Callable[[Sequence[Item]], Awaitable[Mapping[Item, Result]]],
        *,
        most: int,
        every: float,
        clock: Clock,
    ) -> None:
        self._ask = ask
        self._most = most
        self._every = every
        self._clock = clock
        self._waiting: dict[Item, asyncio.Future[Result]] = {}
        self._running: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Result:
        if item not in self._waiting:
            self._waiting[item] = asyncio.get_running_loop().create_future()
        answer = self._waiting[item]
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await asyncio.shield(answer)  # others may wait for the same

    async def _run(self) -> None:
        while self._waiting:
            began = self._clock.monotonic()
            answers = {item: self._waiting.pop(item) for item in list(self._waiting)[: self._most]}
            asked = asyncio.ensure_future(self._ask(list(answers)))
            await asyncio.wait([asked])
            for item, answer in answers.items():
                if answer.done():  # its caller was cancelled
                    continue
                if (error := asked.exception()) is not None:
                    answer.set_exception(error)
                else:
                    answer.set_result(asked.result()[item])
            await self._clock.sleep(max(0.0, began + self._every - self._clock.monotonic()))
