"""Stores whose rows can be damaged behind their back. A new one is one more line in `DAMAGED_STORES`."""

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from contract.stores import FAST
from restarts import kill
from tidegate import Tidegate
from tidegate.model import Message, TicketId
from tidegate.stores.message_codec import read_body
from tidegate.stores.sqlite.file import Transaction
from tidegate.stores.sqlite.outbox import SqliteOutbox


class Damaged(NamedTuple):
    """Messages whose stored bytes were changed: those that can still be decoded, and those that cannot."""

    readable: set[TicketId]
    unreadable: set[TicketId]


class DamagedStore:
    """One store for a run: several gates open it one after the other. This one keeps no bytes to damage."""

    def __init__(self, folder: Path) -> None:  # noqa: ARG002  (others keep their file there)
        self.address = "memory://"
        self.survives = False  # whether messages outlive the gate

    async def damage(self, gate: Tidegate, draw: random.Random, share: float) -> Damaged:  # noqa: ARG002
        """Flip bytes in the bodies of some messages that have not ended."""
        return Damaged(set(), set())

    async def crash(self, gate: Tidegate) -> None:
        """End the gate as kill -9 does: nothing is handed over."""


class SqliteFile(DamagedStore):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.address = str(folder / "tidegate.db")
        self.survives = True

    async def damage(self, gate: Tidegate, draw: random.Random, share: float) -> Damaged:
        damaged = Damaged(set(), set())

        def step(tx: Transaction) -> None:
            rows = tx.execute(
                "SELECT id, bot, chat_id, body FROM messages WHERE settled_at IS NULL"
            ).fetchall()
            for ticket, bot, chat_id, body in rows:
                if draw.random() < share:
                    changed = flipped(body, draw)
                    read = read_body(changed, ticket, bot, chat_id)
                    if isinstance(read, Message) and read.method != "sendMessage":
                        continue  # a 404 of its path looks like an outage: tried for hours, not poison
                    tx.execute("UPDATE messages SET body = ? WHERE id = ?", (changed, ticket))
                    (damaged.readable if isinstance(read, Message) else damaged.unreadable).add(ticket)

        await _outbox(gate).file.write(step)
        return damaged

    async def crash(self, gate: Tidegate) -> None:
        await kill(_outbox(gate))


def flipped(body: bytes, draw: random.Random) -> bytes:
    """The bytes with one to four of them changed, and sometimes cut off."""
    changed = bytearray(body or b"\0")  # nothing was left of it before
    for _ in range(draw.randint(1, 4)):
        changed[draw.randrange(len(changed))] ^= draw.randint(1, 255)
    return bytes(changed[: draw.randrange(len(changed))] if draw.random() < 0.1 else changed)


def _outbox(gate: Tidegate) -> SqliteOutbox:
    assert isinstance(gate.outbox, SqliteOutbox)
    return gate.outbox


def folder_for_a_run() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(dir=FAST)


DAMAGED_STORES: Final[dict[str, Callable[[Path], DamagedStore]]] = {
    "memory": DamagedStore,
    "sqlite": SqliteFile,
}
