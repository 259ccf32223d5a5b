"""Section `puts` of `outbox.py`: messages accepted in a second, each on disk when its put returns."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Literal

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

Role = Literal["producer", "sender"]
TASKS: Final = 1_000
BULK: Final = Target("per_second", at_least=100_000)
SINGLE: Final = Target("per_second", at_least=20_000)


async def bulk(folder: Path, number: int, size: int, role: Role) -> Figures:
    """One put after the other. Making the messages is not counted."""
    outbox, watch = outbox_at(folder), Watch()
    await outbox.open()
    if role == "sender":
        await outbox.start_sending()
    for batch in batches(number, size):
        with watch:
            await outbox.put(batch)
    assert (await outbox.stats()).waiting == number
    await outbox.close()
    return watch.figures(number)


async def single(folder: Path, number: int, role: Role) -> Figures:
    """A thousand tasks, each with its next message as soon as the last one is on disk."""
    outbox, watch = outbox_at(folder), Watch()
    await outbox.open()
    if role == "sender":
        await outbox.start_sending()
    waiting = batches(number, 1)  # made as they go: a handful of microseconds each, and counted

    async def produce() -> None:
        for batch in waiting:
            await outbox.put(batch)

    with watch:
        await asyncio.gather(*(produce() for _ in range(TASKS)))
    assert (await outbox.stats()).waiting == number
    await outbox.close()
    return watch.figures(number)


async def facade(folder: Path, number: int) -> Figures:
    """What an application calls: every field is checked first."""
    async with Tidegate(folder / STORE, rules=RULES) as gate:
        gate.add_bot("42:token")
        watch = Watch()
        with watch:
            await gate.send_many({"chat_id": 1 + i, "text": TEXT} for i in range(number))
        return watch.figures(number)


def section(*, small: bool) -> Section:
    many, singles = (20_000, 5_000) if small else (100_000, 40_000)

    def ours(run: Callable[..., object], *arguments: object) -> Callable[[Path], Figures]:
        return lambda folder: uvloop.run(run(folder, *arguments))  # type: ignore[arg-type]

    roles: tuple[Role, ...] = ("producer", "sender")
    subjects: Mapping[str, Subject] = {
        **{
            f"{role}-{size}": Subject(
                f"Tidegate, {role}, {size:,} in a put", ours(bulk, many, size, role), 5, targets=(BULK,)
            )
            for role in roles
            for size in (250, 1_000)
        },
        **{
            f"{role}-1": Subject(
                f"Tidegate, {role}, single puts of {TASKS:,} tasks",
                ours(single, singles, role),
                targets=(SINGLE,),
            )
            for role in roles
        },
        "send-many": Subject("Tidegate, send_many of the facade", ours(facade, many)),
        "huey": Subject("huey", partial(peers.huey, cycle=False)),
        "plain": Subject("a row in each transaction", partial(peers.plain, cycle=False)),
        "bare": Subject("a bare table, 1,000 rows a commit", partial(peers.bare, number=many, size=1_000)),
    }
    return Section("durable puts", subjects, {"huey": "to huey", "plain": "to plain"})
