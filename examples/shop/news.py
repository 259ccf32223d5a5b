"""The owner tells every customer something. It goes on after a restart, and nobody hears it twice."""

import asyncio
from collections.abc import Mapping
from typing import Any

from shop.book import Book
from shop.texts import Texts
from tidegate import Tidegate
from tidegate.errors import ClosedError


class News:
    def __init__(self, gate: Tidegate, book: Book, texts: Texts, owner: int) -> None:
        self._gate = gate
        self._book = book
        self._texts = texts
        self._owner = owner
        self._running: set[asyncio.Task[None]] = set()  # held until they are done

    async def publish(self, text: str) -> str:
        """What to tell the owner now; the result follows when it is known."""
        if not text:
            return self._texts("news_how")
        self._start(await self._book.add_news(text), text)
        return self._texts("news_begin", count=len(await self._book.customers()))

    async def resume(self) -> None:
        """Go on with what a restart has interrupted."""
        for name, text in await self._book.unfinished_news():
            self._start(name, text)

    def _start(self, name: str, text: str) -> None:
        task = asyncio.create_task(self._broadcast(name, text))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _broadcast(self, name: str, text: str) -> None:
        customers = await self._book.customers()
        try:
            # Low by itself: whoever writes to the bot meanwhile is answered first.
            campaign = await self._gate.broadcast(name, customers, {"text": text}, on_dead=self._mark)
            result = await campaign.finished()
            end = self._texts("news_end", delivered=result.delivered, gone=result.dead)
            await self._gate.send(chat_id=self._owner, text=end, dedup_key=f"end of {name}")
        except ClosedError:
            return  # the bot stops; `resume` goes on
        await self._book.finish_news(name)

    async def _mark(self, row: Mapping[str, Any], reason: str) -> None:
        await self._book.mark_gone(row["chat_id"], reason)
