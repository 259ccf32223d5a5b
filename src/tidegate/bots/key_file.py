"""The key file beside a store: readable by its owner alone, replaced as a whole."""

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tidegate.errors import BadInputError, StoreError

OTHERS: Final = 0o077  # what the mode of a secret has none of
_KEY = re.compile(r"[A-Za-z0-9_-]{43}=")  # 32 bytes, as Fernet takes them


def is_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


class KeyFile:
    """Keys as lines, newest first: `tidegate.db.key` for `tidegate.db`. All verbs block on the disk.

    Nothing is remembered: another process may change the file at any time.
    """

    def __init__(self, store: Path) -> None:
        self._store = store

    @property
    def path(self) -> Path:
        real = self._store.resolve()  # a link to a store means the store's own key
        return real.with_name(f"{real.name}.key")

    def read(self) -> list[str]:
        """Empty where there is no file. Raises BadInputError where it is spoilt or others may read it."""
        with _told(f"cannot read the key file {self.path}"):
            try:
                with self.path.open(errors="replace") as file:
                    mode = os.fstat(file.fileno()).st_mode
                    keys = file.read().split()
            except FileNotFoundError:
                return []
        if mode & OTHERS:
            raise BadInputError(f"others may read the key file {self.path}: run chmod 600 {self.path}")
        if not keys or not all(map(is_key, keys)):
            raise BadInputError(f"the key file {self.path} is spoilt: restore it from a backup, or remove it")
        return keys

    def make(self, key: str) -> None:
        """Put the first key in place; where another process was faster, its key stays. Then it is on disk."""
        with _told(f"cannot make the key file {self.path} (TIDEGATE_KEY would be used instead)"):
            draft = self._draft([key])
            try:
                # A link, because it replaces nothing and the file behind it is complete.
                with suppress(FileExistsError):
                    self.path.hardlink_to(draft)
            finally:
                draft.unlink()
            self._sync_folder()

    def replace(self, keys: Sequence[str]) -> None:
        """Readers see either the old keys or these. `alone` keeps other writers away. Then it is on disk."""
        with _told(f"cannot change the key file {self.path}"):
            draft = self._draft(keys)
            try:
                draft.replace(self.path)
            except OSError:
                draft.unlink()
                raise
            self._sync_folder()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While the body runs, no other process gets here: it is refused at once. Ends with the process."""
        # The folder is locked: the file itself is replaced, and a file for the lock would stay behind.
        with self._folder() as folder:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(f"another process is changing {self.path}: let it end first") from None
            yield

    def _draft(self, keys: Sequence[str]) -> Path:
        """A file beside, complete and on disk. mkstemp lets nobody else read it."""
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f"{self.path.name}.")
        draft = Path(name)
        try:
            with os.fdopen(handle, "w") as file:
                file.writelines(f"{key}\n" for key in keys)
                file.flush()
                self._give_to_owner(handle)
                os.fsync(handle)
        except OSError:
            draft.unlink()
            raise
        return draft

    def _give_to_owner(self, handle: int) -> None:
        """Root may act for a service: the key belongs to whoever owns the store, like SQLite's own files."""
        if os.geteuid() == 0 and self._store.exists():
            owner = self._store.stat()
            os.fchown(handle, owner.st_uid, owner.st_gid)

    def _sync_folder(self) -> None:
        with self._folder() as folder:
            os.fsync(folder)

    @contextmanager
    def _folder(self) -> Iterator[int]:
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            yield folder
        finally:
            os.close(folder)


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{what}: {(error.strerror or 'unknown error').lower()}") from error
