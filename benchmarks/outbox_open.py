"""Section `open` of `outbox.py`: a file with many messages, from a cold start to the first claims.

The file was closed well, and the system's cache does not hold it. `open` is until the process is the sender
and has its schedule; `memory` is the most the process ever had, all of Python included. Then come a hundred
claims of a hundred, each settled before the next; `worst step` is the slowest of all these.
"""

import os
import statistics
import time
from pathlib import Path
from typing import Final

import uvloop
from benchmarks.outbox_cycle import BATCH, settlements
from benchmarks.outbox_subject import (
    STORE,
    Figures,
    Section,
    Subject,
    Target,
    batches,
    outbox_at,
    peak_memory,
)

CLAIMS: Final = 100
TARGETS: Final = (Target("open_s", below=15), Target("memory_mb", below=1_000))


async def fill(folder: Path, number: int, chats: int) -> None:
    outbox = outbox_at(folder)
    await outbox.open()
    for batch in batches(number, 1_000, chats=chats):
        await outbox.put(batch)
    await outbox.close()


async def start(folder: Path, number: int) -> Figures:
    _forget_cached(folder / STORE)
    outbox, claiming, settling = outbox_at(folder), list[float](), list[float]()
    began = time.perf_counter()
    await outbox.open()
    await outbox.start_sending()
    opened = time.perf_counter() - began
    memory = peak_memory()
    for _ in range(min(CLAIMS, number // BATCH)):
        asked = time.perf_counter()
        claims = await outbox.claim(BATCH)
        claimed = time.perf_counter()
        assert len(claims) == BATCH
        await outbox.settle(settlements(claims))
        claiming.append(claimed - asked)
        settling.append(time.perf_counter() - claimed)
    await outbox.close()
    return {
        "open_s": opened,
        "memory_mb": memory,
        "claim_us": 1e6 * statistics.fmean(claiming) / BATCH,
        "claim_of_100_p50_ms": 1e3 * statistics.median(claiming),
        "claim_of_100_p99_ms": 1e3 * sorted(claiming)[int(0.99 * (len(claiming) - 1))],
        "settle_us": 1e6 * statistics.fmean(settling) / BATCH,
        "worst_step_ms": 1e3 * max(claiming + settling),
        "file_mb": (folder / STORE).stat().st_size / 1e6,
    }


def _forget_cached(path: Path) -> None:
    file = os.open(path, os.O_RDWR)
    os.fsync(file)  # what is not on disk yet would stay
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def section(*, small: bool) -> Section:
    large = 100_000 if small else 1_000_000
    sizes = {(n, n) for n in (10_000, 100_000, large)} | {(large, 10_000)}

    def subject(number: int, chats: int) -> Subject:
        each = "a chat each" if chats == number else f"to {chats:,} chats"
        return Subject(
            f"{number:,} messages, {each}",
            lambda folder: uvloop.run(start(folder, number)),
            prepare=lambda folder: uvloop.run(fill(folder, number, chats)),
            targets=TARGETS,
        )

    subjects = {f"{number}-{chats}": subject(number, chats) for number, chats in sorted(sizes)}
    return Section("a queue that is opened", subjects)
