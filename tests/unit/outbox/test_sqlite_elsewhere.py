"""The steps of the contract's state machine, where messages and operators come from another process."""

import tempfile
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from contract.machine import machine_for
from contract.stores import FAST, OnlySender
from shrinking import ROOM_TO_SHRINK
from tidegate.clock import Clock
from tidegate.model import BotId, ChatId, Message, Record, Ticket, TicketId
from tidegate.outbox.port import Outbox
from tidegate.pacing.rules import Rules
from tidegate.stores.sqlite.outbox import SqliteOutbox


class Elsewhere(OnlySender):
    """Sends, and looks at what the other did as soon as that is done."""

    def __init__(self, path: Path, clock: Clock, rules: Rules, **options: Any) -> None:  # noqa: ANN401
        super().__init__(path, clock, rules, **options)
        self.other = SqliteOutbox(path, clock, rules, **options)

    async def open(self) -> None:
        await super().open()
        await self.other.open()

    async def close(self) -> None:
        await self.other.close()
        await super().close()

    async def put(self, messages: Sequence[Message]) -> list[Ticket]:
        tickets = await self.other.put(messages)
        await self._catch_up()
        return tickets

    async def cancel(self, ids: Iterable[TicketId]) -> int:
        cancelled = await self.other.cancel(ids)
        await self._catch_up()
        return cancelled

    async def pause(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        await self.other.pause(bot, chat_id)
        await self._catch_up()

    async def resume(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        await self.other.resume(bot, chat_id)
        await self._catch_up()

    async def replay(self, ids: Iterable[TicketId]) -> int:
        replayed = await self.other.replay(ids)
        await self._catch_up()
        return replayed

    async def drop(self, ids: Iterable[TicketId]) -> int:
        dropped = await self.other.drop(ids)
        await self._catch_up()
        return dropped

    async def find(self, ticket: TicketId) -> Record | None:
        self._wake()  # as it does by itself, within a moment
        await self.file.read(lambda _: None)
        return await self.other.find(ticket)


def elsewhere(clock: Clock, rules: Rules, *, lease: float, keep: float) -> Outbox:
    folder = tempfile.TemporaryDirectory(dir=FAST)
    outbox = Elsewhere(Path(folder.name, "store.db"), clock, rules, lease=lease, keep=keep, poll=3600.0)
    weakref.finalize(outbox, folder.cleanup)
    return outbox


@ROOM_TO_SHRINK
def test_a_sender_follows_another_process_as_it_does_what_is_asked_of_itself() -> None:
    some = settings(stateful_step_count=40, max_examples=settings().max_examples // 3)
    run_state_machine_as_test(machine_for(elsewhere), settings=some)
