"""Section `cycle` of `outbox.py`: how many messages a second are claimed and settled, each step on disk.

The whole schedule is asked and no limit binds; 10,000 chats, the messages of a chat in order; claims of 100.
Results are of the size that Telegram sends. A worker claims while others are settled, so several batches are
on their way at once, and their steps share commits: the target is for four.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop
from benchmarks import outbox_peers as peers
from benchmarks.outbox_subject import (
    RULES,
    STORE,
    TEXT,
    Figures,
    Section,
    Subject,
    Target,
    Watch,
    batches,
    outbox_at,
)

from tidegate import Tidegate
from tidegate.delivery.transport import ApiAnswer, BotApiTransport
from tidegate.model import Claim, Delivered, Settlement
from tidegate.outbox.port import Outbox

CHATS: Final = 10_000
BATCH: Final = 100
TARGET: Final = Target("per_second", at_least=30_000)
RESULT: Final = {
    "message_id": 123_456,
    "from": {"id": 42, "is_bot": True, "first_name": "Shop", "username": "the_shop_bot"},
    "chat": {"id": 1_000_000_000, "first_name": "Ann", "username": "ann", "type": "private"},
    "date": 1_700_000_000,
    "text": TEXT,
}


class DeafWire(BotApiTransport):
    """Answers at once."""

    async def call(self, *_: object, on_written: Callable[[], None] | None = None, **__: object) -> ApiAnswer:
        if on_written is not None:
            on_written()
        return ApiAnswer(200, {"ok": True, "result": RESULT})

    async def close(self) -> None:
        pass


async def cycle(outbox: Outbox, number: int, at_once: int) -> None:
    """Claim, settle, claim: two commits for each hundred, or a part of them."""
    left = iter(range(number // BATCH))

    async def one() -> None:
        for _ in left:
            claims = await outbox.claim(BATCH)
            assert len(claims) == BATCH
            await outbox.settle(settlements(claims))

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(one())


def settlements(claims: list[Claim]) -> list[Settlement]:
    return [Settlement(claim, Delivered(RESULT)) for claim in claims]


async def store(folder: Path, number: int, at_once: int) -> Figures:
    outbox, cycling = outbox_at(folder), Watch()
    await outbox.open()
    await outbox.start_sending()
    filling = await fill(outbox, number)
    with cycling:
        await cycle(outbox, number, at_once)
    assert (await outbox.stats()).delivered == number
    await outbox.close()
    return {**cycling.figures(number), "with_its_put": number / (filling + cycling.seconds)}


async def worker(folder: Path, number: int) -> Figures:
    """The facade and its worker, a task for each call, a wire that answers at once."""
    async with Tidegate(folder / STORE, rules=RULES, wire=DeafWire()) as gate:
        gate.add_bot("42:token")
        await gate.outbox.start_sending()
        filling = await fill(gate.outbox, number)
        cycling = Watch()
        with cycling:
            async with gate.worker():
                await gate.drained()
        assert (await gate.stats()).delivered == number
    return {**cycling.figures(number), "with_its_put": number / (filling + cycling.seconds)}


async def fill(outbox: Outbox, number: int) -> float:
    watch = Watch()
    for batch in batches(number, 1_000, chats=CHATS):
        with watch:
            await outbox.put(batch)
    return watch.seconds


def section(*, small: bool) -> Section:
    many = 10_000 if small else 50_000

    def ours(run: Callable[..., Any], *arguments: object) -> Callable[[Path], Figures]:
        return lambda folder: uvloop.run(run(folder, many, *arguments))

    subjects: Mapping[str, Subject] = {
        "four": Subject("Tidegate, four batches at once", ours(store, 4), targets=(TARGET,)),
        "one": Subject("Tidegate, one batch after the other", ours(store, 1)),
        "worker": Subject("Tidegate, its worker with a wire that answers at once", ours(worker)),
        "huey": Subject("huey: dequeue, execute", partial(peers.huey, cycle=True)),
        "plain": Subject("a row in each transaction: update, delete", partial(peers.plain, cycle=True)),
    }
    return Section("claim + settle", subjects, {"huey": "to huey", "plain": "to plain"})
