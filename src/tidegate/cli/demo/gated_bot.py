"""The same bot with Tidegate: what it has to send is handed over, and Tidegate decides when it leaves.

It is here to be measured beside the naive one. No pacing, no retries, no sleeps are left in it.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from tidegate.app import Tidegate
from tidegate.errors import OutcomeUnknownError

POLL_SECONDS = 10


class GatedBot:
    """Needs an open gate to which its bot was added, and a worker beside it."""

    def __init__(self, gate: Tidegate) -> None:
        self._gate = gate

    async def broadcast(self, people: Iterable[int], text: str) -> None:
        """To everybody; done when all is accepted, which is long before all is delivered."""
        news = ({"chat_id": person, "text": text} for person in people)
        await self._gate.send_many(news, priority="low")

    async def answer(self) -> None:
        """Everybody who writes, until cancelled; each reply on its own."""
        offset = 0
        async with asyncio.TaskGroup() as replies:
            while True:
                poll = {"offset": offset, "timeout": POLL_SECONDS}
                for update in await self._call("getUpdates", poll):
                    offset = update["update_id"] + 1
                    reply = {"chat_id": update["message"]["chat"]["id"], "text": f"You said #{offset}"}
                    replies.create_task(self._call("sendMessage", reply))

    async def _call(self, method: str, params: dict[str, Any]) -> Any:  # noqa: ANN401  (Telegram's result)
        with suppress(OutcomeUnknownError):  # the machine slept: polls are repeated, replies are not
            return await self._gate.call(method, params)
        return []
