"""Every table keyed by chat or message shrinks again. Looks inside the memory store, as only this can."""

import asyncio
from collections.abc import Sized
from typing import Any

import pytest

from tidegate.model import BotId, Dead, Delivered, Message, Outcome, Rate, Settlement, TicketId
from tidegate.pacing.rules import Rules
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.outbox import MemoryOutbox

BOT = BotId(42)
FAST = Rules(bot=Rate(1_000_000, 1), burst=1)
BATCH = 10_000


def message(number: int, **fields: object) -> Message:
    given: dict[str, Any] = {"bot": BOT, "chat_id": number + 1, "method": "sendMessage", "params": {}}
    return Message(id=TicketId(f"m{number}"), **given | fields)


async def broadcast(
    outbox: MemoryOutbox, clock: VirtualClock, chats: int, outcome: Outcome, **fields: object
) -> None:
    for start in range(0, chats, BATCH):
        await outbox.put([message(number, urgent=True, **fields) for number in range(start, start + BATCH)])
        claims = await outbox.claim(BATCH)
        assert len(claims) == BATCH
        await outbox.settle([Settlement(claim, outcome) for claim in claims])
        await clock.sleep(0.1)


async def idle(outbox: MemoryOutbox, clock: VirtualClock, seconds: float) -> None:
    """A worker that waits, and nothing to do for it."""
    waiting = asyncio.create_task(outbox.claim(1))
    await clock.sleep(seconds)
    waiting.cancel()
    await asyncio.wait([waiting])
    for _ in range(1_000):
        await outbox.find(TicketId("?"))  # each step forgets some of what has ended long ago


def left_of(outbox: MemoryOutbox) -> dict[str, int]:
    """What stands in any table, by its name; bots, of which there are few, and plain counts apart."""
    lasting = {"bots", "_counts", "_unsettled", "_active", "_aliases", "_kinds", "_untouched"}
    tables = vars(outbox) | vars(outbox.schedule) | vars(outbox._dispatcher)  # noqa: SLF001  (all of it)
    return {
        name: len(table)
        for name, table in tables.items()
        if isinstance(table, Sized) and table and name not in lasting
    }


async def one_message_each(clock: VirtualClock, chats: int) -> None:
    outbox = MemoryOutbox(clock, FAST, keep=10)
    await broadcast(outbox, clock, chats, Delivered({}), coalesce_key="c")

    await idle(outbox, clock, 3_000)

    assert (await outbox.stats()).delivered == chats
    assert left_of(outbox) == {}


async def test_nothing_is_left_of_20_000_chats_that_got_one_message_each(clock: VirtualClock) -> None:
    await one_message_each(clock, 20_000)


@pytest.mark.proof
@pytest.mark.timeout(300)
async def test_nothing_is_left_of_a_million_chats_that_got_one_message_each(clock: VirtualClock) -> None:
    await one_message_each(clock, 1_000_000)


async def test_a_far_deadline_is_not_remembered_after_delivery(clock: VirtualClock) -> None:
    outbox = MemoryOutbox(clock, FAST, keep=10)
    await broadcast(outbox, clock, 6 * BATCH, Delivered({}), expires_at=clock.now() + 1e6)
    assert len(outbox.schedule._timers) < 3 * BATCH  # noqa: SLF001  (the memory is what is under test)


async def test_lanes_are_forgotten_while_traffic_goes_on(clock: VirtualClock) -> None:
    outbox = MemoryOutbox(clock, Rules(bot=Rate(1000, 1), burst=1), keep=10)
    for number in range(6_000):
        await outbox.put([message(number)])
        await outbox.settle([Settlement(claim, Delivered({})) for claim in await outbox.claim(1)])

    assert len(outbox.schedule.lanes) < 3_000  # those of the last second or two


async def test_nothing_is_left_of_chats_that_are_gone_once_their_letters_are_dropped(
    clock: VirtualClock,
) -> None:
    outbox = MemoryOutbox(clock, FAST, keep=10)
    await broadcast(outbox, clock, BATCH, Dead("blocked", "gone", whole_chat=True))
    await outbox.drop([record.message.id for record in await outbox.dead(limit=BATCH)])

    await idle(outbox, clock, 100)

    assert left_of(outbox) == {}


@pytest.mark.parametrize("due_in", [None, 50.0])
async def test_nothing_is_left_of_messages_that_were_cancelled(
    clock: VirtualClock, due_in: float | None
) -> None:
    outbox = MemoryOutbox(clock, FAST, keep=10)
    due = None if due_in is None else clock.now() + due_in
    tickets = await outbox.put([message(number, not_before=due) for number in range(BATCH)])
    await outbox.cancel(ticket.id for ticket in tickets)

    await idle(outbox, clock, 100)

    assert left_of(outbox) == {}


async def test_nothing_is_left_of_messages_that_expired(clock: VirtualClock) -> None:
    outbox = MemoryOutbox(clock, FAST, keep=10)
    await outbox.pause(BOT)
    await outbox.put([message(number, expires_at=clock.now() + 5) for number in range(BATCH)])

    await idle(outbox, clock, 100)
    await outbox.resume(BOT)

    assert (await outbox.stats()).expired == BATCH
    assert left_of(outbox) == {}


async def test_nothing_is_left_of_turns(clock: VirtualClock) -> None:
    outbox = MemoryOutbox(clock, FAST)
    for chat in range(1, 1_001):
        turn = await outbox.turn(BOT, chat, "send", 1)
        await outbox.end_turn(turn, Delivered({}))
    held = await outbox.turn(BOT, 1_001, "send", 1)
    waiting = asyncio.create_task(outbox.turn(BOT, 1_001, "send", 1))
    await clock.sleep(1)
    waiting.cancel()
    await asyncio.wait([waiting])
    await outbox.end_turn(held, Delivered({}))

    await idle(outbox, clock, 100)

    assert left_of(outbox) == {}


async def test_a_busy_chat_stands_on_the_list_of_idle_ones_once(clock: VirtualClock) -> None:
    outbox = MemoryOutbox(clock, FAST)
    for number in range(500):
        await outbox.put([message(number, chat_id=1)])
        claims = await outbox.claim(1)
        await outbox.settle([Settlement(claim, Delivered({})) for claim in claims])

    assert left_of(outbox)["_resting"] == 1


async def test_direct_calls_leave_no_lanes_behind_though_no_worker_runs(clock: VirtualClock) -> None:
    outbox = MemoryOutbox(clock, FAST)
    for chat in range(1, 101):
        await outbox.end_turn(await outbox.turn(BOT, chat, "send", 1), Delivered({}))
        await clock.sleep(0.1)

    assert len(outbox.schedule.lanes) < 50  # those of the last second or two

    await clock.sleep(300)
    await outbox.end_turn(await outbox.turn(BOT, 1, "send", 1), Delivered({}))

    assert len(outbox.schedule.lanes) == 1
