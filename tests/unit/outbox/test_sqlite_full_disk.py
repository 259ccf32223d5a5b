"""A disk that cannot be written for a while: nothing is accepted, delivery goes on, and is written later."""

import asyncio
import logging
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from contract.post import BOT, DELIVERED, Post
from restarts import Disk, store
from tidegate.errors import StoreError
from tidegate.model import Dead, Migrated, NotSent, Outcome, Rate, Refused, Retry, Settlement, State, Unknown
from tidegate.pacing.rules import Rules
from tidegate.stores.sqlite.schema import prepare


class Flaky:
    """A connection to a disk that is full while `full` is set: whatever is written fails at its commit."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.full = False
        self.unreadable = False
        self.steps = 0

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    @property
    def total_changes(self) -> int:
        return self._connection.total_changes

    def execute(self, sql: str, values: Iterable[Any] = ()) -> sqlite3.Cursor:
        if self.full and sql == "COMMIT":
            raise trouble("SQLITE_FULL", "database or disk is full")
        if self.unreadable and sql.startswith("SELECT"):
            raise trouble("SQLITE_IOERR_READ", "disk I/O error")
        self.steps += 1
        return self._connection.execute(sql, tuple(values))

    def executemany(self, sql: str, values: Iterable[Any]) -> sqlite3.Cursor:
        self.steps += 1
        return self._connection.executemany(sql, values)

    def close(self) -> None:
        self._connection.close()


def trouble(name: str, text: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorname = name
    return error


def flaky(post: Post) -> Flaky:
    file = store(post).file
    assert file._connection is not None  # noqa: SLF001  (a disk cannot be filled politely)
    connection = Flaky(file._connection)  # noqa: SLF001
    file._connection = cast("sqlite3.Connection", connection)  # noqa: SLF001
    return connection


async def space_is_back(connection: Flaky, post: Post) -> None:
    connection.full = connection.unreadable = False
    await post.clock.sleep(0.2)  # it is tried again by itself
    assert store(post).file.owes == 0


async def test_put_fails_in_words_and_stores_nothing(disk: Disk, post: Post) -> None:
    connection = flaky(post)
    connection.full = True

    with pytest.raises(StoreError, match=r"the disk that holds .*store.db is full: free some space"):
        await post.put()

    await space_is_back(connection, post)
    assert await post.order() == []
    assert await disk.rows("SELECT * FROM messages") == []
    assert (await post.outbox.stats()).waiting == 0


async def test_put_works_as_soon_as_there_is_space(post: Post) -> None:
    connection = flaky(post)
    connection.full = True
    with pytest.raises(StoreError):
        await post.put()

    connection.full = False

    ticket = await post.put()
    assert await post.order() == [ticket]


async def test_one_put_that_cannot_be_stored_does_not_fail_the_others(post: Post) -> None:
    bad = post.message(params={"text": object()})
    good = post.message()

    failed, _ = await asyncio.gather(post.outbox.put([bad]), post.outbox.put([good]), return_exceptions=True)

    assert isinstance(failed, TypeError)
    assert await post.order() == [good.id]


async def test_operators_are_told_that_nothing_can_be_written(post: Post) -> None:
    ticket = await post.put()
    flaky(post).full = True

    for step in (
        post.outbox.cancel([ticket]),
        post.outbox.pause(BOT),
        post.outbox.resume(BOT),
        post.outbox.replay([ticket]),
        post.outbox.drop([ticket]),
        post.outbox.forget(1),
    ):
        with pytest.raises(StoreError):
            await step
    assert await post.state(ticket) == State.QUEUED
    store(post).file._connection.full = False  # type: ignore[union-attr]  # noqa: SLF001


async def test_what_is_queued_is_delivered_and_written_down_later(
    disk: Disk, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    tickets = [*await post.put_many(10, 1), *await post.put_many(10, 2)]
    connection = flaky(post)
    connection.full = True

    with caplog.at_level(logging.WARNING, "tidegate.store"):
        assert sorted(await post.order()) == sorted(tickets)
        assert (await post.outbox.stats()).delivered == 20
        await space_is_back(connection, post)

    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "is full: free some space. What is delivered meanwhile" in told[0]
    assert "can be written again" in told[1]
    post = await disk.restart(post)
    assert await post.order() == []
    assert {await post.state(ticket) for ticket in tickets} == {State.DELIVERED}
    assert ((await post.outbox.stats()).delivered, (await post.outbox.stats()).waiting) == (20, 0)


async def test_what_must_not_be_doubled_waits_until_its_claim_can_be_written(disk: Disk, post: Post) -> None:
    parking = await post.put_many(3, 1, on_unknown="park")
    others = await post.put_many(3, 2)
    connection = flaky(post)
    connection.full = True

    assert await post.order(20) == others
    assert (await post.outbox.stats()).normal == 3
    await space_is_back(connection, post)

    assert await post.order() == parking
    post = await disk.restart(post)
    assert await post.order() == []
    assert [record.crashes for record in await post.outbox.records()] == [0] * 6


async def test_what_came_of_messages_on_a_full_disk_is_written_down_later(disk: Disk, post: Post) -> None:
    chats, put_at = range(1, 9), post.clock.now()
    tickets = [await post.put(chat) for chat in chats]
    claims = {claim.message.chat_id: claim for claim in await post.claim_all()}
    connection = flaky(post)
    connection.full = True
    outcomes: tuple[Outcome, ...] = (
        DELIVERED,
        Dead("blocked", "gone", whole_chat=True),
        Retry(100, "502"),
        Unknown("timeout", 100),
        Refused(100),
        Migrated(-1007),
        NotSent("late"),
        Dead("bad_request", "x"),
    )
    for chat, outcome in zip(chats, outcomes, strict=True):
        await post.settle(claims[chat], outcome)
    before = await post.outbox.stats()
    await space_is_back(connection, post)

    post = await disk.restart(post)

    states = [await post.state(ticket) for ticket in tickets]
    assert states == ["delivered", "dead", "retry", "retry", "queued", "queued", "queued", "dead"]
    after = await post.outbox.stats()
    assert after.oldest_at == put_at
    assert msgspec.structs.replace(after, oldest_at=before.oldest_at) == before  # its age is of the file
    assert {message.id: message.chat_id for _, message in await post.run(50)} == {
        tickets[5]: -1007,
        tickets[6]: 7,
    }


async def test_what_is_owed_is_written_before_the_claim_that_finds_space_again(
    disk: Disk, post: Post
) -> None:
    ticket = await post.put(on_unknown="park")
    claim = await post.one()
    connection = flaky(post)
    connection.full = True
    await post.settle(claim, Retry(0, "502"))
    assert store(post).file.owes == 1
    connection.full = False

    await post.one()  # the first write with space again

    assert store(post).file.owes == 0
    assert await disk.rows("SELECT state, attempts FROM messages") == [("sending", 1)]
    post = await disk.restart(post)  # it dies while that call is under way
    assert await post.state(ticket) == State.PARKED


@pytest.mark.parametrize("outcome", [Retry(1, "502"), Refused(1), NotSent("late"), Unknown("timeout")])
async def test_a_message_that_was_claimed_before_the_disk_was_full_goes_again(
    post: Post,
    outcome: Any,  # noqa: ANN401  (any outcome)
) -> None:
    ticket = await post.put()
    claim = await post.one()
    connection = flaky(post)
    connection.full = True

    await post.settle(claim, outcome)

    assert await post.order(5) == [ticket]
    await space_is_back(connection, post)
    assert await post.state(ticket) == State.DELIVERED


async def test_a_disk_that_can_be_neither_written_nor_read_loses_no_message(post: Post) -> None:
    tickets = await post.put_many(3)
    connection = flaky(post)
    connection.full = connection.unreadable = True

    with pytest.raises(StoreError):
        await post.outbox.claim(10)

    await space_is_back(connection, post)
    assert await post.order(60) == tickets


async def test_a_claim_that_is_cancelled_while_the_disk_is_full_takes_nothing(post: Post) -> None:
    tickets = await post.put_many(3)
    connection = flaky(post)
    connection.full = True

    await post.cancel(await post.begin(post.outbox.claim(10)))

    await space_is_back(connection, post)
    assert await post.order(60) == tickets


async def test_direct_calls_go_on_and_count_once_there_is_space(disk: Disk) -> None:
    post = await disk.sender(Rules(group=Rate(20, 60)))
    connection = flaky(post)
    connection.full = True
    for _ in range(3):
        await post.outbox.end_turn(await post.turn(-7), DELIVERED)
    await space_is_back(connection, post)

    [[body]] = await disk.rows("SELECT count(*) FROM calls")

    assert body == 3


async def test_whoever_waits_for_a_delivery_hears_of_it(post: Post) -> None:
    ticket = await post.put()
    connection = flaky(post)
    connection.full = True
    ended = await post.begin(post.outbox.settled(ticket))
    drained = await post.begin(post.outbox.drained())

    await post.order()

    async with post.clock.timeout(1):
        assert (await ended).state == State.DELIVERED
        await drained
    await space_is_back(connection, post)


async def test_whoever_waits_for_a_message_that_expires_hears_of_it(post: Post) -> None:
    await post.outbox.pause(BOT)
    ticket = await post.put(expires_at=post.clock.now() + 5)
    connection = flaky(post)
    connection.full = True
    ended = await post.begin(post.outbox.settled(ticket))
    drained = await post.begin(post.outbox.drained())

    await post.clock.sleep(6)
    await space_is_back(connection, post)

    async with post.clock.timeout(1):
        assert (await ended).state == State.EXPIRED
        await drained
    assert (await post.outbox.stats()).expired == 1


async def test_what_another_process_did_meanwhile_is_followed_when_it_can_be(disk: Disk, post: Post) -> None:
    other = await disk.opener()
    connection = flaky(post)
    connection.full = True  # for the sender alone: its quota, say
    ticket = await other.put()
    await post.clock.sleep(1)

    await space_is_back(connection, post)

    assert await post.order() == [ticket]


async def test_a_long_time_on_a_full_disk_costs_no_more_by_the_message(post: Post) -> None:
    await post.put_many(2000, priority="high")
    connection = flaky(post)
    connection.full = True
    steps = []
    for _ in range(2000):
        before = connection.steps
        [claim] = await post.outbox.claim(1)
        await post.outbox.settle([Settlement(claim, DELIVERED)])
        steps.append(connection.steps - before)

    assert sum(steps[1000:]) <= 2 * sum(steps[:1000])
    assert store(post).file.owes == 4000
    await space_is_back(connection, post)
    assert (await post.outbox.stats()).delivered == 2000


async def test_a_store_that_is_closed_while_it_owes_says_so(
    disk: Disk, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    await post.put()
    flaky(post).full = True
    await post.order()

    await disk.close(post)

    assert "steps could not be written to" in caplog.text.splitlines()[-1]


async def test_a_damaged_row_does_not_stop_delivery_on_a_full_disk(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    poison, good = await post.put(1), await post.put(2)
    await store(post).file.write(
        lambda tx: tx.execute("UPDATE messages SET body = x'c1' WHERE id = ?", (poison,))
    )
    connection = flaky(post)
    connection.full = True

    assert await post.order() == [good]

    assert (await post.outbox.stats()).dead == 1
    await space_is_back(connection, post)
    record = await post.record(poison)
    assert (record.state, record.reason) == (State.DEAD, "unreadable")
    assert sum("unreadable" in line for line in caplog.messages) == 1
    stats = await post.outbox.stats()
    assert (stats.dead, stats.delivered, stats.sending, stats.waiting) == (1, 1, 0, 0)


def test_a_store_that_cannot_be_made_on_a_full_disk_says_so_and_not_that_nothing_is_rolled_back(
    tmp_path: Path,
) -> None:
    def fill_the_disk(connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")  # as SQLite does by itself then
        raise sqlite3.OperationalError("database or disk is full")

    with (
        closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection,
        pytest.raises(sqlite3.OperationalError, match="disk is full"),
    ):
        prepare(connection, tmp_path / "store.db", [fill_the_disk])
