"""A body that cannot be decoded, and answers that cannot be kept: each is set aside, the rest goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from contract.post import BOT, DELIVERED, Post
from restarts import Disk, store
from tidegate.events import Ended, EventStream
from tidegate.model import Dead, Delivered, Priority, Rate, Record, Retry, Settlement, State, TicketId
from tidegate.pacing.rules import Rules
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores import message_codec

JUNK = b"\xc1 no msgpack"


async def damage(post: Post, ticket: TicketId, body: bytes = JUNK) -> None:
    await store(post).file.write(
        lambda tx: tx.execute("UPDATE messages SET body = ? WHERE id = ?", (body, ticket))
    )


async def assert_buried(disk: Disk, post: Post, ticket: TicketId, body: bytes = JUNK) -> None:
    record = await post.record(ticket)
    assert (record.state, record.reason) == (State.DEAD, "unreadable")
    assert f"its body of {len(body)} bytes cannot be decoded" in (record.description or "")
    assert record.settled_at is not None
    assert await disk.rows("SELECT body FROM messages WHERE id = ?", ticket) == [(body,)]


async def test_one_damaged_row_does_not_stop_the_others(
    disk: Disk, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    before, poison, after = await post.put_many(3, 1)
    other = await post.put(2, priority=Priority.HIGH)
    await damage(post, poison)

    assert sorted(await post.order()) == sorted([before, after, other])

    await assert_buried(disk, post, poison)
    [line] = [line for line in caplog.messages if "unreadable" in line]
    assert all(word in line for word in (poison, str(BOT), "chat 1", f"{len(JUNK)} bytes"))
    stats = await post.outbox.stats()
    assert (stats.dead, stats.delivered, stats.sending, stats.waiting) == (1, 3, 0, 0)
    await post.outbox.drained()


@pytest.mark.parametrize("key", [5, 0.5, b"text"])
async def test_keys_that_are_no_texts_do_not_stop_the_sender(disk: Disk, post: Post, key: object) -> None:
    """They were accepted by earlier versions, and are in their files."""
    message = post.message(params={"text": "x", key: 1})
    await post.outbox.put([message])
    good = await post.put(2)

    assert await post.order() == [good]

    [(body,)] = await disk.rows("SELECT body FROM messages WHERE id = ?", message.id)
    await assert_buried(disk, post, message.id, body)


async def test_a_body_of_another_bot_is_not_sent(disk: Disk, post: Post) -> None:
    ticket = await post.put()
    body = message_codec.pack(post.message(bot=43))
    await damage(post, ticket, body)

    assert await post.order() == []

    await assert_buried(disk, post, ticket, body)


async def test_callers_that_wait_for_a_damaged_message_are_told(disk: Disk) -> None:
    ended: list[Record] = []
    events = EventStream()
    events.subscribe(Ended, lambda event: ended.append(event.record))
    post = await disk.sender(events=events)
    ticket = await post.put(5, priority=Priority.LOW)
    await damage(post, ticket)
    waiting = await post.begin(post.outbox.settled(ticket))

    await post.order()

    record = await waiting
    assert record == ended[0]
    assert (record.message.id, record.message.bot, record.message.chat_id) == (ticket, BOT, 5)
    assert (record.message.method, record.message.priority) == ("", Priority.LOW)


async def test_a_damaged_retry_is_buried(disk: Disk, post: Post) -> None:
    ticket = await post.put()
    await post.send(Retry(1, "502"))
    await damage(post, ticket)

    assert await post.order(5) == []

    await assert_buried(disk, post, ticket)
    assert (await post.outbox.stats()).retry == 0


async def test_a_row_damaged_while_it_is_sent_is_settled(post: Post) -> None:
    ticket = await post.put()
    claim = await post.one()
    await damage(post, ticket)

    await post.settle(claim)

    record = await post.record(ticket)
    assert (record.state, record.message.id, record.message.method) == (State.DELIVERED, ticket, "")
    assert record.result == {"message_id": 1}


async def test_a_damaged_row_dies_with_its_chat(post: Post) -> None:
    first, poison = await post.put_many(2)
    await damage(post, poison)

    await post.send(Dead("blocked", "bot was blocked", whole_chat=True))

    assert [await post.state(first), await post.state(poison)] == [State.DEAD, State.DEAD]


async def test_a_restart_with_a_damaged_row_that_was_being_sent_succeeds(
    disk: Disk, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    poison, good = await post.put(1), await post.put(2)
    await post.claim_all()
    await damage(post, poison)

    post = await disk.restart(post)

    assert await post.order() == [good]
    await assert_buried(disk, post, poison)
    assert sum("unreadable" in line for line in caplog.messages) == 1
    assert (await post.outbox.stats()).sending == 0


async def test_a_restart_with_only_damaged_rows_reads_what_is_behind_them(
    disk: Disk, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.stores.sqlite.recovery.ROWS_PER_LOAD", 2)
    poison = [await post.put(chat) for chat in (1, 2)]
    await post.claim_all()
    good = await post.put(3)
    for ticket in poison:
        await damage(post, ticket)

    post = await disk.restart(post)

    assert await post.order() == [good]


async def test_recent_calls_that_cannot_be_decoded_are_waited_for(disk: Disk, clock: VirtualClock) -> None:
    rules = Rules(bot=Rate(1000, 1), private=Rate(1, 4), group=Rate(1000, 1))
    post = await disk.sender(rules)
    first, second = await post.put_many(2)
    assert await post.order(1) == [first]
    await store(post).file.write(lambda tx: tx.execute("UPDATE calls SET body = ?", (JUNK,)))
    await disk.close(post)
    closed_at = clock.monotonic()

    post = await disk.sender(rules)

    assert clock.monotonic() - closed_at >= rules.private.seconds
    assert await post.order() == [second]


async def test_a_damaged_learned_limit_does_not_stop_the_sender(disk: Disk, post: Post) -> None:
    await store(post).file.write(
        lambda tx: tx.execute(
            "INSERT INTO limits (bot, chat_id, kind, heard_at, closed_for, learned)"
            " VALUES (?, 1, 'send', ?, 0, ?)",
            (BOT, post.clock.now(), JUNK),
        )
    )
    ticket = await post.put()

    post = await disk.restart(post)

    assert await post.order() == [ticket]


async def test_a_damaged_entry_of_the_journal_loses_no_message(disk: Disk, post: Post) -> None:
    other = await disk.opener()
    ticket = await other.put()
    await store(other).file.write(lambda tx: tx.execute("UPDATE journal SET body = ?", (JUNK,)))

    assert await post.order() == [ticket]


async def test_operators_see_a_damaged_row_with_what_is_known_of_it(disk: Disk, post: Post) -> None:
    ticket = await post.put("@channel", dedup_key="news:1", priority=Priority.HIGH)
    await damage(post, ticket)

    record = await post.record(ticket)
    assert record.state == State.QUEUED
    assert (record.message.chat_id, record.message.priority) == ("@channel", Priority.HIGH)
    assert "cannot be decoded" in (record.description or "")
    assert [one.message.id for one in await post.outbox.records()] == [ticket]
    assert await post.outbox.why(ticket) is not None
    assert await post.outbox.tally(BOT, "news:") == {(State.QUEUED, None): 1}
    other = await disk.opener()
    assert await other.outbox.why(ticket) is not None

    await post.order()

    [letter] = await post.outbox.dead(reason="unreadable")
    assert letter.message.id == ticket
    assert await post.outbox.tally(BOT, "news:") == {(State.DEAD, "unreadable"): 1}


async def test_a_damaged_message_is_not_replayed_and_can_be_dropped(post: Post) -> None:
    ticket = await post.put()
    await damage(post, ticket)
    await post.order()

    assert await post.outbox.replay([ticket]) == 0
    assert await post.state(ticket) == State.DEAD

    assert await post.outbox.drop([ticket]) == 1
    assert await post.outbox.find(ticket) is None


async def test_a_message_that_can_be_decoded_again_is_replayed(post: Post) -> None:
    """A newer version may know what this one did not."""
    message = post.message()
    await post.outbox.put([message])
    await damage(post, message.id)
    await post.order()
    await damage(post, message.id, message_codec.pack(message))

    assert await post.outbox.replay([message.id]) == 1

    assert await post.order() == [message.id]


async def test_a_damaged_message_can_be_cancelled_and_forgotten(post: Post) -> None:
    cancelled, forgotten = await post.put(1), await post.put(2)
    for ticket in (cancelled, forgotten):
        await damage(post, ticket)

    assert await post.outbox.cancel([cancelled]) == 1
    assert await post.outbox.forget(2) == 1

    assert await post.state(cancelled) == State.CANCELLED
    assert await post.outbox.find(forgotten) is None


Act = Callable[[Post, TicketId], Awaitable[int]]


async def _cancel(post: Post, ticket: TicketId) -> int:
    return await post.outbox.cancel([ticket])


async def _drop(post: Post, ticket: TicketId) -> int:
    return await post.outbox.drop([ticket])


async def _forget(post: Post, _: TicketId) -> int:
    return await post.outbox.forget(1)


async def _replay(post: Post, ticket: TicketId) -> int:
    return await post.outbox.replay([ticket])


ACTS = pytest.mark.parametrize(
    ("act", "fields"),
    [(_cancel, {}), (_drop, {"on_unknown": "park"}), (_forget, {}), (_replay, {"on_unknown": "park"})],
)


@ACTS
async def test_what_a_dead_sender_was_sending_is_the_operators(
    disk: Disk, post: Post, act: Act, fields: dict[str, Any]
) -> None:
    ticket = await post.put(**fields)
    await post.one()
    await disk.kill(post)

    operator = await disk.opener()

    assert await act(operator, ticket) == 1
    stats = await operator.outbox.stats()
    assert stats.sending == 0
    assert stats.normal == (1 if act is _replay else 0)
    assert await store(operator).sender() is None  # it does not keep the lock


@ACTS
async def test_what_a_live_sender_is_sending_stays(
    disk: Disk, post: Post, act: Act, fields: dict[str, Any]
) -> None:
    ticket = await post.put(**fields)
    claim = await post.one()

    operator = await disk.opener()

    assert await act(operator, ticket) == 0
    assert await act(post, ticket) == 0
    assert await post.state(ticket) == State.SENDING
    record = await post.settle(claim)
    assert record is not None
    assert record.state == State.DELIVERED


@pytest.mark.parametrize("act", [_drop, _forget])
async def test_a_damaged_message_of_a_dead_sender_is_the_operators(disk: Disk, post: Post, act: Act) -> None:
    ticket = await post.put()
    await post.one()
    await damage(post, ticket)
    await disk.kill(post)

    operator = await disk.opener()

    assert await act(operator, ticket) == 1
    assert await operator.outbox.find(ticket) is None


async def test_the_next_sender_counts_a_crash_that_an_operator_settled_once(disk: Disk, post: Post) -> None:
    ticket, other = await post.put(1), await post.put(2)
    await post.claim_all()
    await disk.kill(post)
    operator = await disk.opener()
    assert await operator.outbox.settle_crashed() == 2
    assert await operator.outbox.settle_crashed() == 0

    post = await disk.sender()

    assert sorted(await post.order()) == sorted([ticket, other])
    assert (await post.record(ticket)).crashes == 1


async def test_calls_that_an_operator_settled_after_a_crash_count_for_the_limits(
    disk: Disk, clock: VirtualClock
) -> None:
    rules = Rules(bot=Rate(1000, 1), private=Rate(1, 100), group=Rate(1000, 1))
    post = await disk.sender(rules)
    await post.put_many(2)
    await post.one()
    await disk.kill(post)
    operator = await disk.opener(rules)
    assert await operator.outbox.settle_crashed() == 1
    settled_at = clock.monotonic()

    post = await disk.sender(rules)
    await post.one(within=200)

    assert clock.monotonic() - settled_at >= rules.private.seconds


async def test_what_the_file_calls_sending_and_nobody_sends_is_the_operators(post: Post) -> None:
    held, orphan = await post.put(1), await post.put(2)
    await post.claim_all()
    claims = store(post)._claims  # noqa: SLF001  (a claim that was lost)
    [lost] = [one for one in claims._held.values() if one.message.id == orphan]  # noqa: SLF001
    del claims._held[lost.entry.token]  # noqa: SLF001
    claims._drop(lost.entry)  # noqa: SLF001

    assert await post.outbox.cancel([held, orphan]) == 1

    assert [await post.state(held), await post.state(orphan)] == [State.SENDING, State.CANCELLED]
    assert (await post.outbox.stats()).sending == 1


async def test_a_sender_can_start_while_an_operator_settles_a_crash(disk: Disk, post: Post) -> None:
    ticket = await post.put()
    await post.one()
    await disk.kill(post)
    other = await disk.opener()

    await asyncio.gather(other.outbox.settle_crashed(), other.outbox.start_sending())

    assert await other.order() == [ticket]


def _nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("result", [{"message_id": 2**70}, _nested(50_000), {"text": "\ud800"}])
async def test_a_result_that_cannot_be_kept_is_kept_as_null_and_the_others_are_settled(
    post: Post,
    result: object,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_codec, "_said", set())
    tickets = [await post.put(chat) for chat in range(1, 31)]
    claims = await post.claim_all(within=1)

    records = await post.outbox.settle(
        [
            Settlement(claim, DELIVERED if claim.message.chat_id == 7 else Delivered(result))
            for claim in claims
        ]
    )

    assert all(record is not None and record.state == State.DELIVERED for record in records)
    stored = [await post.record(ticket) for ticket in tickets]
    assert {record.state for record in stored} == {State.DELIVERED}
    assert [record.result for record in stored if record.result is not None] == [{"message_id": 1}]
    assert sum("kept as null" in line for line in caplog.messages) == 1


async def test_an_id_of_a_chat_beyond_64_bits_is_not_believed(post: Post) -> None:
    await post.put("@channel")
    await post.send(Delivered({"message_id": 1, "chat": {"id": 2**70}}))
    again = await post.put("@channel")

    assert await post.order() == [again]


async def test_a_description_that_is_no_valid_text_is_stored(post: Post) -> None:
    ticket, other = await post.put_many(2)
    await post.send(Dead("blocked\udc80", "no such file: \udc80", whole_chat=True))

    for one in (ticket, other):
        record = await post.record(one)
        assert (record.state, record.reason, record.description) == (
            State.DEAD,
            "blocked?",
            "no such file: ?",
        )


async def test_a_stored_result_that_cannot_be_decoded_is_null(post: Post) -> None:
    ticket = await post.put()
    await post.order()
    await store(post).file.write(lambda tx: tx.execute("UPDATE messages SET result = ?", (JUNK,)))

    assert (await post.record(ticket)).result is None
