"""The inbox in a file after a crash, on a full disk, and beside other processes."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from contract.inbox.inbox_driver import BOT, InboxDriver, arrival, keys, set_bound
from restarts import in_thread
from tidegate.clock import Clock
from tidegate.errors import ClosedError, StoreError, StoreFullError
from tidegate.inbound.inbox import DEDUP_SECONDS, SUSPECT_CRASHES, InboxItem
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.sqlite import inbox_sql
from tidegate.stores.sqlite.file import StoreFile
from tidegate.stores.sqlite.inbox import SqliteInbox


class Disk:
    """One store file, and the processes that have it open."""

    def __init__(self, path: Path, clock: VirtualClock) -> None:
        self.path = path
        self.clock = clock
        self.files: list[StoreFile] = []

    async def process(self, *, hands_out: bool = True, clock: Clock | None = None) -> InboxDriver:
        file = StoreFile(self.path)
        await file.open()
        self.files.append(file)
        inbox = SqliteInbox(file, clock or self.clock)
        if hands_out:
            await inbox.open()
        return InboxDriver(inbox, self.clock)

    async def kill(self) -> None:
        """Kill the last process: data that is not on disk is lost."""
        file = self.files.pop()
        connection, file._connection = file._connection, None  # noqa: SLF001  (nothing ends politely here)
        assert connection is not None
        await in_thread(connection.close)

    async def restart(self) -> InboxDriver:
        await self.kill()
        return await self.process()

    async def rows(self, query: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = await self.files[-1].read(lambda tx: tx.execute(query).fetchall())
        return found

    def fill(self) -> "Full":
        """The disk of the last process is full until this is emptied."""
        file = self.files[-1]
        full = Full(cast("sqlite3.Connection", file._connection))  # noqa: SLF001  (it cannot be filled politely)
        file._connection = cast("sqlite3.Connection", full)  # noqa: SLF001
        return full


class Full:
    """A connection whose commits fail while `full` is set."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.executemany = connection.executemany
        self.close = connection.close
        self.full = True

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    @property
    def total_changes(self) -> int:
        return self._connection.total_changes

    def execute(self, sql: str, values: Iterable[Any] = ()) -> sqlite3.Cursor:
        if self.full and sql == "COMMIT":
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorname = "SQLITE_FULL"
            raise error
        return self._connection.execute(sql, tuple(values))


@pytest.fixture
async def disk(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Disk]:
    disk = Disk(tmp_path / "store.db", clock)
    yield disk
    for file in disk.files:
        await file.close()


async def test_a_crash_loses_nothing_that_was_accepted_and_keeps_the_order(disk: Disk) -> None:
    driver = await disk.process()
    await driver.accept("1", "2", lane="a")
    await driver.accept("3", lane="b")

    driver = await disk.restart()

    assert await driver.counts() == (3, 0, 0)
    assert await driver.handle_all() == ["1", "3", "2"]


async def test_what_was_held_in_a_crash_is_the_head_of_its_lane_with_one_crash_more(disk: Disk) -> None:
    driver = await disk.process()
    await driver.accept("1", "2")
    await driver.inbox.release(await driver.claim_one(), failed=True)
    for crashes in range(3):
        held = await driver.claim_one()
        assert (held.item, held.attempts, held.crashes) == (arrival("1"), 1, crashes)
        driver = await disk.restart()

    await driver.inbox.done(await driver.claim())

    held = await driver.claim_one()
    assert (held.item.key, held.crashes) == ("2", 0)


async def test_after_crashes_one_suspect_is_given_at_a_time(disk: Disk) -> None:
    driver = await disk.process()
    for key in "abc":
        await driver.accept(key, lane=key)
    for _ in range(SUSPECT_CRASHES):
        await driver.claim(suspects=3)
        driver = await disk.restart()
    await driver.accept("new", lane="new")

    first = await driver.claim()

    assert keys(first) == ["a", "new"]
    assert await driver.claim(suspects=0) == []
    await driver.inbox.done(first)
    assert keys(await driver.claim()) == ["b"]


async def test_what_was_handled_or_parked_before_a_crash_is_known_after_it(disk: Disk) -> None:
    driver = await disk.process()
    await driver.accept("1", "2")
    await driver.inbox.done([await driver.claim_one()])
    await driver.inbox.park(await driver.claim_one(), "no")

    driver = await disk.restart()

    assert await driver.accept("1", "2", "3") == [False, False, True]
    assert await driver.parked() == ["2"]
    assert await driver.handle_all() == ["3"]


async def test_what_waits_for_its_next_try_still_does_after_a_crash(disk: Disk) -> None:
    driver = await disk.process()
    await driver.accept("1", "2")
    await driver.inbox.release(await driver.claim_one(), after=30, failed=True)
    await disk.clock.sleep(10)

    driver = await disk.restart()

    assert await driver.claim() == []
    await disk.clock.sleep(19.9)
    assert await driver.claim() == []
    await disk.clock.sleep(0.2)
    assert await driver.handle_all() == ["1", "2"]


async def test_a_number_is_never_given_twice(disk: Disk) -> None:
    """Otherwise the outcome of one item could settle another."""
    driver = await disk.process()
    await driver.accept("1")
    [old] = await driver.claim()
    await driver.inbox.done([old])
    driver = await disk.restart()
    await driver.accept("2")
    [new] = await driver.claim()

    await driver.inbox.done([old])

    assert new.id != old.id
    assert await driver.counts() == (0, 1, 0)


async def test_one_that_ends_well_is_opened_again_without_a_crash(disk: Disk) -> None:
    driver = await disk.process()
    await driver.accept("1", "2")
    claiming = asyncio.create_task(driver.claim())
    await disk.clock.sleep(0)
    claiming.cancel()  # a dispatcher that stops
    with suppress(asyncio.CancelledError):
        await claiming

    await driver.inbox.close()
    await driver.inbox.open()

    held = await driver.claim_one()
    assert (held.item.key, held.crashes) == ("1", 0)


async def test_many_are_loaded_a_part_at_a_time(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_sql, "ITEMS_LOADED_AT_ONCE", 3)
    driver = await disk.process(hands_out=False)
    await driver.inbox.accept([arrival(str(number), str(number)) for number in range(10)])

    driver = await disk.restart()

    assert await driver.handle_all() == [str(number) for number in range(10)]


async def test_a_full_disk_changes_nothing(disk: Disk) -> None:
    driver = await disk.process()
    await driver.accept("1", "2")
    await driver.accept("3", lane="b")
    held = await driver.claim_one()
    full = disk.fill()

    with pytest.raises(StoreError, match="full: free some space"):
        await driver.accept("4")
    with pytest.raises(StoreError, match="full"):
        await driver.claim()
    with pytest.raises(StoreError, match="full"):
        await driver.inbox.done([held])
    with pytest.raises(StoreError, match="full"):
        await driver.inbox.release(held)
    with pytest.raises(StoreError, match="full"):
        await driver.inbox.park(held, "no")
    assert await driver.counts() == (2, 1, 0)

    full.full = False
    assert keys(await driver.claim()) == ["3"]
    await driver.inbox.done([held])
    assert await driver.accept("1", "4") == [False, True]
    assert keys(await driver.claim()) == ["2"]
    assert await driver.counts() == (1, 2, 0)


async def test_a_strange_key_does_not_spoil_what_comes_in_the_same_instant(disk: Disk) -> None:
    driver = await disk.process()
    strange = InboxItem(BOT, "\ud800", "a", b"")

    answers = await asyncio.gather(
        driver.accept("1"), driver.inbox.accept([strange]), driver.accept("2"), return_exceptions=True
    )

    assert [answers[0], type(answers[1]), answers[2]] == [[True], UnicodeEncodeError, [True]]
    assert await driver.handle_all() == ["1", "2"]


async def test_a_closed_file_says_so(disk: Disk) -> None:
    driver = await disk.process()
    await driver.accept("1")
    await disk.files.pop().close()

    with pytest.raises(ClosedError):
        await driver.accept("2")
    with pytest.raises(ClosedError):
        await driver.claim()
    await driver.inbox.close()


async def test_what_another_process_accepts_is_handed_out_within_a_second(disk: Disk) -> None:
    driver = await disk.process()
    other = await disk.process(hands_out=False)
    waiting = asyncio.create_task(driver.next())
    await disk.clock.sleep(5)

    assert await other.accept("1") == [True]

    await disk.clock.sleep(1)
    assert keys(waiting.result()) == ["1"]
    assert await other.accept("1") == [False]
    assert await other.counts() == (0, 1, 0)


async def test_what_another_process_replays_is_handed_out_within_a_second(disk: Disk) -> None:
    driver = await disk.process()
    await driver.accept("1")
    await driver.inbox.park(await driver.claim_one(), "no")
    other = await disk.process(hands_out=False)
    waiting = asyncio.create_task(driver.next())

    assert await other.inbox.replay(BOT, "1")

    await disk.clock.sleep(1)
    assert keys(waiting.result()) == ["1"]


async def test_arrivals_of_two_processes_are_one_order(disk: Disk) -> None:
    driver = await disk.process()
    other = await disk.process(hands_out=False)

    for number in range(0, 10, 2):
        await other.accept(str(number))
        await driver.accept(str(number + 1))

    assert await driver.handle_all() == [str(number) for number in range(10)]


async def test_one_that_only_looks_disturbs_nobody(disk: Disk) -> None:
    driver = await disk.process()
    await driver.accept("1", "2")
    held = await driver.claim_one()
    other = await disk.process(hands_out=False)

    assert await other.counts() == (1, 1, 0)
    assert await other.parked() == []
    assert not await other.inbox.drop(BOT, "1")
    await other.inbox.close()

    await driver.inbox.done([held])
    assert (await driver.claim_one()).crashes == 0


async def test_one_that_was_closed_gives_nothing_out(disk: Disk) -> None:
    driver = await disk.process()
    other = await disk.process(hands_out=False)
    await driver.accept("1")

    await driver.inbox.close()
    await driver.accept("2")
    await other.accept("3")
    await disk.clock.sleep(1)

    assert await driver.claim() == []
    await driver.inbox.open()
    assert await driver.handle_all() == ["1", "2", "3"]


async def test_one_that_only_accepts_knows_when_the_inbox_is_full(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bound(monkeypatch, "MAX_WAITING_ITEMS", 2)
    driver = await disk.process()
    other = await disk.process(hands_out=False)
    await driver.accept("1")
    await other.accept("2")

    with pytest.raises(StoreFullError):
        await other.accept("3")


async def test_what_somebody_removed_from_the_file_is_passed_over(disk: Disk) -> None:
    driver = await disk.process()
    await driver.accept("1", "2")
    await disk.files[-1].write(lambda tx: tx.execute("DELETE FROM arrivals WHERE key = '1'").rowcount)

    assert keys(await driver.next()) == ["2"]


async def test_what_was_seen_is_forgotten_as_fast_as_new_ones_come(disk: Disk) -> None:
    driver = await disk.process()
    sizes = []
    for day in range(4):
        for start in range(0, 100, 20):
            numbers = range(1_000 * day + start, 1_000 * day + start + 20)
            await driver.inbox.accept([arrival(str(number), str(number % 7)) for number in numbers])
        await driver.handle_all()
        await disk.clock.sleep(DEDUP_SECONDS + 1)
        sizes.append((await disk.rows("SELECT count(*) FROM seen"))[0][0])

    assert max(sizes) <= 200
    assert dict(await disk.rows("SELECT name, value FROM facts")) == {
        "last_arrival": 400,
        "arrivals": 0,
        "arrivals:bot:42": 0,
    }
