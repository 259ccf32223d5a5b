"""kill -9 of producers while Redis is away: what they had accepted is put by those who come after them."""

import asyncio
import random
from collections import defaultdict
from pathlib import Path

import pytest

from system import spooling
from system.killing import clock, in_thread, kill, line_of, running
from tidegate.model import Message
from tidegate.stores.redis.spool import Spool


async def live_and_die(folder: Path, taken: Path, name: str, seconds: float) -> list[str]:
    """What it said that it had accepted; a line that was cut off does not count."""
    arguments = (str(folder), str(taken), name, name)
    async with running(*arguments, script=spooling.__file__) as process:
        first = await line_of(process)
        await clock.sleep(seconds)
        said = f"{first}\n{await kill(process)}"
    return said.split("\n")[:-1]


async def check_kills(tmp_path: Path, *, side_by_side: int, lives: int) -> None:
    folder, taken, draw = tmp_path / "spool", tmp_path / "taken", random.Random(lives)

    async def one_after_the_other(slot: int) -> list[str]:
        return [
            line
            for life in range(lives)
            for line in await live_and_die(folder, taken, f"{slot}-{life}", draw.uniform(0.0, 0.25))
        ]

    told = await asyncio.gather(*map(one_after_the_other, range(side_by_side)))
    put = (await in_thread(taken.read_text)).splitlines() if await in_thread(taken.exists) else []

    async def take(messages: list[Message]) -> None:
        put.extend(message.id for message in messages)

    spool = Spool(folder, clock)
    await spool.open()
    left = len(spool)
    assert await spool.drain(take) == left
    await spool.close()

    assert {line for lines in told for line in lines} <= set(put)
    assert await in_thread(lambda: list(folder.iterdir())) == []
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for name in dict.fromkeys(put):  # the first time of each
        producer, _, number = name.partition(" ")
        numbers[producer].append(int(number))
    assert len(numbers) == side_by_side * lives * spooling.TASKS
    assert all(found == list(range(len(found))) for found in numbers.values()), "in order, and none missing"


async def test_producers_that_are_killed_lose_nothing_that_they_accepted(tmp_path: Path) -> None:
    await check_kills(tmp_path, side_by_side=2, lives=3)


@pytest.mark.proof
@pytest.mark.timeout(300)
async def test_producers_that_are_killed_a_hundred_times_lose_nothing(tmp_path: Path) -> None:
    await check_kills(tmp_path, side_by_side=4, lives=25)
