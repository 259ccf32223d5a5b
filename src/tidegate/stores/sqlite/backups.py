"""Backup and restore of a store file. Everything here blocks on the disk."""

import asyncio
import fcntl
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreError
from tidegate.model import State
from tidegate.stores.sqlite.message_rows import PRIORITIES
from tidegate.stores.sqlite.schema import APPLICATION_ID, prepare
from tidegate.stores.sqlite.sender_lock import SenderLock

RESTORED: Final = "restored"  # the reason of what a restore parked
SIDE_FILES: Final = ("-wal", "-shm", "-journal")  # which SQLite keeps beside an open file
LOCK_TIMEOUT: Final = 2.0  # seconds for another process to end its step
_ASIDE: Final = ".before-restore"
_DRAFT: Final = ".tidegate-draft"  # the end of the name of a copy that is being written
_DRAFT_LOCK: Final = f"{_DRAFT}.lock"
_COUNT: Final = (
    "INSERT INTO counts (bot, name, count) VALUES (?, ?, ?)"
    " ON CONFLICT (bot, name) DO UPDATE SET count = count + excluded.count"
)
_DESCRIPTION: Final = "it waited when the backup was made, and may have been delivered since"
_ARRIVED: Final = "it waited when the backup was made, and may have been handled since"


def back_up(store: Path, target: Path, *, any_database: bool = False) -> None:
    """Copy the store as of one moment, while it may be in use. `target` is then whole and on disk, or absent.

    With `any_database`, it may be another SQLite file, such as that of the reminders.

    A process that is killed meanwhile leaves a draft, which the next backup or restore into the same folder
    removes. Raises BadInputError if the target exists, or the store is none or damaged.
    """
    check_absent(target)
    if not any_database:
        check_backup(store)
    with _translated_errors(target), _draft_for(target) as draft:
        with closing(_connect(draft)) as copy:
            _copy(store, copy)
            _check_whole(copy, store)
        _sync(draft)
        _move_to_new_name(draft, target)
        _sync(target.parent)


def check_backup(source: Path) -> None:
    """Raises BadInputError if there is no such file, or it is not a store. Does not read all of it."""
    _check_file(source)
    try:
        with closing(_connect(source, "ro")) as original:
            _check_owner(original, source)
    except sqlite3.DatabaseError as error:
        raise _unusable(source, error) from error


async def restore_backup(
    named: Path, store: Path, source: Path, clock: Clock, *, park: bool
) -> tuple[int, Path | None]:
    """Replace `store`, which `named` may be a link to, by a backup, holding the sender lock.

    With `park`, park what waits in the backup. Return how many messages were parked, and where the present
    store was set aside. Raises StoreError that names the process that sends for the store.
    """
    lock = SenderLock(named)
    if sender := await lock.holder():
        raise StoreError(f"{sender} sends for {store}: stop it, then restore")
    await lock.take(clock)
    try:
        return await asyncio.to_thread(_restore, store, source, clock.now() if park else None)
    finally:
        await lock.release()


def _restore(store: Path, source: Path, parked_at: float | None) -> tuple[int, Path | None]:
    with ready_copy(source, store) as draft:
        parked = 0 if parked_at is None else park_all(draft, parked_at)
        return parked, replace_store(draft, store)


@contextmanager
def ready_copy(source: Path, store: Path) -> Iterator[Path]:
    """A checked copy of a backup, brought up to date, in the folder where `store` is; gone at the end."""
    if store.is_dir():
        raise BadInputError(
            f"{store} is a folder: give the path of a file in it, such as {store}/tidegate.db"
        )
    check_backup(source)
    with _translated_errors(store), _draft_for(store) as draft:
        with closing(_connect(draft)) as copy:
            _copy(source, copy)
            _check_whole(copy, source)
            prepare(copy, source)
            # Calls made since are not in it: the next sender must be as careful as after a crash.
            copy.execute("INSERT OR REPLACE INTO facts VALUES ('clean', 0)")
        yield draft


def park_all(draft: Path, now: float) -> int:
    """Park messages of a copy that wait or were being sent, unless expired; returns how many."""
    with closing(_connect(draft)) as copy:
        copy.execute("BEGIN")
        moved = copy.execute(
            "SELECT bot, state, priority, count(*) FROM messages"
            " WHERE settled_at IS NULL AND (expires_at IS NULL OR expires_at > ?1)"
            " GROUP BY bot, state, priority",
            (now,),
        ).fetchall()
        copy.execute(
            "UPDATE messages SET state = 'parked', settled_at = ?1, retry_at = NULL, reason = ?2,"
            " description = ?3 WHERE settled_at IS NULL AND (expires_at IS NULL OR expires_at > ?1)",
            (now, RESTORED, _DESCRIPTION),
        )
        for bot, state, priority, count in moved:
            name = PRIORITIES[priority] if state == State.QUEUED else state
            copy.executemany(_COUNT, [(bot, name, -count), (bot, State.PARKED, count)])
        _park_arrivals(copy, now)
        copy.execute("COMMIT")
    return sum(count for *_, count in moved)


def _park_arrivals(copy: sqlite3.Connection, now: float) -> None:
    """Park updates, too: they may have been handled since. A copy of version 1 has none."""
    if copy.execute("SELECT 1 FROM sqlite_schema WHERE name = 'arrivals'").fetchone() is None:
        return
    copy.execute(
        "INSERT OR REPLACE INTO parked (source, key, lane, arrived_at, parked_at, reason, body)"
        " SELECT source, key, lane, arrived_at, ?, ?, body FROM arrivals ORDER BY number",
        (now, _ARRIVED),
    )
    copy.execute("DELETE FROM arrivals")
    copy.execute("DELETE FROM held")
    copy.execute("DELETE FROM facts WHERE name = 'arrivals' OR name GLOB 'arrivals:*'")  # how many there are


def replace_store(draft: Path, store: Path) -> Path | None:
    """Replace the store by a copy; returns where the old one is now, if there was one.

    Raises StoreError if a process uses the store. After a kill at any instant, one of the two is in place.
    """
    aside = store.with_name(store.name + _ASIDE)
    there = store.exists()
    with _translated_errors(store):
        _copy_ownership(store if there else store.parent, draft)
        _sync(draft)
        if there:
            with _exclusive_use(store):
                _set_aside(store, aside)
                draft.replace(store)
        else:
            # Those of a removed store: SQLite would read them into the copy.
            _move_side_files(store, aside)
            draft.replace(store)
        _sync(store.parent)
    return aside if there else None


def _set_aside(store: Path, aside: Path) -> None:
    """Keep the old store under another name."""
    if aside.exists():
        if not aside.samefile(store):
            raise BadInputError(f"{aside} is there from an earlier restore: move it elsewhere first")
        aside.unlink()  # an earlier restore was killed right here
    try:
        aside.hardlink_to(store)
    except OSError:  # some file systems have no links
        store.rename(aside)
    _move_side_files(store, aside)


def _move_side_files(store: Path, aside: Path) -> None:
    for ending in SIDE_FILES:
        with suppress(FileNotFoundError):
            store.with_name(store.name + ending).rename(aside.with_name(aside.name + ending))


@contextmanager
def _exclusive_use(store: Path) -> Iterator[None]:
    """While the body runs, no other process has the store open, and all of it is in the one file."""
    with closing(_connect(store)) as old:
        try:
            # SQLite leaves the WAL only if no other connection is open, in any process.
            left = old.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete"
            old.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            left = error.sqlite_errorcode not in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
        except sqlite3.DatabaseError:
            left = True  # it is damaged, which may be the reason for the restore
        if not left:
            raise StoreError(f"a process has {store} open: stop whatever uses it, then restore")
        yield


def _copy(source: Path, copy: sqlite3.Connection) -> None:
    """Copy all of the source as of one moment into one file without a WAL."""
    _check_file(source)
    try:
        with closing(_connect(source, "ro")) as original:
            original.backup(copy)  # in one step: in several, a store in use makes it start over
        copy.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.DatabaseError as error:
        raise _unusable(source, error) from error


def _check_file(source: Path) -> None:
    if source.is_dir():
        raise BadInputError(f"{source} is a folder: give the file of a store")
    if not source.exists():
        raise BadInputError(f"there is no file {source}")


def _check_owner(original: sqlite3.Connection, source: Path) -> None:
    [owner] = original.execute("PRAGMA application_id").fetchone()
    if owner != APPLICATION_ID:
        raise BadInputError(f"{source} is not a store of Tidegate: give another file")


def _check_whole(copy: sqlite3.Connection, source: Path) -> None:
    try:
        [page] = copy.execute("PRAGMA page_size").fetchone()
        [found] = copy.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        raise _unusable(source, error) from error
    # SQLite reads a last page that is cut off as if it ended in zeros.
    if found != "ok" or source.stat().st_size % page:
        raise BadInputError(f"{source} is damaged: use an earlier backup")


def _unusable(source: Path, error: sqlite3.DatabaseError) -> Exception:
    if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
        return BadInputError(f"{source} is not a store of Tidegate: give another file")
    if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CORRUPT:
        return BadInputError(f"{source} is damaged: use an earlier backup")
    return StoreError(f"{source} cannot be copied: {error}")


def _connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(address, uri=True, isolation_level=None, timeout=LOCK_TIMEOUT)


def check_absent(target: Path) -> None:
    """Raise BadInputError if there is something of that name."""
    if os.path.lexists(target):
        raise BadInputError(f"{target} exists: a backup replaces nothing, give another name")


def _move_to_new_name(draft: Path, target: Path) -> None:
    """Give the draft its name, unless somebody else has taken that meanwhile."""
    try:
        target.hardlink_to(draft)
    except FileExistsError:
        check_absent(target)
        raise
    except OSError:  # some file systems have no links
        check_absent(target)
        draft.rename(target)


@contextmanager
def _draft_for(place: Path) -> Iterator[Path]:
    """An empty file in the same folder, readable by its owner alone; removed at the end unless moved.

    Drafts of processes that were killed are removed first. Those of others have their locks held.
    """
    _remove_dead_drafts(place.parent)
    lock, held = _lock_of_new_draft(place)
    draft = lock.with_name(lock.name.removesuffix(_DRAFT_LOCK) + _DRAFT)
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield draft
    finally:
        _remove_draft(lock)
        os.close(held)


def _lock_of_new_draft(place: Path) -> tuple[Path, int]:
    """Make and hold the lock of a draft. The operating system frees it after kill -9."""
    while True:
        lock = place.with_name(f"{place.name}.{secrets.token_hex(4)}{_DRAFT_LOCK}")
        held = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock.stat().st_ino == os.fstat(held).st_ino:
                return lock, held
        os.close(held)  # another process has taken it for a dead one's and removed it


def _remove_dead_drafts(folder: Path) -> None:
    for lock in folder.glob(f"*{_DRAFT_LOCK}"):
        with suppress(OSError):  # held by a process that lives, removed by another, or not ours to open
            held = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_draft(lock)
            finally:
                os.close(held)


def _remove_draft(lock: Path) -> None:
    """Remove a draft whose lock is held; the lock last, as a draft without one would never be removed."""
    name = lock.name.removesuffix(_DRAFT_LOCK) + _DRAFT
    for ending in ("", *SIDE_FILES):
        lock.with_name(name + ending).unlink(missing_ok=True)
    lock.unlink(missing_ok=True)


def _copy_ownership(model: Path, draft: Path) -> None:
    """Give the file the owner of the store or its folder: root may act for a service."""
    known = model.stat()
    if os.geteuid() == 0:
        os.chown(draft, known.st_uid, known.st_gid)
    if model.is_file():
        draft.chmod(known.st_mode & 0o777)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _translated_errors(place: Path) -> Iterator[None]:
    """Errors of the disk, and of SQLite while it writes, as StoreError that names the place."""
    try:
        yield
    except StoreError:
        raise
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise StoreError(f"cannot write {place}: {(reason or 'unknown error').lower()}") from error
