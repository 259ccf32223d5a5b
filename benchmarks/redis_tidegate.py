"""Tidegate's store in Redis, for `redis_store.py`: one producer or one worker; limits that never bind.

With a fourth argument, `facade`, the same through `send_many` and the worker, whose wire answers at once.
"""

import asyncio
import secrets
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import uvloop
from benchmarks.redis_load import BOT, Params, Tally, arguments, chunks

from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.delivery.transport import ApiAnswer, BotApiTransport
from tidegate.model import BotId, Delivered, Message, Priority, Rate, Settlement, TicketId
from tidegate.outbox.port import Outbox
from tidegate.pacing.rules import Rules
from tidegate.stores.redis.connection import RedisPyConnection
from tidegate.stores.redis.outbox import RedisOutbox

BULK: Final = 1_000
ROOM: Final = 100
AT_ONCE: Final = 4  # claims on their way
FREE: Final = Rate(10**9, 1)
RULES: Final = Rules(bot=FREE, private=FREE, group=FREE, paid=FREE)
RESULT: Final = {"message_id": 123_456}


def outbox_at(url: str) -> Outbox:
    clock = Clock()
    return RedisOutbox(RedisPyConnection(url, clock, secrets.token_hex(4)), clock, RULES)


def message(i: int, params: Params) -> Message:
    """Of high priority: others are spaced, which makes small batches where nothing else limits."""
    return Message(
        id=TicketId(f"0123456789ab-{i:x}"),
        bot=BotId(params["bot"]),
        chat_id=params["chat_id"],
        method=params["method"],
        params={"text": params["text"]},
        priority=Priority.HIGH,
    )


async def put(url: str, number: int) -> None:
    """Making the messages counts, as it does for the others."""
    outbox, tally, numbers = outbox_at(url), Tally(number), count()
    await outbox.open()
    for chunk in chunks(tally, BULK):
        await outbox.put([message(i, params) for i, params in zip(numbers, chunk, strict=False)])
        tally.add(len(chunk))
    await outbox.close()


async def work(url: str, number: int) -> None:
    """A message counts when it is settled."""
    outbox, tally = outbox_at(url), Tally(number)
    await outbox.open()
    await outbox.start_sending()

    async def cycle() -> None:
        while True:
            claims = await outbox.claim(ROOM)
            ended = await outbox.settle([Settlement(claim, Delivered(RESULT)) for claim in claims])
            assert None not in ended
            tally.add(len(ended))

    await asyncio.gather(*(cycle() for _ in range(AT_ONCE)))


class CountingWire(BotApiTransport):
    """Answers at once."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    async def call(self, *_: object, on_written: Callable[[], None] | None = None, **__: object) -> ApiAnswer:
        if on_written is not None:
            on_written()
        self._tally.add()
        return ApiAnswer(200, {"ok": True, "result": RESULT})

    async def close(self) -> None:
        pass


async def send_many(url: str, number: int) -> None:
    tally = Tally(number)
    async with Tidegate(url, rules=RULES) as gate:
        gate.add_bot(f"{BOT}:token")
        for chunk in chunks(tally, BULK):
            await gate.send_many({"chat_id": each["chat_id"], "text": each["text"]} for each in chunk)
            tally.add(len(chunk))


async def worker(url: str, number: int) -> None:
    async with Tidegate(url, rules=RULES, wire=CountingWire(Tally(number))) as gate:
        gate.add_bot(f"{BOT}:token")
        async with gate.worker():
            await asyncio.Event().wait()


VERBS: Final = {"": {"put": put, "work": work}, "facade": {"put": send_many, "work": worker}}

if __name__ == "__main__":
    verb, url, number = arguments()
    uvloop.run(VERBS["".join(sys.argv[4:5])][verb](url, number))
