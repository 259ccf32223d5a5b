"""Where messages move from: a file, with its sender's lock, so that nobody sends from it meanwhile."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.outbox.sqlite import moving, recovery
from tidegate.outbox.sqlite.file import StoreFile, Transaction
from tidegate.outbox.sqlite.lock import SenderLock
from tidegate.outbox.sqlite.turns import quarantine
from tidegate.pacing.rules import Family, Rules

FAMILIES: tuple[Family, ...] = ("send", "edit", "action", "free")


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[StoreFile]:
    file = StoreFile(path)
    await file.open()
    try:
        yield file
    finally:
        await file.close()


@asynccontextmanager
async def alone(path: Path, clock: Clock) -> AsyncIterator[None]:
    """While the body runs, no process is the sender. Raises StoreError that names one that is."""
    lock = SenderLock(path)
    if sender := await lock.holder():
        raise StoreError(f"{sender} sends for {path}: stop it first, then move")
    await lock.take(clock)
    try:
        yield
    finally:
        await lock.release()


async def settle_crashes(file: StoreFile, clock: Clock, rules: Rules) -> None:
    """What was being sent when its sender died waits again, or has come to its end; its slots may cool."""
    kinds: dict[str, str] = {family: rules.kind(family) for family in FAMILIES}
    last, more = 0, True

    def step(tx: Transaction) -> int:
        return recovery.load(tx, last, clock.now(), kinds).last

    while more:
        before, last = last, await file.write(step)
        more = last > before
    if not await file.read(moving.ended_well):
        await clock.sleep(quarantine(rules))  # not every direct call is written down
