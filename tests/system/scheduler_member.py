"""Starts schedulers of reminders that are there to be killed: `scheduler_member.py`.

Each line of input, `Terms` as JSON, forks a process that runs a scheduler without a worker; so the imports
are paid for once. What it says begins with its pid: `started`, `ready`, `again N` (N messages of a put were
in the outbox already), and `between` (it has put a chunk, has not committed it, and stands still).
"""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]  # noqa: F401  (before a fork)
import msgspec
import uvloop

import tidegate.database.reminders
import tidegate.stores.redis.outbox  # noqa: F401  (likewise)
from tidegate import Tidegate
from tidegate.settings import Settings

TOKEN: Final = "42:token"
LOOK_EVERY: Final = 0.05  # seconds: what the test adds is found soon
DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG


class Terms(msgspec.Struct, kw_only=True, frozen=True):
    store: str
    database: str
    spool: str
    chunk: int
    hang_after: int = 0  # puts, and then it stands still within its transaction; 0: never


def gate_of(terms: Terms) -> Tidegate:
    """Not open yet."""
    settings = Settings(database_url=terms.database, tidegate_spool=terms.spool)  # type: ignore[arg-type]
    gate = Tidegate(terms.store, settings=settings)
    gate.add_bot(TOKEN)
    return gate


async def schedule(terms: Terms) -> None:
    gate, puts = gate_of(terms), 0
    put = gate.core.producer.put

    async def put_and_tell(messages: list[Any]) -> Sequence[Any]:
        nonlocal puts
        tickets = await put(messages)
        puts += 1
        if again := sum(not ticket.fresh for ticket in tickets):
            say(f"again {again}")
        if puts == terms.hang_after:
            say("between")
            await asyncio.Event().wait()
        return tickets

    gate.core.producer.put = put_and_tell  # type: ignore[method-assign,assignment]
    async with gate, gate.reminders.schedule(chunk=terms.chunk) as scheduler:
        say("ready")
        while True:
            await gate.clock.sleep(LOOK_EVERY)
            scheduler.wake()


def say(text: str) -> None:
    os.write(sys.stdout.fileno(), f"{os.getpid()} {text}\n".encode())


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are killed
    for line in sys.stdin:
        terms = msgspec.json.decode(line, type=Terms)
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
            say("started")
            uvloop.run(schedule(terms))


if __name__ == "__main__":
    main()
