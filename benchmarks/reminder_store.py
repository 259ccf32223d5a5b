"""How long the stores of reminders take to add a schedule and to claim what is due, and how much memory.

    python benchmarks/reminder_store.py [--rows 1000000] [--due 100000] [--json]

A SQLite file and a private PostgreSQL (tests/servers.py; it syncs nothing to disk) hold `rows` reminders with
keys, added 1,000 at a time; `due` of them, evenly spread, are claimed and advanced 500 at a time. The outbox
is not part of it. Real time; memory is the growth of this process while it claims.
"""

import argparse
import asyncio
import datetime as dt
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from servers import postgres_server
from tidegate.database.database import Database
from tidegate.database.reminders import SqlReminders
from tidegate.model import BotId
from tidegate.reminders.port import ADD_AT_ONCE
from tidegate.reminders.reminder import Daily, NewReminder, Reminder

CHUNK = 500
NOW, LATER = 1_000.0, 2_000.0


def rss() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def new(user: int) -> NewReminder:
    return NewReminder(
        bot=BotId(42),
        chat_id=user,
        user_id=user,
        key=f"water {user}",
        schedule=Daily(dt.time(9)),
        zone="Europe/Berlin",
        fields={"text": f"Hello {user}, it is time for a glass of water."},
    )


async def add(store: SqlReminders, rows: int, every: int) -> None:
    def first(given: NewReminder, number: int, _: Reminder | None) -> Reminder:
        at = NOW if given.user_id % every == 0 else LATER
        fields = msgspec.structs.asdict(given)
        return Reminder(**fields, id=number, created_at=0.0, occurrence_at=at, next_at=at)

    for start in range(1, rows + 1, ADD_AT_ONCE):
        await store.add([new(user) for user in range(start, min(start + ADD_AT_ONCE, rows + 1))], first)


async def claim(store: SqlReminders) -> tuple[int, float]:
    """Return how many were claimed, and the seconds of the slowest chunk."""
    count, slowest = 0, 0.0
    while True:
        began = time.monotonic()
        async with store.claim_due(NOW + 1, CHUNK) as batch:
            if not batch.reminders:
                return count, slowest
            after = [
                msgspec.structs.replace(one, next_at=LATER, queued=(NOW,), fired=1) for one in batch.reminders
            ]
            await batch.advance(after)
            count += len(after)
        slowest = max(slowest, time.monotonic() - began)


async def measure(address: str, rows: int, due: int) -> dict[str, float]:
    store = SqlReminders(Database(address))
    await store.open()
    began = time.monotonic()
    await add(store, rows, rows // due)
    added, memory = time.monotonic() - began, rss()
    began = time.monotonic()
    count, slowest = await claim(store)
    claimed = time.monotonic() - began
    assert count == due, count
    grown = rss() - memory
    began = time.monotonic()
    await store.counts(NOW)
    counted = time.monotonic() - began
    await store.close()
    return {
        "add_seconds": round(added, 1),
        "add_100000_seconds": round(added / rows * 100_000, 1),
        "claim_seconds": round(claimed, 1),
        "slowest_chunk_ms": round(slowest * 1_000),
        "grown_mb": round(grown / 1e6, 1),
        "count_seconds": round(counted, 2),
    }


@contextmanager
def addresses() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder, postgres_server() as server:
        yield {"SQLite": f"sqlite:///{folder}/data.db", "PostgreSQL": server.url}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with addresses() as places:
        found = {
            name: asyncio.run(measure(address, options.rows, options.due)) for name, address in places.items()
        }
    if options.json:
        print(json.dumps(found))
        return
    print(f"{options.rows:,} reminders, {options.due:,} due")
    for name, figures in found.items():
        print(f"{name:<11}", ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in figures.items()))


if __name__ == "__main__":
    main()
