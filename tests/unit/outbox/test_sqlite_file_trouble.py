"""A store file that is locked, full, deleted or replaced while it is open: health says so."""

import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from contract.post import Post
from restarts import Disk, in_thread, store
from tidegate.cli.store import check_store_exists
from tidegate.errors import ClosedError, NotTheSenderError, StoreError
from tidegate.model import State
from tidegate.outbox.port import StoreHealth
from unit.outbox.test_sqlite_full_disk import flaky


@pytest.fixture
async def post(disk: Disk) -> Post:
    return await disk.sender(busy_timeout=0.1)


def reasons(post: Post) -> str:
    health = post.outbox.health()
    assert health.ready == (not health.reasons)
    return "; ".join(health.reasons)


async def test_a_full_disk_is_not_ready_while_every_put_fails_and_ready_by_itself_when_there_is_space(
    post: Post,
) -> None:
    assert reasons(post) == ""
    connection = flaky(post)
    connection.full = True
    with pytest.raises(StoreError):
        await post.put()
    await post.clock.sleep(60)
    assert "is full: free some space" in reasons(post)

    connection.full = False
    await post.clock.sleep(1)

    assert reasons(post) == ""


async def test_steps_that_are_not_written_yet_are_not_ready_and_counted(post: Post) -> None:
    await post.put_many(3)
    connection = flaky(post)
    connection.full = True
    assert len(await post.order()) == 3

    assert "steps of delivery are not written" in reasons(post)
    connection.full = False
    await post.clock.sleep(1)
    assert reasons(post) == ""


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """As another process that is in the middle of a long change."""
    other = await in_thread(lambda: sqlite3.connect(path, isolation_level=None, check_same_thread=False))
    await in_thread(other.execute, "BEGIN IMMEDIATE")
    yield
    await in_thread(other.close)


async def test_a_locked_file_fails_a_put_in_words_and_delivery_goes_on(disk: Disk, post: Post) -> None:
    tickets = await post.put_many(20)
    async with locked(disk.path):
        with pytest.raises(StoreError, match=r"another process has kept .*store.db locked"):
            await post.put()
        assert sorted(await post.order()) == sorted(tickets)
        assert "another process has kept" in reasons(post)

    await post.clock.sleep(1)

    assert reasons(post) == ""
    assert await disk.rows("SELECT state, count(*) FROM messages GROUP BY state") == [("delivered", 20)]


async def test_a_step_waits_its_full_time_again_after_the_lock_is_gone(disk: Disk, post: Post) -> None:
    async with locked(disk.path):
        with pytest.raises(StoreError):
            await post.put()
    await post.put()

    [[milliseconds]] = await store(post).file.read(lambda tx: tx.execute("PRAGMA busy_timeout").fetchall())
    assert milliseconds == 100


async def test_a_deleted_file_accepts_nothing_more_and_what_it_holds_is_delivered(
    disk: Disk, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    tickets = [*await post.put_many(5), await post.put(on_unknown="park")]
    await in_thread(disk.path.unlink)

    with pytest.raises(StoreError, match="was deleted or moved while it was open: nothing more is accepted"):
        await post.put()
    with caplog.at_level(logging.CRITICAL, "tidegate.store"):
        assert sorted(await post.order()) == sorted(tickets)

    assert {await post.state(ticket) for ticket in tickets} == {State.DELIVERED}
    assert "was deleted or moved while it was open" in reasons(post)
    await disk.close(post)
    assert not await in_thread(disk.path.with_name("store.db.rescued").exists)


async def test_no_file_is_made_in_the_place_of_one_that_was_deleted_under_its_sender(
    disk: Disk, post: Post
) -> None:
    """A new file there would look like a replacement, and stop the sender."""
    await post.put_many(3)
    await in_thread(disk.path.unlink)

    with pytest.raises(StoreError, match=r"was deleted or moved while process \d+ .* sends from it"):
        await disk.opener()
    with pytest.raises(StoreError, match=r"store\.db\.rescued, which you can move back"):
        await in_thread(check_store_exists, str(disk.path))

    assert not await in_thread(disk.path.exists)
    assert len(await post.order()) == 3


async def test_what_waits_in_a_deleted_file_is_saved_when_its_sender_ends(disk: Disk, post: Post) -> None:
    gone, waits = await post.put(), await post.put(not_before=post.clock.now() + 20)
    await in_thread(disk.path.unlink)
    assert await post.order() == [gone]

    await disk.close(post)

    saved = disk.path.with_name("store.db.rescued")
    assert (await in_thread(saved.stat)).st_mode & 0o777 == 0o600
    await in_thread(saved.rename, disk.path)
    again = await disk.sender()
    assert (await again.state(gone), await again.state(waits)) == (State.DELIVERED, State.QUEUED)
    assert await again.order(40) == [waits]


async def test_an_idle_process_notices_by_itself_that_its_file_was_deleted(disk: Disk, post: Post) -> None:
    await in_thread(disk.path.unlink)
    await post.clock.sleep(0.1)
    assert "was deleted or moved while it was open" in reasons(post)


async def test_a_file_that_is_moved_back_is_used_as_before(disk: Disk, post: Post) -> None:
    aside = disk.path.with_name("aside.db")
    await in_thread(disk.path.rename, aside)
    with pytest.raises(StoreError):
        await post.put()
    await in_thread(aside.rename, disk.path)

    ticket = await post.put()

    assert await post.order() == [ticket]
    assert reasons(post) == ""


async def test_a_replaced_file_is_neither_written_nor_sent_from(disk: Disk, post: Post) -> None:
    await post.put()
    other = disk.path.with_name("other.db")
    await in_thread(other.touch)
    await in_thread(other.rename, disk.path)

    with pytest.raises(StoreError, match="was replaced by another file while it was open"):
        await post.put()
    with pytest.raises(ClosedError, match="was replaced by another file"):
        await post.claim()
    assert "was replaced by another file" in reasons(post)
    assert await in_thread(disk.path.read_bytes) == b""


def lock_of(disk: Disk) -> Path:
    return disk.path.with_name("store.db.lock")


@pytest.mark.parametrize("make", [os.symlink, os.link])
async def test_a_link_in_place_of_the_lock_is_refused_and_its_target_stays_as_it_is(
    disk: Disk, make: Callable[[Path, Path], None]
) -> None:
    target = disk.path.with_name("precious.txt")
    await in_thread(target.write_text, "do not touch")
    await in_thread(make, target, lock_of(disk))

    with pytest.raises(StoreError, match=r"store.db.lock is .*remove it"):
        await disk.sender()

    assert await in_thread(target.read_text) == "do not touch"


async def test_a_pipe_in_place_of_the_lock_is_refused_and_blocks_nobody(disk: Disk) -> None:
    await in_thread(os.mkfifo, lock_of(disk))
    with pytest.raises(StoreError, match="is not a file of its own"):
        await disk.sender()


async def test_a_lock_file_that_is_removed_is_made_again_and_admits_no_second_sender(
    disk: Disk, post: Post
) -> None:
    await in_thread(lock_of(disk).unlink)
    await post.clock.sleep(0.1)  # its holder looks every 50 ms, and before each claim

    with pytest.raises(NotTheSenderError, match="sends for"):
        await disk.sender()
    ticket = await post.put()
    assert await post.order() == [ticket]
    assert reasons(post) == ""


async def test_a_sender_whose_lock_another_took_sends_nothing_more_and_the_other_goes_on(
    disk: Disk, post: Post
) -> None:
    first = await post.put()
    await in_thread(lock_of(disk).unlink)
    second = await disk.sender()  # before the first has looked

    with pytest.raises(NotTheSenderError, match="another process has taken over sending"):
        await post.claim()
    with pytest.raises(NotTheSenderError, match="another process has taken over sending"):
        await post.turn()
    put_here = await post.put()  # which still works, and reaches the other
    await post.clock.sleep(0.2)

    assert await second.order() == [first, put_here]
    assert "another process has taken over sending" in reasons(post)
    assert reasons(second) == ""


async def test_another_process_hears_from_the_sender_itself_what_is_wrong(disk: Disk, post: Post) -> None:
    other = store(await disk.opener())
    assert await other.sender_health() == StoreHealth()

    words = StoreHealth().with_problems(["the worker has failed", "messages may go, and nothing does"])
    store(post).health_told = lambda: words

    assert await other.sender_health() == words
    assert await store(post).sender_health() == words


async def test_a_sender_that_does_not_answer_is_not_ready_and_without_one_there_is_no_word(
    disk: Disk, post: Post
) -> None:
    other = store(await disk.opener())
    await store(post)._tasks.stop()  # noqa: SLF001  (it hangs)

    health = await other.sender_health()
    await disk.close(post)

    assert health is not None
    assert not health.ready
    assert health.reasons[0].endswith("sends, and has not answered for 2 s")
    assert await other.sender_health() is None


async def test_a_process_that_cannot_write_to_ask_the_sender_says_that(disk: Disk, post: Post) -> None:
    other = store(await disk.opener(busy_timeout=0.1))
    async with locked(disk.path):
        health = await other.sender_health()
    assert health is not None
    assert "another process has kept" in health.reasons[0]
    assert (await post.outbox.stats()).waiting == 0
