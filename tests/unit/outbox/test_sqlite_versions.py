"""Files that are not stores, are of other versions, or are damaged: named, and left as they are."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from aiogram.fsm.storage.base import StorageKey

from contract.post import BOT
from restarts import Disk, in_thread, store
from tidegate.adapters.aiogram.fsm_storage import SqliteStorage
from tidegate.errors import BadInputError, StoreError, TidegateError
from tidegate.flows.port import SessionKey
from tidegate.flows.session import Session
from tidegate.inbound.inbox import InboxItem, bot_source
from tidegate.inbound.update_feed import NewUpdate, PushTarget, ReadRequest
from tidegate.model import File
from tidegate.polling.subscriptions import News, Subscription
from tidegate.stores.sqlite.conversations import SqliteConversations
from tidegate.stores.sqlite.flow_sessions import SqliteFlowSessions
from tidegate.stores.sqlite.inbox import SqliteInbox
from tidegate.stores.sqlite.schema import MIGRATIONS, prepare
from tidegate.stores.sqlite.subscriptions import SqliteSubscriptions
from tidegate.stores.sqlite.update_feed import SqliteUpdateFeed

SAMPLES = Path(__file__).parents[2] / "data"
PAGE = 4096


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def make(path: Path, *statements: str) -> None:
    with closing(connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)


def version_of(path: Path) -> int:
    with closing(connect(path)) as connection:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return version


async def test_an_empty_file_becomes_a_store(disk: Disk) -> None:
    await in_thread(disk.path.touch)

    post = await disk.sender()

    ticket = await post.put()
    assert await post.order() == [ticket]


async def test_a_new_store_is_for_its_owner_alone(disk: Disk) -> None:
    await disk.opener()

    assert (await in_thread(disk.path.stat)).st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"chat_id,text\n1,hello\n", "is not a store of Tidegate"),
        (b"x" * 100_000, "is not a store of Tidegate"),
        (b"SQLite format 3\x00", "is not a store of Tidegate"),
        (b"SQLite format 3\x00" + b"\xff" * 10_000, "is not a store of Tidegate"),
    ],
)
async def test_a_file_that_is_no_database_is_refused_and_left_alone(
    disk: Disk, content: bytes, text: str
) -> None:
    await in_thread(disk.path.write_bytes, content)

    with pytest.raises(BadInputError, match=text):
        await disk.opener()

    assert await in_thread(disk.path.read_bytes) == content


async def test_a_folder_is_refused_with_advice(disk: Disk) -> None:
    await in_thread(disk.path.mkdir)
    with pytest.raises(BadInputError, match=r"store.db is a folder: give .*store.db/tidegate.db"):
        await disk.opener()


async def test_a_missing_folder_is_named(disk: Disk) -> None:
    disk.path = disk.path.parent / "no" / "such" / "store.db"
    with pytest.raises(BadInputError, match=r"there is no folder .*no/such"):
        await disk.opener()


async def test_a_database_of_another_application_is_refused_and_left_alone(disk: Disk) -> None:
    await in_thread(make, disk.path, "CREATE TABLE notes (text TEXT)", "INSERT INTO notes VALUES ('mine')")
    before = await in_thread(disk.path.read_bytes)

    with pytest.raises(BadInputError, match="not a store of Tidegate"):
        await disk.opener()

    assert await in_thread(disk.path.read_bytes) == before
    assert sorted(path.name for path in await in_thread(listed, disk.path.parent)) == ["store.db"]


async def test_a_database_of_another_application_without_tables_is_refused_too(disk: Disk) -> None:
    await in_thread(make, disk.path, "PRAGMA application_id = 7", "PRAGMA user_version = 3")

    with pytest.raises(BadInputError, match="not a store of Tidegate"):
        await disk.opener()


def listed(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_a_file_of_a_newer_version_is_refused_and_left_alone(disk: Disk) -> None:
    await disk.close(await disk.opener())
    newer = len(MIGRATIONS) + 1
    await in_thread(make, disk.path, f"PRAGMA user_version = {newer}")

    with pytest.raises(BadInputError, match=f"is of version {newer}, made by a newer Tidegate .*: upgrade"):
        await disk.opener()

    assert await in_thread(version_of, disk.path) == newer


def second(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE messages ADD COLUMN colour TEXT")


def third(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE messages SET colour = 'blue'")


def broken(_: sqlite3.Connection) -> None:
    raise RuntimeError("a migration that fails")


async def test_an_older_file_is_brought_up_to_date_step_by_step(disk: Disk) -> None:
    post = await disk.opener()
    await post.put_many(3)
    await disk.close(post)

    await in_thread(migrate, disk.path, second, third)

    assert await disk.rows("SELECT colour FROM messages") == [("blue",)] * 3
    assert await in_thread(version_of, disk.path) == len(MIGRATIONS) + 2
    await in_thread(migrate, disk.path, second, third)  # and stays as it is


async def test_a_migration_that_fails_changes_nothing(disk: Disk) -> None:
    post = await disk.opener()
    await post.put_many(3)
    await disk.close(post)

    with pytest.raises(RuntimeError, match="a migration that fails"):
        await in_thread(migrate, disk.path, second, broken)

    assert await in_thread(version_of, disk.path) == len(MIGRATIONS)
    post = await disk.sender()
    assert len(await post.order()) == 3


def migrate(path: Path, *more: Callable[[sqlite3.Connection], None]) -> None:
    with closing(connect(path)) as connection:
        prepare(connection, path, (*MIGRATIONS, *more))


async def test_two_that_make_the_same_new_file_do_not_disturb_each_other(disk: Disk) -> None:
    """One looks at an empty file, and the other makes its tables in that instant."""
    first = await in_thread(connect, disk.path)
    slow = Interrupted(await in_thread(connect, disk.path), lambda: prepare(first, disk.path))

    await in_thread(prepare, slow, disk.path)

    assert await in_thread(version_of, disk.path) == len(MIGRATIONS)
    await in_thread(first.close)
    await in_thread(slow.connection.close)


class Interrupted:
    """Somebody else does something after each of the first steps, once."""

    def __init__(self, connection: sqlite3.Connection, other: Callable[[], None]) -> None:
        self.connection = connection
        self._other = other
        self._left = 1

    def execute(self, sql: str) -> sqlite3.Cursor:
        found = self.connection.execute(sql)
        if self._left:
            self._left -= 1
            rows = found.fetchall()
            self._other()
            return self.connection.execute(f"SELECT {', '.join('?' * len(rows[0]))}", rows[0])
        return found


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
async def test_a_file_of_each_version_opens_with_everything_in_it(disk: Disk, version: int) -> None:
    await in_thread(shutil.copy, SAMPLES / f"store-v{version}.db", disk.path)

    post = await disk.sender(keep=1e9)

    found = {str(record.message.id): record for record in await post.outbox.records(limit=1000)}
    assert {ticket: record.state for ticket, record in found.items()} == {
        "delivered": "delivered",
        "dead": "dead",
        "parked": "parked",
        "retry": "retry",
        "refused": "queued",
        "migrated": "delivered",
        "cancelled": "cancelled",
        "replaced": "replaced",
        "newer": "queued",
        "expired": "expired",
        "paused": "queued",
        "with a file": "queued",
        "sending": "queued",
        "queued": "queued",
    }
    assert found["sending"].crashes == 1  # its sender has died
    assert found["dead"].description == "Forbidden: bot was blocked by the user"
    assert found["delivered"].result == {"message_id": 7}
    assert found["with a file"].message.params["photo"] == File(content=b"\x89PNG", name="a.png")
    stats = await post.outbox.stats()
    assert (stats.high, stats.normal, stats.low, stats.retry, stats.sending) == (1, 4, 1, 1, 0)
    assert (stats.delivered, stats.dead, stats.parked, stats.expired) == (2, 1, 1, 1)


async def test_a_file_of_version_1_goes_on_where_it_stopped(disk: Disk) -> None:
    await in_thread(shutil.copy, SAMPLES / "store-v1.db", disk.path)

    post = await disk.sender()

    assert await post.order() == ["sending", "queued"]  # the others wait: paused, closed, or for later
    assert await post.put(dedup_key="d") == "delivered"
    assert await post.outbox.put([post.message(-6)])
    assert [message.chat_id for _, message in await post.run(1)] == [-1006]
    await post.outbox.resume(BOT, 10)
    assert await post.order() == ["paused", "with a file"]


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
async def test_a_file_of_each_version_has_an_inbox(disk: Disk, version: int) -> None:
    await in_thread(shutil.copy, SAMPLES / f"store-v{version}.db", disk.path)
    inbox = SqliteInbox(store(await disk.sender()).file, disk.clock)
    await inbox.open()

    held = await inbox.claim([bot_source(42)], 100, suspects=1)

    expected = [] if version == 1 else [("held", 1), ("waiting", 0)]  # its handler has died
    assert [(one.item.key, one.crashes) for one in held] == expected
    assert [one.reason for one in await inbox.parked()] == ([] if version == 1 else ["ValueError: no"])
    again = [InboxItem(bot_source(42), key, "9", b"{}") for key in ("handled", "parked", "new")]
    assert await inbox.accept(again) == [version == 1, version == 1, True]


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
async def test_a_file_of_each_version_has_subscriptions(disk: Disk, version: int) -> None:
    await in_thread(shutil.copy, SAMPLES / f"store-v{version}.db", disk.path)
    kept = SqliteSubscriptions(store(await disk.sender()).file, disk.clock, "orders")

    found = await kept.after(0)

    there = [
        Subscription(key, {"chat": 7}, since=5.0) for key in ("waits", "to be told", "watched", "reversed")
    ]
    told = News("to be told", {"Paid": True}), News("reversed", {"Paid": False}, "reversed")
    states = [(False, None), (False, told[0]), (True, None), (True, told[1])]
    is_old = version < 3
    assert [one.subscription for one in found] == ([] if is_old else there)
    assert [(one.met, one.news) for one in found] == ([] if is_old else states)
    assert await kept.watermark() == (None if is_old else "2026-01-05 09:00:00+00:00")
    await disk.clock.sleep(60)
    assert await kept.leases.lease(kept.name, 10)  # who had it has died
    assert await kept.add([Subscription("waits"), Subscription("new")]) == [is_old, True]


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
async def test_a_file_of_each_version_has_conversations(disk: Disk, version: int) -> None:
    await in_thread(shutil.copy, SAMPLES / f"store-v{version}.db", disk.path)
    file = store(await disk.sender()).file

    async def opened() -> SqliteConversations:
        return SqliteConversations(file, disk.clock)

    conversations = SqliteStorage(opened)
    there = [
        (StorageKey(42, 7, 7), "asked", {"order": 5}),
        (StorageKey(42, -100, 7, 3, "business", "shop"), "paying", {}),
        (StorageKey(42, 8, 8), None, {"seen": True}),
    ]
    found = await conversations.each()

    assert [(one.key, one.state, one.data) for one in found] == ([] if version < 3 else there)
    assert await conversations.update_data(StorageKey(42, 8, 8), {"n": 1}) == (
        {"n": 1} if version < 3 else {"seen": True, "n": 1}
    )


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
async def test_a_file_of_each_version_has_flow_sessions(disk: Disk, version: int) -> None:
    await in_thread(shutil.copy, SAMPLES / f"store-v{version}.db", disk.path)
    sessions = SqliteFlowSessions(store(await disk.sender()).file, disk.clock, "shop")
    is_old = version < 4

    stored = await sessions.load(SessionKey(42, 7, 7), "campaign")

    waiting = Session(flow="shop", state="waiting", visit=3, data={"order": 5}, due=100.0, expires_at=900.0)
    assert (stored.session, stored.is_seen) == ((None, False) if is_old else (waiting, True))
    assert await sessions.timers(0.0) == ((0, None) if is_old else (1, 100.0))
    assert list((await sessions.unfinished()).keys) == ([] if is_old else [SessionKey(42, -100, 7, 3)])
    assert await sessions.fingerprint() == (None if is_old else "b5")
    assert await sessions.commit(SessionKey(42, 8, 8), waiting, expected=0) == 1


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
async def test_a_file_of_each_version_has_an_update_feed(disk: Disk, version: int) -> None:
    await in_thread(shutil.copy, SAMPLES / f"store-v{version}.db", disk.path)
    feed = SqliteUpdateFeed(store(await disk.sender()).file, disk.clock)
    is_old = version < 7

    assert (await feed.append(BOT, [NewUpdate(6, "chat_member", 7, b"{}")])).is_new == [is_old]
    page = await feed.read(BOT, "stats", ReadRequest())
    targets = {one.name: one.target for one in await feed.readers(BOT)}

    assert [one.number for one in page.updates] == ([] if is_old else [6])
    hook = PushTarget("http://127.0.0.1/hook", "secret")
    assert targets == {"default": None, "stats": None} | ({} if is_old else {"pushed": hook})


async def filled(disk: Disk) -> bytes:
    post = await disk.opener()
    await post.put_many(300)
    await disk.close(post)
    return await in_thread(disk.path.read_bytes)


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.9999])
async def test_a_truncated_file_is_told_from_a_whole_one(disk: Disk, share: float) -> None:
    whole = await filled(disk)
    cut = whole[: int(len(whole) * share)]
    await in_thread(disk.path.write_bytes, cut)

    with pytest.raises(TidegateError, match=r"damaged: restore a backup|not a store of Tidegate"):
        await use(disk)

    assert await in_thread(disk.path.read_bytes) == cut


@pytest.mark.parametrize("pages", [1, 2, 5, -5, -1])
async def test_a_file_that_was_cut_between_pages_is_told_from_a_whole_one(disk: Disk, pages: int) -> None:
    whole = await filled(disk)
    await in_thread(disk.path.write_bytes, whole[: pages * PAGE])

    with pytest.raises(StoreError, match=r"store.db is damaged: restore a backup"):
        await use(disk)


@pytest.mark.parametrize("missing", [1, 100, 4095])
async def test_a_file_that_lacks_a_part_of_its_last_page_is_told_from_a_whole_one(
    disk: Disk, missing: int
) -> None:
    whole = await filled(disk)
    await in_thread(disk.path.write_bytes, whole[:-missing])

    with pytest.raises(StoreError, match=r"store.db is damaged: restore a backup"):
        await use(disk)


async def use(disk: Disk) -> None:
    """A store whose every message is read."""
    post = await disk.sender()
    assert len(await post.order(10)) == 300


async def test_a_last_page_that_is_still_in_the_log_is_no_damage(disk: Disk, tmp_path: Path) -> None:
    post = await disk.sender()
    tickets = await post.put_many(300)
    copy = Disk(tmp_path / "copy.db", disk.clock)
    for ending in ("", "-wal"):  # as the machine that stopped would have left them
        await in_thread(shutil.copy, f"{disk.path}{ending}", f"{copy.path}{ending}")
    size = (await in_thread(copy.path.stat)).st_size
    await in_thread(_append, copy.path, b"\0" * 100)
    assert size % PAGE == 0

    post = await copy.sender()

    assert await post.order() == tickets
    await copy.close(post)


def _append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)
