"""News of the owner for every customer. It continues after a restart, and each customer gets it once."""

import asyncio
from collections.abc import Mapping
from typing import Any

from shop.book import Book
from shop.texts import Texts
from tidegate import ClosedError, Tidegate


class News:
    def __init__(self, gate: Tidegate, book: Book, texts: Texts, owner: int) -> None:
        self._gate = gate
        self._book = book
        self._texts = texts
        self._owner = owner
        self._running: set[asyncio.Task[None]] = set()  # kept until they are done

    async def publish(self, text: str) -> str:
        """Start a broadcast; returns the answer for the owner. The result follows at its end."""
        if not text:
            return self._texts("news_how")
        self._start(await self._book.add_news(text), text)
        return self._texts("news_begin", count=len(await self._book.customers()))

    async def resume(self) -> None:
        """Continue the news that a restart has interrupted."""
        for name, text in await self._book.unfinished_news():
            self._start(name, text)

    def _start(self, name: str, text: str) -> None:
        task = asyncio.create_task(self._broadcast(name, text))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _broadcast(self, name: str, text: str) -> None:
        customers = await self._book.customers()
        try:
            # A broadcast has low priority: replies go first.
            campaign = await self._gate.broadcast(name, customers, {"text": text}, on_dead=self._mark)
            result = await campaign.finished()
            end = self._texts("news_end", delivered=result.delivered, gone=result.dead)
            await self._gate.send(chat_id=self._owner, text=end, dedup_key=f"end of {name}")
        except ClosedError:
            return  # the bot stops; `resume` continues
        await self._book.finish_news(name)

    async def _mark(self, row: Mapping[str, Any], reason: str) -> None:
        await self._book.mark_gone(row["chat_id"], reason)
