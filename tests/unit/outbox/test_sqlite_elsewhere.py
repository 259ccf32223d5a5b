"""The steps of the contract's state machine, where messages and operators come from another process."""

import tempfile
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from contract.machine import machine_for
from contract.post import BOT
from contract.stores import FAST, OnlySender
from restarts import Disk
from shrinking import ROOM_TO_SHRINK
from tidegate.clock import Clock
from tidegate.model import BotId, ChatId, Message, Priority, Record, Ticket, TicketId
from tidegate.outbox.port import Outbox
from tidegate.pacing.rules import Rules
from tidegate.sim.virtual_time import VirtualClock
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

    async def reprioritize(self, ids: Iterable[TicketId], priority: Priority) -> int:
        changed = await self.other.reprioritize(ids, priority)
        await self._catch_up()
        return changed

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


async def test_the_sender_hears_of_a_priority_that_another_process_has_changed(
    clock: VirtualClock, tmp_path: Path
) -> None:
    disk = Disk(tmp_path / "store.db", clock)
    sender, other = await disk.sender(), await disk.opener()
    lows = await sender.put_many(30, 1, priority="low")
    due = clock.now() + 10
    later = await sender.put(1, priority="low", not_before=due)
    await sender.outbox.pause(BOT)
    await sender.put(1, priority="high")

    assert await other.outbox.reprioritize([lows[29], later], Priority.HIGH) == 2
    await clock.sleep(0.2)
    await sender.outbox.resume(BOT)

    order = await sender.order(5)
    assert order[0] == lows[29]
    assert (await sender.outbox.stats_by_bot())[BOT].high == 1
    assert (await other.outbox.stats()).oldest_at is None
    await clock.sleep(8)
    assert (await other.outbox.stats()).oldest_at == due
    assert await sender.order(5) == [later]
    for outbox in disk.opened:
        await outbox.close()


@ROOM_TO_SHRINK
def test_a_sender_follows_another_process_as_it_does_what_is_asked_of_itself() -> None:
    some = settings(stateful_step_count=40, max_examples=settings().max_examples // 3)
    run_state_machine_as_test(machine_for(elsewhere), settings=some)
