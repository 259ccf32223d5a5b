"""The check of the whole file before anything is sent, and the preview of a dry run."""

import asyncio
from typing import Any, Final

import msgspec

from tidegate.broadcast.audience_file import BadLine, Mailing
from tidegate.broadcast.message import BroadcastMessage
from tidegate.cli.progress import ShowProgress
from tidegate.cli.terminal import printable
from tidegate.cli.times import span
from tidegate.clock import Clock
from tidegate.model import Rate

CHUNK: Final = 500  # lines between two looks at Ctrl-C
COMPLAINTS: Final = 20
SAMPLES: Final = 3


class CheckedFile(msgspec.Struct):
    """The counts of good and bad lines, and the first of each."""

    good: int = 0
    bad: int = 0
    complaints: list[BadLine] = []
    samples: list[BroadcastMessage] = []

    def add(self, found: BroadcastMessage | BadLine) -> None:
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


async def check(mailing: Mailing, clock: Clock, stop: asyncio.Event, show: ShowProgress) -> CheckedFile:
    """Check every line, until `stop`. Reads in the event loop, in which nothing else runs yet."""
    checked = CheckedFile()
    for number, found in enumerate(mailing.messages()):
        checked.add(found)
        if number % CHUNK == 0:
            show(mailing.source.read, f"{number:,} lines")
            await clock.sleep(0)  # Ctrl-C is noticed here
            if stop.is_set():
                break
    return checked


def forecast(count: int, rate: Rate) -> float:
    """Return the seconds that sending takes at least, by the limit alone."""
    return max(0, count - rate.count) * rate.seconds / rate.count


def preview(name: str, checked: CheckedFile, already: int, rate: Rate) -> dict[str, Any]:
    """Build the report of a dry run. `seconds` is how long sending would take."""
    return {
        "dry_run": True,
        "name": name,
        "would_send": max(0, checked.good - already),
        "already": already,
        **checked.report(),
        "seconds": round(forecast(checked.good - already, rate), 1),
        "rate": str(rate),
        "first": [dict(letter.fields) for letter in checked.samples],
    }


def preview_lines(found: dict[str, Any]) -> list[str]:
    """Return the report of a dry run for a person."""
    lines: list[str] = []
    for message in found["first"]:
        lines += [
            f"to {message['chat_id']}:",
            *(f"  {printable(line)}" for line in message["text"].splitlines()),
        ]
    if found["already"]:
        lines.append(f"{found['already']:,} are already in the store")
    lines.append(
        f"{found['would_send']:,} would be sent, in {span(found['seconds'])} or more "
        f"at the limit of {found['rate']} s; nothing was: this is a dry run"
    )
    return lines
