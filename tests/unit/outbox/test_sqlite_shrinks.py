"""A store in a file keeps what is needed, and no more: in the file, and in the sender's memory."""

import asyncio
from collections.abc import Sized

import pytest

from contract.post import BOT, DELIVERED, Post
from restarts import Disk, store
from tidegate.model import Dead, Outcome, Rate, Refused, Settlement, State, TicketId, Unknown
from tidegate.pacing.rules import Rules
from tidegate.sim.virtual_time import VirtualClock

FAST = Rules(bot=Rate(1_000_000, 1), private=Rate(1000, 1), group=Rate(1000, 1))
BATCH = 2_000


async def put_round(post: Post, **fields: object) -> list[TicketId]:
    messages = [post.message(chat, urgent=True, **fields) for chat in range(1, BATCH + 1)]
    return [ticket.id for ticket in await post.outbox.put(messages)]


async def deliver_round(post: Post, outcome: Outcome = DELIVERED, **fields: object) -> list[TicketId]:
    tickets = await put_round(post, **fields)
    claims = await post.outbox.claim(BATCH)
    assert len(claims) == BATCH
    await post.outbox.settle([Settlement(claim, outcome) for claim in claims])
    return tickets


async def idle(post: Post, seconds: float) -> None:
    """A worker that waits, and nothing to do for it."""
    waiting = asyncio.create_task(post.outbox.claim(1))
    await post.clock.sleep(seconds)
    waiting.cancel()
    await asyncio.wait([waiting])


async def rows_of(disk: Disk) -> dict[str, int]:
    tables = [name for [name] in await disk.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    counted = {name: (await disk.rows(f"SELECT count(*) FROM {name}"))[0][0] for name in tables}  # noqa: S608
    return {name: count for name, count in counted.items() if count and name not in LASTING}


LASTING = {"counts", "facts", "bots", "pauses", "aliases", "sqlite_sequence"}  # few


def left_in_memory(post: Post) -> dict[str, int]:
    outbox = store(post)
    few = {"bots", "_active", "_tasks", "_aliases", "_kinds", "_untouched", "counts", "pending"}
    parts = (
        outbox, outbox.schedule, outbox.file,
        outbox._dispatcher, outbox._rows, outbox._claims, outbox._turns, outbox._waiters,  # noqa: SLF001  (all of it)
        outbox._puts,  # noqa: SLF001
    )  # fmt: skip
    tables = {name: table for part in parts for name, table in vars(part).items()}
    return {
        name: len(table)
        for name, table in tables.items()
        if isinstance(table, Sized) and not isinstance(table, str) and len(table) and name not in few
    }


async def test_a_file_that_always_does_the_same_work_stops_growing(disk: Disk) -> None:
    post = await disk.sender(FAST, keep=5)
    pages = []
    for _ in range(12):
        await deliver_round(post)
        await idle(post, 10)
        [[count]] = await disk.rows("PRAGMA page_count")
        pages.append(count)

    assert pages[-1] <= 1.2 * pages[2]
    assert set(await rows_of(disk)) <= {"calls"}


async def test_nothing_is_left_in_the_file_once_everything_is_over(disk: Disk) -> None:
    post = await disk.sender(FAST, keep=5)
    await deliver_round(post)
    await deliver_round(post, dedup_key=None, coalesce_key="c")
    letters = await deliver_round(post, Dead("bad_request", "x"))
    await post.outbox.cancel(await put_round(post))
    await post.outbox.drop(letters)

    await idle(post, 120)

    assert await rows_of(disk) == {}


async def test_what_was_delivered_is_kept_for_its_dedup_lifetime_and_no_longer(disk: Disk) -> None:
    post = await disk.sender(FAST, keep=5)
    ticket = await post.put(dedup_key="d", dedup_for=100)
    await post.send()

    await post.clock.sleep(90)
    assert await post.put(dedup_key="d") == ticket
    await post.clock.sleep(20)

    assert await post.outbox.find(ticket) is None
    assert await disk.rows("SELECT * FROM messages") == []
    assert await post.put(dedup_key="d") != ticket


@pytest.mark.parametrize("end", ["cancel", "expire", "replace"])
async def test_what_ended_without_being_sent_is_kept_for_its_dedup_lifetime_too(disk: Disk, end: str) -> None:
    post = await disk.sender(FAST, keep=5)
    await post.outbox.pause(BOT)
    expires = post.clock.now() + 1 if end == "expire" else None
    ticket = await post.put(dedup_key="d", dedup_for=100, expires_at=expires, coalesce_key="c")
    if end == "cancel":
        await post.outbox.cancel([ticket])
    elif end == "replace":
        await post.put(coalesce_key="c")

    await post.clock.sleep(90)
    assert await post.put(dedup_key="d") == ticket
    await post.clock.sleep(20)

    assert await post.outbox.find(ticket) is None


async def test_letters_are_kept_until_somebody_decides(disk: Disk) -> None:
    post = await disk.sender(FAST, keep=5)
    await post.put(1)
    await post.send(Dead("bad_request", "x"))
    await post.put(2, on_unknown="park")
    await post.send(Unknown("timeout"))

    await post.clock.sleep(100)

    assert [record.state for record in await post.outbox.dead()] == [State.DEAD, State.PARKED]


async def test_calls_are_kept_for_as_long_as_they_count(disk: Disk) -> None:
    post = await disk.sender(FAST)
    for _ in range(200):
        await post.outbox.end_turn(await post.turn(1), DELIVERED)
        await post.clock.sleep(1)

    [[count]] = await disk.rows("SELECT count(*) FROM calls")

    assert count <= 40  # seconds: the longest window


async def test_what_other_processes_noted_is_gone_once_it_is_followed(disk: Disk) -> None:
    post, other = await disk.sender(FAST), await disk.opener(FAST)
    for number in range(50):
        ticket = await other.put(number + 1)
        await other.outbox.pause(BOT, 1)
        await other.outbox.cancel([ticket])
        assert await other.outbox.why(ticket) is not None

    await post.clock.sleep(1)

    assert await disk.rows("SELECT * FROM journal") == []
    assert await disk.rows("SELECT * FROM answers") == []


async def test_answers_that_nobody_fetched_are_forgotten(disk: Disk) -> None:
    post, other = await disk.sender(FAST), await disk.opener(FAST)
    ticket = await post.put(not_before=post.clock.now() + 1e6)
    for _ in range(150):
        asking = await other.begin(other.outbox.why(ticket))
        await post.clock.sleep(0.001)
        asking.cancel()
        await asyncio.wait([asking])
        await post.clock.sleep(0.2)

    await post.clock.sleep(2)

    assert len(await disk.rows("SELECT * FROM answers")) <= 100


async def test_closures_that_are_over_are_forgotten(disk: Disk) -> None:
    post = await disk.sender(FAST, poll=10)
    for chat in range(1, 51):
        await post.put(chat)
    for claim in await post.claim_all():
        await post.settle(claim, Refused(1))
    assert len(await disk.rows("SELECT * FROM limits")) == 51
    await post.run(60)

    await post.clock.sleep(2 * 3600)

    assert await disk.rows("SELECT * FROM limits") == []


async def test_nothing_is_left_in_memory_of_messages_that_ended(disk: Disk) -> None:
    post = await disk.sender(FAST, keep=5)
    await deliver_round(post)
    await deliver_round(post, Dead("blocked", "gone", whole_chat=True))
    await post.outbox.cancel(await put_round(post, not_before=post.clock.now() + 50))
    await post.outbox.pause(BOT)
    await put_round(post, expires_at=post.clock.now() + 5)
    turn = await post.turn(-7)
    await post.outbox.end_turn(turn, DELIVERED)
    await idle(post, 10)
    await post.outbox.resume(BOT)

    await idle(post, 200)

    assert left_in_memory(post) == {}


async def test_nothing_is_left_in_memory_after_a_restart_either(disk: Disk) -> None:
    post = await disk.sender(FAST, keep=5)
    await put_round(post)
    await post.outbox.claim(BATCH // 2)
    post = await disk.restart(post, FAST, keep=5)
    claims = await post.outbox.claim(BATCH)
    await post.outbox.settle([Settlement(claim, DELIVERED) for claim in claims])

    await idle(post, 200)

    assert left_in_memory(post) == {}


async def test_nothing_is_left_of_those_who_waited(disk: Disk) -> None:
    post, other = await disk.sender(FAST), await disk.opener(FAST)
    for one in (post, other):
        ticket = await one.put()
        waiting = [await one.begin(one.outbox.settled(ticket)), await one.begin(one.outbox.drained())]
        given_up = [await one.begin(one.outbox.settled(ticket)), await one.begin(one.outbox.drained())]
        for task in given_up:
            await one.cancel(task)
        await post.clock.sleep(0.2)
        await post.send(within=1)
        async with post.clock.timeout(1):
            await asyncio.gather(*waiting)

        assert "_enders" not in left_in_memory(one)
        assert "_drainers" not in left_in_memory(one)


async def test_direct_calls_leave_no_lanes_behind_though_no_worker_runs(disk: Disk) -> None:
    post = await disk.sender(FAST, poll=60)
    for chat in range(1, 101):
        await post.outbox.end_turn(await post.turn(chat), DELIVERED)
        await post.clock.sleep(0.1)

    assert left_in_memory(post)["lanes"] < 50  # those of the last second or two

    await post.clock.sleep(300)
    await post.outbox.end_turn(await post.turn(1), DELIVERED)

    assert left_in_memory(post)["lanes"] == 1


async def test_recent_direct_calls_are_forgotten_though_the_wall_clock_was_set_back(
    disk: Disk, clock: VirtualClock
) -> None:
    post = await disk.sender(FAST)
    await post.outbox.end_turn(await post.turn(1), DELIVERED)
    clock.epoch -= 3600
    await post.outbox.end_turn(await post.turn(2), DELIVERED)
    assert left_in_memory(post)["_recent"] == 2

    await clock.sleep(20)

    assert "_recent" not in left_in_memory(post)
