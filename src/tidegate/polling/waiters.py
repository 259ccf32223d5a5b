"""Tasks of this process that await what others are told by a callback."""

import asyncio
from collections.abc import Collection
from typing import Any

from tidegate.errors import ClosedError
from tidegate.polling.subscriptions import News


class Waiters:
    def __init__(self) -> None:
        self._of: dict[str, list[asyncio.Future[Any]]] = {}
        self.made: set[str] = set()  # the keys whose subscription is there only because somebody awaits it

    def __contains__(self, key: str) -> bool:
        return key in self._of

    @property
    def keys(self) -> Collection[str]:
        return list(self._of)

    def join(self, key: str) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._of.setdefault(key, []).append(future)
        return future

    def leave(self, key: str, future: asyncio.Future[Any]) -> bool:
        """Whether that was the last one, and the subscription was made for them."""
        left = [other for other in self._of.get(key, ()) if other is not future]
        if left:
            self._of[key] = left
            return False
        self._of.pop(key, None)
        was_made = key in self.made
        self.made.discard(key)
        return was_made

    def tell(self, news: News) -> bool:
        """Whether anybody awaited it. One who awaits a payment is not told of its reversal."""
        if news.kind == "reversed" or news.key not in self._of:
            return False
        if news.kind == "gone":
            self.fail([news.key], f"the record of {news.key!r} is gone: nothing more will be heard of it")
            return True
        for future in self._of.pop(news.key):
            if not future.done():
                future.set_result(news.value)
        return True

    def fail(self, keys: Collection[str], text: str) -> None:
        for key in keys:
            for future in self._of.pop(key, ()):
                if not future.done():
                    future.set_exception(ClosedError(text))
