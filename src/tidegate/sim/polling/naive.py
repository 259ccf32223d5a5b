"""A bot as it is written on the first day: a task for each person, which asks again and again.

It is here to be measured. Nothing else may use it.
"""

import asyncio
import random
from collections.abc import Callable, Iterable

import msgspec

from tidegate.clock import Clock
from tidegate.upstream.wire import NoResponse, Request, Wire

AFTER_AN_ERROR = (5.0, 30.0)  # seconds, at random: NocoDB does not say when to come back
OK = 200
Tell = Callable[[str], None]


class NaiveBot:
    """No limiter, and no word between the tasks: each asks at once, then every `interval` seconds."""

    def __init__(self, wire: Wire, table: str, *, interval: float, clock: Clock, seed: int = 0) -> None:
        self._wire, self._table = wire, table
        self._interval, self._clock = interval, clock
        self._draw = random.Random(seed)  # noqa: S311  (repeatable, not secret)

    async def poll(self, keys: Iterable[str], tell: Tell, heard: Tell = lambda _: None) -> None:
        """Until everybody has paid and was told, or until cancelled. `heard`: for whom the API answered."""
        async with asyncio.TaskGroup() as group:
            for key in keys:
                group.create_task(self._follow(key, tell, heard))

    async def _follow(self, key: str, tell: Tell, heard: Tell) -> None:
        while (paid := await self._has_paid(key)) is not True:
            if paid is not None:
                heard(key)
            await self._clock.sleep(self._draw.uniform(*AFTER_AN_ERROR) if paid is None else self._interval)
        tell(key)

    async def _has_paid(self, key: str) -> bool | None:
        """None: it was not to be learned."""
        path = f"api/v2/tables/{self._table}/records/{key}"
        answer = await self._wire.send(Request(method="GET", path=path))
        if isinstance(answer, NoResponse) or answer.status != OK:
            return None
        return bool(msgspec.json.decode(answer.body)["Paid"])
