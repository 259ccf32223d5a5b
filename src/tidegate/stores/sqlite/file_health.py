"""The problems of the store file: full, locked, slow, deleted or replaced while it is open."""

import logging
from pathlib import Path
from typing import Final, Literal

from tidegate.clock import Clock

log = logging.getLogger("tidegate.store")

SLOW_AFTER: Final = 3.0  # seconds that a step may take
DELETED: Final = (
    "{path} was deleted or moved while it was open: nothing more is accepted. What was accepted is delivered"
    " for as long as its sender runs; what waits when that ends in good order is saved as {path}.rescued"
)
REPLACED: Final = (
    "{path} was replaced by another file while it was open: nothing more is accepted or sent by this process."
    " Restart it; what still waits in the file that was there is then saved as {path}.rescued"
)

Place = Literal["here", "deleted", "replaced"]


class FileHealth:
    """Fed by the file's thread, read by any."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._opened: tuple[int, int] | None = None
        self._busy_since: float | None = None  # monotonic: since when a step runs
        self._failing_since: float | None = None  # monotonic
        self.trouble: str | None = None  # why nothing can be written
        self.place: Place = "here"

    def opened(self) -> None:
        self._opened, self.place = file_identity(self._path), "here"

    def look(self) -> Place:
        """Return what the path names now. An open file stays usable after it was deleted or replaced."""
        before = self.place
        try:
            found = file_identity(self._path)
        except OSError:  # it cannot be looked at: nothing is known
            return before
        if self._opened is None or found == self._opened:
            self.place = "here"
        else:
            self.place = "deleted" if found is None else "replaced"
        if self.place != before:
            if self.place == "here":
                log.error("%s is there again: it is used as before", self._path)
            else:
                log.critical("%s", self.gone)
        return self.place

    @property
    def gone(self) -> str | None:
        """The words for a file that is not at its path any more."""
        if self.place == "here":
            return None
        return (DELETED if self.place == "deleted" else REPLACED).format(path=self._path)

    def began(self) -> None:
        self._busy_since = self._clock.monotonic()

    def ended(self) -> None:
        self._busy_since = None

    def failed(self) -> float:
        """A step could not be written. Return the seconds since the first of them began."""
        now = self._clock.monotonic()
        if self._failing_since is None:
            self._failing_since = now if self._busy_since is None else self._busy_since
        return now - self._failing_since

    def wrote(self) -> None:
        """Something was written: there is no trouble any more."""
        self.trouble = self._failing_since = None

    def problems(self, owed: int) -> list[str]:
        problems = [text for text in (self.gone, self.trouble) if text is not None]
        busy_since = self._busy_since
        busy = 0.0 if busy_since is None else self._clock.monotonic() - busy_since
        if self.trouble is None and busy > SLOW_AFTER:
            problems.append(
                f"{self._path} has not answered for {busy:.0f} s: another process has locked it, or the disk"
                " hangs"
            )
        if owed:
            problems.append(f"{owed} steps of delivery are not written to {self._path} yet")
        return problems


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file that a path names; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
