"""Many callers, one step: what is asked for while a step is under way goes together in the next."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

ITEMS_PER_BATCH: Final = 500  # arrivals in a step: Redis is for others too


class Gathering(Generic[T, R]):
    """`run` gets what the callers gave, and answers each of them. One call at a time; none is cut in two."""

    def __init__(self, run: Callable[[list[Sequence[T]]], Awaitable[list[R]]]) -> None:
        self._run = run
        self._asked: list[tuple[Sequence[T], asyncio.Future[R]]] = []
        self._working: asyncio.Task[None] | None = None

    async def ask(self, what: Sequence[T]) -> R:
        """If the caller is cancelled, it is done all the same."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._asked.append((what, answer))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work(), name="tidegate: inbox, steps")
        return await answer

    async def close(self) -> None:
        """What was asked for is answered."""
        if self._working is not None:
            await asyncio.wait([self._working])

    async def _work(self) -> None:
        while self._asked:
            batch = self._next()
            try:
                answers = await self._run([what for what, _ in batch])
            except Exception as error:  # noqa: BLE001  (it belongs to those who asked)
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)

    def _next(self) -> list[tuple[Sequence[T], asyncio.Future[R]]]:
        size = count = 0
        for what, _ in self._asked:
            size += len(what)
            if count and size > ITEMS_PER_BATCH:
                break
            count += 1
        batch, self._asked = self._asked[:count], self._asked[count:]
        return batch
