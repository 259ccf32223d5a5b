"""Customers are served side by side, the updates of each in order.

By itself python-telegram-bot handles one update at a time: while one customer's answer waits for its turn,
nobody else would be heard. With `concurrent_updates(True)` a conversation could get its answers mixed up.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any
from weakref import WeakValueDictionary

from telegram import Update
from telegram.ext import BaseUpdateProcessor

AT_ONCE = 256


class SideBySide(BaseUpdateProcessor):
    def __init__(self) -> None:
        super().__init__(AT_ONCE)
        self._busy: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    async def do_process_update(self, update: object, coroutine: Awaitable[Any]) -> None:
        chat = update.effective_chat if isinstance(update, Update) else None
        lock = self._busy.setdefault(chat.id if chat is not None else 0, asyncio.Lock())
        async with lock:  # forgotten when nobody holds it
            await coroutine

    async def initialize(self) -> None:
        pass

    async def shutdown(self) -> None:
        pass
