"""The check of a whole file before anything is done with its lines: broadcasts, reminders."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final, Generic, TypeVar

import msgspec

from tidegate.broadcast.audience_file import AudienceFile, BadLine
from tidegate.cli.progress import ShowProgress
from tidegate.cli.terminal import printable
from tidegate.clock import Clock

CHUNK: Final = 500  # lines between two looks at Ctrl-C
COMPLAINTS: Final = 20
SAMPLES: Final = 3

Line = TypeVar("Line")


class CheckedFile(msgspec.Struct, Generic[Line]):
    """The counts of good and bad lines, and the first of each."""

    good: int = 0
    bad: int = 0
    complaints: list[BadLine] = []
    samples: list[Line] = []

    def add(self, found: Line | BadLine) -> None:
        if isinstance(found, BadLine):
            self.bad += 1
            if len(self.complaints) < COMPLAINTS:
                self.complaints.append(found)
        else:
            self.good += 1
            if len(self.samples) < SAMPLES:
                self.samples.append(found)

    def lines(self) -> list[str]:
        """Return the bad lines and their reasons, for a person."""
        told = [f"line {line.number}: {printable(line.reason)}" for line in self.complaints]
        return [*told, f"… and {self.bad - len(told):,} more"] if self.bad > len(told) else told

    def report(self) -> dict[str, Any]:
        errors = [{"line": line.number, "reason": line.reason} for line in self.complaints]
        return {"bad_lines": self.bad, "errors": errors}


async def check_lines(
    lines: Iterable[Line | BadLine],
    source: AudienceFile,
    clock: Clock,
    stop: asyncio.Event,
    show: ShowProgress,
) -> CheckedFile[Line]:
    """Check every line, until `stop`. Reads in the event loop, in which nothing else runs yet."""
    checked = CheckedFile[Line]()
    for number, found in enumerate(lines):
        checked.add(found)
        if number % CHUNK == 0:
            show(source.read, f"{number:,} lines")
            await clock.sleep(0)  # Ctrl-C is noticed here
            if stop.is_set():
                break
    return checked
