"""A producer whose Redis comes and goes, to be killed: `spooling.py FOLDER TAKEN NAME SEED`.

It prints the id of each message once it is accepted, and never ends. What Redis took is in the file TAKEN.
"""

import asyncio
import itertools
import os
import random
import sys
from pathlib import Path
from typing import Final

from tidegate.clock import Clock
from tidegate.model import BotId, Message, TicketId
from tidegate.stores.redis.spool import Spool

TASKS: Final = 3  # that add at the same time


async def produce(folder: str, taken: str, name: str, seed: str) -> None:
    clock, draw = Clock(), random.Random(seed)
    file = os.open(taken, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    spool = Spool(Path(folder), clock)
    await spool.open()

    async def put(messages: list[Message]) -> None:
        if draw.random() < 0.3:
            raise ConnectionError
        os.write(file, "".join(f"{message.id}\n" for message in messages).encode())
        if draw.random() < 0.3:  # it took them, and its answer was lost
            raise ConnectionError

    async def add(task: int) -> None:
        for number in itertools.count():
            message = _message(f"{name}/{task} {number}")
            await spool.add([message])
            sys.stdout.write(f"{message.id}\n")
            sys.stdout.flush()

    async def drain() -> None:
        while True:
            await clock.sleep(draw.uniform(0.0, 0.05))
            try:
                await spool.drain(put)
            except ConnectionError:
                continue

    await asyncio.gather(*map(add, range(TASKS)), drain())


def _message(name: str) -> Message:
    return Message(
        id=TicketId(name), bot=BotId(42), chat_id=1, method="sendMessage", params={"text": "x" * 200}
    )


if __name__ == "__main__":
    asyncio.run(produce(*sys.argv[1:5]))
