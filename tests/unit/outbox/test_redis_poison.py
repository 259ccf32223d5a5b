"""Stored messages that are damaged: each is dead as unreadable, its bytes are kept, and the rest goes on."""

import random
from pathlib import Path

import msgspec
import pytest

from contract.post import BOT, Post
from redis_hub import Hub, SharedConnection, inline, processes
from restarts import in_thread
from tidegate.model import Dead, Delivered, Migrated, Rate, State, TicketId
from tidegate.pacing.rules import Rules
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.redis.outbox import RedisOutbox
from tidegate.stores.redis.spool import Spool

RULES = Rules(bot=Rate(1000, 1), private=Rate(1000, 1), group=Rate(1000, 1))
LEASE = 30.0


async def stored(hub: Hub, ticket: TicketId) -> bytes:
    found: bytes = await inline(hub.ask, "HGET", hub.keys["messages"], ticket)
    return found


async def store(hub: Hub, ticket: TicketId, value: bytes) -> None:
    await inline(hub.ask, "HSET", hub.keys["messages"], ticket, value)


async def spoil_body(hub: Hub, ticket: TicketId) -> None:
    """The record of the script can be read, the message in it cannot."""
    raw = await stored(hub, ticket)
    assert raw.count(b"sendMessage") == 1
    await store(hub, ticket, raw.replace(b"sendMessage", b"\xc1" * 11))


async def spoil_record(hub: Hub, ticket: TicketId, *, lane: bool = False) -> None:
    """Not even the script can read it. `lane`: its lane cannot be seen in it either."""
    raw = await stored(hub, ticket)
    await store(hub, ticket, b"\xc1nothing" if lane else b"\xc1" + raw[1:])


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "is dead (unreadable)" in line]


@pytest.mark.parametrize("spoil", [spoil_body, spoil_record])
async def test_a_damaged_message_is_dead_and_the_rest_goes_on(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, spoil: object
) -> None:
    async with processes(clock, 1, RULES) as (hub, [post]):
        before, bad, after = await post.put_many(3, 1)
        other = await post.put(2)
        await spoil(hub, bad)  # type: ignore[operator]
        raw = await stored(hub, bad)

        assert set(await post.order()) == {before, after, other}

        record = await post.record(bad)
        assert (record.state, record.reason) == (State.DEAD, "unreadable")
        assert (record.message.bot, record.message.chat_id, record.message.method) == (BOT, 1, "")
        assert raw in await stored(hub, bad) or b"\xc1" * 11 in await stored(hub, bad)  # the bytes are kept
        [line] = logged(caplog)
        assert all(word in line for word in (bad, str(BOT), "chat 1 "))
        stats = await post.outbox.stats()
        assert (stats.waiting, stats.sending, stats.dead, stats.delivered) == (0, 0, 1, 3)
        async with clock.timeout(1):
            await post.outbox.drained()


async def test_who_waits_for_a_message_that_turns_out_damaged_is_told(clock: VirtualClock) -> None:
    async with processes(clock, 2, RULES) as (hub, [one, other]):
        tickets = await one.put_many(2, 1)
        waiting = [await post.begin(post.outbox.settled(tickets[1])) for post in (one, other)]
        await spoil_body(hub, tickets[1])

        await one.order(2)

        for task in waiting:
            assert (await task).reason == "unreadable"


@pytest.mark.parametrize("spoil", [spoil_body, spoil_record])
async def test_a_damaged_message_is_dropped_and_not_replayed(clock: VirtualClock, spoil: object) -> None:
    async with processes(clock, 1, RULES) as (hub, [post]):
        bad = await post.put(1)
        await spoil(hub, bad)  # type: ignore[operator]
        await post.run(0.5)

        [letter] = await post.outbox.dead(reason="unreadable")
        assert letter.message.id == bad
        assert letter.body is not None
        assert letter.body in await stored(hub, bad)
        assert await post.outbox.replay([bad]) == 0
        assert await post.outbox.drop([bad]) == 1
        assert await post.outbox.find(bad) is None
        assert (await post.outbox.stats()).dead == 0


async def test_queries_and_verbs_meet_damaged_messages_before_the_schedule_does(clock: VirtualClock) -> None:
    async with processes(clock, 1, RULES) as (hub, [post]):
        await post.outbox.pause(BOT)
        first, second, third, fourth, _ = await post.put_many(5, 1)
        for ticket in (first, third):
            await spoil_record(hub, ticket)
        for ticket in (second, fourth):
            await spoil_record(hub, ticket, lane=True)

        assert (await post.record(first)).reason == "unreadable"
        assert await post.outbox.cancel([second]) == 0  # it is dead, and can be dropped
        assert len(await post.outbox.records()) == 5
        assert await post.outbox.forget(1) == 5
        assert await post.outbox.records() == []
        stats = await post.outbox.stats()
        assert (stats.waiting, stats.dead, stats.cancelled) == (0, 0, 1)
        await post.outbox.resume(BOT)
        assert await post.order() == []


async def test_a_message_that_is_damaged_while_it_is_sent_holds_up_nobody(clock: VirtualClock) -> None:
    async with processes(clock, 1, RULES) as (hub, [post]):
        bad, good = await post.put_many(2, 1)
        [lost, other] = [await post.put(2), await post.put(2)]
        claims = await post.claim_all()
        assert {claim.message.id for claim in claims} == {bad, lost}
        await spoil_record(hub, bad)
        await spoil_record(hub, lost, lane=True)

        assert await post.settle(claims[0]) is None
        assert good in await post.order()
        await clock.sleep(LEASE + 1)
        await post.run(1)

        assert await post.state(other) == State.DELIVERED
        stats = await post.outbox.stats()
        assert (stats.sending, stats.waiting, stats.dead) == (0, 0, 2)


async def test_every_verb_works_on_what_a_dead_worker_was_sending(clock: VirtualClock) -> None:
    async with processes(clock, 2, RULES) as (hub, [one, other]):
        tickets = [await one.put(chat) for chat in (1, 2, 3)]
        assert len(await one.claim_all()) == 3  # and dies
        await spoil_body(hub, tickets[2])
        await clock.sleep(LEASE + 1)

        assert await other.outbox.cancel(tickets[:1]) == 1
        assert await other.outbox.forget(2) == 1
        assert await other.outbox.forget(3) == 1
        stats = await other.outbox.stats()
        assert (stats.sending, stats.waiting) == (0, 0)


async def test_a_dead_chat_and_one_that_migrates_have_damaged_messages(clock: VirtualClock) -> None:
    async with processes(clock, 1, RULES) as (hub, [post]):
        dying, moving = await post.put_many(4, 1), await post.put_many(4, -1)
        for ticket in (*dying[1:3], *moving[1:3]):
            await spoil_record(hub, ticket)
        for claim in await post.claim_all():
            gone = claim.message.chat_id == 1
            await post.settle(claim, Dead("blocked", "gone", whole_chat=True) if gone else Migrated(-2))

        assert await post.order() == [moving[0], moving[3]]
        reasons = [record.reason for record in await post.outbox.dead()]
        assert sorted(map(str, reasons)) == ["blocked"] * 2 + ["unreadable"] * 4


async def test_a_result_above_64_bits_is_kept_as_null(clock: VirtualClock) -> None:
    async with processes(clock, 1, RULES) as (_, [post]):
        ticket = await post.put(1)

        record = await post.send(Delivered({"message_id": 2**70}))

        assert record.state == State.DELIVERED
        assert (await post.record(ticket)).result is None


async def test_an_error_with_half_a_character_is_kept(clock: VirtualClock) -> None:
    async with processes(clock, 1, RULES) as (_, [post]):
        ticket = await post.put(1)

        await post.send(Dead("bad_request", "no \ud800 text"))

        assert (await post.record(ticket)).description == "no ? text"


@pytest.mark.parametrize("seed", range(20))
async def test_flipped_bytes_in_stored_messages_stop_nothing(clock: VirtualClock, seed: int) -> None:
    draw = random.Random(seed)
    async with processes(clock, 1, RULES) as (hub, [post]):
        tickets = [ticket for chat in range(1, 11) for ticket in await post.put_many(3, chat)]
        tickets += [await post.put(chat, not_before=clock.now() + 1) for chat in range(1, 6)]
        claims = await post.claim(3)
        flipped = draw.sample(tickets, 12)
        for ticket in flipped:
            raw = bytearray(await stored(hub, ticket))
            for _ in range(draw.randint(1, 3)):
                raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
            await store(hub, ticket, bytes(raw))
        for claim in claims:
            await post.settle(claim)

        await post.run(3)
        await clock.sleep(LEASE + 1)
        await post.run(5)

        for ticket in set(tickets) - set(flipped):
            assert await post.state(ticket) == State.DELIVERED
        await post.outbox.records(limit=1000)
        assert await post.outbox.dead() is not None
        await post.put(1)
        assert len(await post.order()) == 1


async def test_a_damaged_row_of_the_spool_is_set_aside_counted_and_the_rest_is_drained_in_order(
    clock: VirtualClock, tmp_path: Path
) -> None:
    hub = await inline(Hub, clock)
    link = SharedConnection(hub, "p1")
    spool = Spool(tmp_path / "spool", clock)
    outbox = RedisOutbox(link, clock, RULES, spool=spool)
    await outbox.open()
    post = Post(outbox, clock)
    link.away = True
    tickets = await post.put_many(6, 1)
    [file] = spool._files.values()  # noqa: SLF001
    for at, value in ((1, b"\xc1"), (2, msgspec.msgpack.encode({"id": "another"})), (4, 5)):
        change = "UPDATE messages SET body = ? WHERE id = ?"
        await in_thread(file._connection.execute, change, (value, tickets[at]))  # noqa: SLF001
    await in_thread(file._connection.commit)  # noqa: SLF001
    link.away = False
    await clock.sleep(2)

    assert await post.order() == [tickets[0], tickets[3], tickets[5]]
    health = outbox.health()
    assert (health.ready, health.spooled) == (True, 0)
    assert f"3 messages in the spool of this machine cannot be decoded: they are kept in {spool.folder}" in (
        health.reasons
    )
    await outbox.close()
    await inline(hub.close)
