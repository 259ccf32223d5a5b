"""Stores whose rows can be damaged behind their back. A new one is one more line in `DAMAGED_STORES`."""

import random
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from contract.stores import FAST, redis_url
from redis_hub import Hub, SharedConnection, inline
from restarts import kill
from tidegate import Tidegate
from tidegate.errors import StoreError
from tidegate.model import Message, TicketId
from tidegate.outbox.transitions import UNREADABLE, UNSETTLED_STATES
from tidegate.settings import Settings
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.message_codec import read_body
from tidegate.stores.redis import store as redis_store
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

    async def gate(self, clock: VirtualClock, wire: TelegramWire) -> Tidegate:
        """Return a gate on it, not opened yet."""
        return Tidegate(self.address, clock=clock, wire=wire)

    async def close(self) -> None:
        """Remove what is left of it."""

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


class RedisServer(DamagedStore):
    """Each gate has a link of its own to a real Redis on virtual time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.address = redis_url()
        self.survives = True
        self._settings = Settings.model_validate({"tidegate_spool": str(folder / "spool")})
        self._hub: Hub | None = None
        self._links: list[SharedConnection] = []

    async def gate(self, clock: VirtualClock, wire: TelegramWire) -> Tidegate:
        self._hub = self._hub or await inline(Hub, clock)
        link = SharedConnection(self._hub, f"p{len(self._links)}")
        link.name = "fuzz"  # type: ignore[attr-defined]  # of the folder of its spool
        self._links.append(link)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(redis_store, "RedisPyConnection", lambda *_: link)
            return Tidegate(self.address, clock=clock, wire=wire, settings=self._settings)

    async def damage(self, gate: Tidegate, draw: random.Random, share: float) -> Damaged:
        assert self._hub is not None
        damaged, messages = Damaged(set(), set()), self._hub.keys["messages"]
        for record in await gate.outbox.records(states=UNSETTLED_STATES, limit=10_000):
            ticket = record.message.id
            if record.reason != UNREADABLE and draw.random() < share:
                raw: bytes = await inline(self._hub.ask, "HGET", messages, ticket)
                body = raw.replace(b"sendMessage", b"\xc1" * 11, 1)  # the script can read it
                changed = body if draw.random() < 0.5 else b"\xc1" + raw[1:]  # nor can the script
                await inline(self._hub.ask, "HSET", messages, ticket, changed)
                damaged.unreadable.add(ticket)
        return damaged

    async def crash(self, gate: Tidegate) -> None:
        self._links[-1].away = True
        with suppress(StoreError):
            await gate.core.close()

    async def close(self) -> None:
        if self._hub is not None:
            await inline(self._hub.close)


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
    "redis": RedisServer,
}
