"""What `redis_store.py` has everybody move, and how it is counted, in whichever interpreter.

A producer prints one line of JSON when it is done, a worker when it has handled as many as it was asked to;
the worker then goes on until it is killed, and ends by itself if nobody does that.
"""

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Any, Final

BOT: Final = 42
CHATS: Final = 1_000
TEXT: Final = "Your order has left our house and arrives on Thursday, 9-12."
WARM_UP: Final = 1_000  # messages, before the clock starts
SECONDS: Final = 5.0  # that are counted at most
LIFE: Final = 90  # seconds, of a process that was forgotten

Params = dict[str, Any]


class Tally:
    """Counts messages. Its clock starts after the warm-up, and stops at the last one or after `SECONDS`."""

    def __init__(self, number: int) -> None:
        self.number, self.count, self.over = number, 0, False
        self._began, self._warm = 0.0, 0

    def add(self, many: int = 1) -> None:
        self.count += many
        now = time.perf_counter()
        if not self._began and self.count >= WARM_UP:
            self._began, self._warm = now, self.count
        elif not self.over and (self.count >= self.number or (self._began and now > self._began + SECONDS)):
            self.over = True
            report(per_second=(self.count - self._warm) / (now - self._began), count=self.count)


def report(**figures: float) -> None:
    print(json.dumps(figures), flush=True)


def params(number: int) -> Iterator[Params]:
    """As keyword arguments of a handler."""
    for i in range(number):
        yield {"bot": BOT, "method": "sendMessage", "chat_id": 1_000_000_000 + i % CHATS, "text": TEXT}


def chunks(tally: Tally, size: int) -> Iterator[list[Params]]:
    waiting = params(tally.number)
    while not tally.over and (chunk := list(islice(waiting, size))):
        yield chunk


async def put_at_once(number: int, tasks: int, put: Callable[..., Awaitable[object]]) -> None:
    """For who has no verb for many: as many single puts on their way as were found best."""
    tally = Tally(number)
    waiting = params(number)

    async def produce() -> None:
        for each in waiting:
            await put(**each)
            tally.add()
            if tally.over:
                return

    await asyncio.gather(*(produce() for _ in range(tasks)))


def arguments() -> tuple[str, str, int]:
    """The verb (`put` or `work`), the address of Redis, how many messages with those of the warm-up."""
    signal.alarm(LIFE)
    return sys.argv[1], sys.argv[2], int(sys.argv[3])
