"""Backups of a store file: whole or absent, never over an existing file, never of a damaged one."""

import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreError
from tidegate.inbound.inbox import InboxItem, bot_source
from tidegate.model import BotId, Dead, Message, Outcome, Record, Retry, Settlement, State, TicketId
from tidegate.outbox.port import OutboxStats
from tidegate.sim.virtual_time import VirtualClock, run
from tidegate.stores.sqlite import backups
from tidegate.stores.sqlite.backups import RESTORED, back_up, park_all, ready_copy, replace_store
from tidegate.stores.sqlite.inbox import SqliteInbox
from tidegate.stores.sqlite.outbox import SqliteOutbox
from tidegate.stores.sqlite.schema import MIGRATIONS

Result = TypeVar("Result")
LATER = 4_000_000_000.0  # after every deadline


def using(path: Path, work: Callable[[SqliteOutbox], Awaitable[Result]]) -> Result:
    async def opened(clock: VirtualClock) -> Result:
        outbox = SqliteOutbox(path, clock)
        await outbox.open()
        try:
            return await work(outbox)
        finally:
            await outbox.close()

    return run(opened)


def message(ticket: str, **fields: object) -> Message:
    given: dict[str, object] = {"bot": BotId(42), "method": "sendMessage", "params": {"text": ticket}}
    return Message(id=TicketId(ticket), chat_id=len(ticket), **given | fields)  # type: ignore[arg-type]


async def fill(outbox: SqliteOutbox) -> None:
    """One of each kind: dead, waiting for its next try, being sent, queued."""
    outcomes: list[Outcome] = [Dead("blocked", "Forbidden"), Retry(1_000.0, "http_502")]
    for ticket, outcome in zip(("a", "bb"), outcomes, strict=True):
        await outbox.put([message(ticket)])
        [claim] = await outbox.claim(1)
        await outbox.settle([Settlement(claim, outcome)])
    await outbox.put([message("ccc")])
    await outbox.claim(1)
    await outbox.put([message("dddd", priority="low"), message("eeeee", expires_at=LATER - 1)])


async def states(outbox: SqliteOutbox) -> dict[str, str]:
    return {record.message.id: record.state for record in await outbox.records()}


async def stats(outbox: SqliteOutbox) -> OutboxStats:
    return await outbox.stats()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "tidegate.db"
    using(path, fill)
    return path


@pytest.fixture
def backup(store: Path, tmp_path: Path) -> Path:
    path = tmp_path / "backup.db"
    back_up(store, path)
    return path


@pytest.fixture
def open_store(store: Path) -> Iterator[Path]:
    """As if another process had it open."""
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("SELECT count(*) FROM messages").fetchone()
        yield store


def restore(source: Path, store: Path) -> Path | None:
    with ready_copy(source, store) as draft:
        return replace_store(draft, store)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"tidegate.db.lock"}


def test_a_copy_of_a_store_in_use_is_one_whole_file(open_store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()

    back_up(open_store, folder / "backup.db")

    assert names(folder) == {"backup.db"}
    assert (folder / "backup.db").stat().st_mode & 0o777 == 0o600
    assert using(folder / "backup.db", states) == using(open_store, states)


def test_a_copy_replaces_nothing(store: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")

    with pytest.raises(BadInputError, match="precious exists: a backup replaces nothing"):
        back_up(store, tmp_path / "precious")

    assert (tmp_path / "precious").read_text() == "mine"


def test_a_copy_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database" * 1_000)

    with pytest.raises(BadInputError, match="text is not a store of Tidegate"):
        back_up(tmp_path / "text", tmp_path / "backup.db")

    assert names(tmp_path) == {"text"}


def test_what_waited_is_parked_with_a_reason_and_counted_so(backup: Path, tmp_path: Path) -> None:
    place = tmp_path / "new.db"
    with ready_copy(backup, place) as draft:
        assert park_all(draft, now=1_000.0) == 4
        assert replace_store(draft, place) is None

    assert using(place, states) == dict(
        zip(("a", "bb", "ccc", "dddd", "eeeee"), ("dead", *["parked"] * 4), strict=True)
    )
    counts = using(place, stats)
    assert (counts.parked, counts.dead, counts.waiting, counts.sending) == (4, 1, 0, 0)


def test_what_was_parked_can_be_replayed(backup: Path, tmp_path: Path) -> None:
    place = tmp_path / "new.db"
    with ready_copy(backup, place) as draft:
        park_all(draft, now=1_000.0)
        replace_store(draft, place)

    async def replay(outbox: SqliteOutbox) -> tuple[list[Record], OutboxStats]:
        letters = await outbox.records(reason=RESTORED, states=frozenset({State.PARKED}))
        await outbox.replay([letter.message.id for letter in letters])
        return letters, await outbox.stats()

    letters, counts = using(place, replay)
    assert [letter.message.id for letter in letters] == ["bb", "ccc", "dddd", "eeeee"]
    assert all(letter.description and letter.settled_at == 1_000.0 for letter in letters)
    assert (counts.normal, counts.low, counts.parked) == (3, 1, 0)


def test_what_is_past_its_deadline_is_left_to_expire(backup: Path, tmp_path: Path) -> None:
    with ready_copy(backup, tmp_path / "new.db") as draft:
        assert park_all(draft, now=LATER) == 3


def test_the_old_store_is_kept_beside(store: Path, backup: Path) -> None:
    async def put(outbox: SqliteOutbox) -> None:
        await outbox.put([message("since the backup")])

    using(store, put)

    aside = restore(backup, store)

    assert aside == store.with_name("tidegate.db.before-restore")
    assert "since the backup" in using(aside, states)
    assert "since the backup" not in using(store, states)


def test_an_earlier_one_that_was_kept_is_not_replaced(store: Path, backup: Path) -> None:
    restore(backup, store)
    before = names(store.parent)

    with pytest.raises(BadInputError, match="before-restore is there from an earlier restore: move it"):
        restore(backup, store)

    assert names(store.parent) == before


def test_a_restore_that_was_killed_half_way_can_be_done_again(store: Path, backup: Path) -> None:
    store.with_name("tidegate.db.before-restore").hardlink_to(store)

    assert restore(backup, store) is not None


def test_a_store_that_someone_has_open_is_not_replaced(open_store: Path, backup: Path) -> None:
    before = names(open_store.parent)

    with pytest.raises(StoreError, match=r"a process has .* open: stop whatever uses it"):
        restore(backup, open_store)

    assert names(open_store.parent) == before


def test_a_damaged_store_is_replaced_with_all_that_belongs_to_it(store: Path, backup: Path) -> None:
    healthy = using(backup, states)
    store.write_bytes(store.read_bytes()[:5_000])
    store.with_name("tidegate.db-wal").write_bytes(b"of the damaged one")

    aside = restore(backup, store)

    assert aside is not None
    assert aside.with_name(aside.name + "-wal").read_bytes() == b"of the damaged one"
    assert using(store, states).keys() == healthy.keys()


def test_a_log_of_writes_that_a_removed_store_left_is_not_read_into_the_new_one(
    store: Path, backup: Path
) -> None:
    store.unlink()
    stale = store.with_name("tidegate.db-wal")
    stale.write_bytes(b"of the one that is gone")

    assert restore(backup, store) is None

    assert not stale.exists()
    assert len(using(store, states)) == 5


@pytest.mark.parametrize("kept", [50, 4_096, 5_000, -4_096, -1])
def test_a_backup_that_was_cut_off_is_refused(backup: Path, store: Path, kept: int) -> None:
    backup.write_bytes(backup.read_bytes()[:kept])
    before = names(store.parent)

    with pytest.raises(BadInputError, match=r"is damaged: use an earlier backup|is not a store"):
        restore(backup, store)

    assert names(store.parent) == before


def test_a_backup_with_a_spoilt_page_is_refused(backup: Path, store: Path) -> None:
    spoilt = bytearray(backup.read_bytes())
    spoilt[4_096:8_192] = bytes(4_096)
    backup.write_bytes(spoilt)

    with pytest.raises(BadInputError, match="is damaged"):
        restore(backup, store)


def test_a_database_of_someone_else_or_an_empty_file_is_refused(store: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE messages (id)")
    (tmp_path / "empty.db").touch()

    for name in ("other.db", "empty.db"):
        with pytest.raises(BadInputError, match="is not a store of Tidegate"):
            restore(tmp_path / name, store)
    with pytest.raises(BadInputError, match="there is no file"):
        restore(tmp_path / "none.db", store)
    with pytest.raises(BadInputError, match="is a folder"):
        restore(tmp_path, store)
    with pytest.raises(BadInputError, match="is a folder"):
        restore(store, tmp_path)


def test_a_backup_of_a_newer_version_is_refused(backup: Path, store: Path) -> None:
    with closing(sqlite3.connect(backup)) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")

    with pytest.raises(BadInputError, match="made by a newer Tidegate"):
        restore(backup, store)


def test_a_folder_that_is_not_there_is_named(store: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot write .*nowhere/backup\.db: no such file"):
        back_up(store, tmp_path / "nowhere" / "backup.db")


def test_updates_that_waited_are_parked_too(tmp_path: Path) -> None:
    store, backup = tmp_path / "with-updates.db", tmp_path / "backup-of-updates.db"

    async def receive(outbox: SqliteOutbox) -> None:
        inbox = SqliteInbox(outbox.file, Clock())
        await inbox.open()
        await inbox.accept([InboxItem(bot_source(42), str(number), "1001", b"{}") for number in range(3)])
        await inbox.claim([bot_source(42)], 1, suspects=1)

    async def look(outbox: SqliteOutbox) -> tuple[list[str], int]:
        inbox = SqliteInbox(outbox.file, Clock())
        parked = [one.item.key for one in await inbox.parked()]
        return parked, (await inbox.stats()).waiting

    using(store, receive)
    back_up(store, backup)
    park_all(backup, 0)

    assert using(backup, look) == (["2", "1", "0"], 0)


def test_two_backups_at_the_same_time_keep_each_others_drafts(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = backups._copy  # noqa: SLF001  (to be in the middle of one)

    def copy_while_another_runs(source: Path, into: sqlite3.Connection) -> None:
        monkeypatch.setattr(backups, "_copy", copy)
        back_up(store, tmp_path / "second.db")
        copy(source, into)

    monkeypatch.setattr(backups, "_copy", copy_while_another_runs)

    back_up(store, tmp_path / "first.db")

    assert using(tmp_path / "first.db", states) == using(tmp_path / "second.db", states)
    assert not [name for name in names(tmp_path) if "draft" in name]


def test_a_name_that_was_taken_while_the_copy_was_written_is_not_replaced(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "_sync", lambda _: (tmp_path / "backup.db").write_text("mine"))

    with pytest.raises(BadInputError, match="exists: a backup replaces nothing"):
        back_up(store, tmp_path / "backup.db")

    assert (tmp_path / "backup.db").read_text() == "mine"
    assert not [name for name in names(tmp_path) if "draft" in name]
