"""A bot as it is written on the first day: no pacing, and retries where Telegram says no.

It is here to be measured. Nothing else may use it.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import aiohttp

from tidegate.clock import Clock

IN_FLIGHT = 20
POLL_SECONDS = 10


class NaiveBot:
    """Speaks plain HTTP."""

    def __init__(self, session: aiohttp.ClientSession, address: str, clock: Clock) -> None:
        self._session, self._address, self._clock = session, address, clock

    async def broadcast(self, people: Iterable[int], text: str) -> None:
        """To everybody, as fast as it goes with 20 requests in flight."""
        rest = iter(people)
        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(self._send_to_each(rest, text))

    async def answer(self) -> None:
        """Everybody who writes, until cancelled; each reply on its own."""
        offset = 0
        async with asyncio.TaskGroup() as replies:
            while True:
                updates = await self._call("getUpdates", {"offset": offset, "timeout": POLL_SECONDS})
                for update in updates.get("result", []):
                    offset = update["update_id"] + 1
                    replies.create_task(self._send(update["message"]["chat"]["id"], f"You said #{offset}"))

    async def _send_to_each(self, people: Iterator[int], text: str) -> None:
        for person in people:
            await self._send(person, text)

    async def _send(self, chat: int, text: str) -> None:
        while True:
            answer = await self._call("sendMessage", {"chat_id": chat, "text": text})
            if answer["ok"]:
                return
            await self._clock.sleep(answer.get("parameters", {}).get("retry_after", 1))

    async def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        async with self._session.post(f"{self._address}/{method}", json=params) as response:
            answer: dict[str, Any] = await response.json()
            return answer
