"""Before anything is sent: whether every line is fit to be, and what it would come to."""

import asyncio
from typing import Any, Final

import msgspec

from tidegate.broadcast.audience_file import BadLine, FileMessage, Mailing
from tidegate.cli.progress import ShowProgress
from tidegate.cli.terminal import printable
from tidegate.cli.times import span
from tidegate.clock import Clock
from tidegate.model import Rate

CHUNK: Final = 500  # lines between two looks at the world
COMPLAINTS: Final = 20
SAMPLES: Final = 3


class CheckedFile(msgspec.Struct):
    """What was found in a file: how much, and the first of each kind."""

    good: int = 0
    bad: int = 0
    complaints: list[BadLine] = []
    samples: list[FileMessage] = []

    def add(self, found: FileMessage | BadLine) -> None:
        if isinstance(found, BadLine):
            self.bad += 1
            if len(self.complaints) < COMPLAINTS:
                self.complaints.append(found)
        else:
            self.good += 1
            if len(self.samples) < SAMPLES:
                self.samples.append(found)

    def lines(self) -> list[str]:
        """What is wrong, for a person."""
        told = [f"line {line.number}: {printable(line.reason)}" for line in self.complaints]
        return [*told, f"… and {self.bad - len(told):,} more"] if self.bad > len(told) else told

    def report(self) -> dict[str, Any]:
        errors = [{"line": line.number, "reason": line.reason} for line in self.complaints]
        return {"bad_lines": self.bad, "errors": errors}


async def check(mailing: Mailing, clock: Clock, stop: asyncio.Event, show: ShowProgress) -> CheckedFile:
    """Everything in the file, or what there was until `stop`.

    Reads in the event loop: nothing else runs in it yet.
    """
    checked = CheckedFile()
    for number, found in enumerate(mailing.letters()):
        checked.add(found)
        if number % CHUNK == 0:
            show(mailing.source.read, f"{number:,} lines")
            await clock.sleep(0)  # Ctrl-C is noticed here
            if stop.is_set():
                break
    return checked


def forecast(count: int, rate: Rate) -> float:
    """Seconds at best: the limit alone, with nobody else sending."""
    return max(0, count - rate.count) * rate.seconds / rate.count


def preview(name: str, checked: CheckedFile, already: int, rate: Rate) -> dict[str, Any]:
    """What a dry run found. `seconds`: how long it would take."""
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
    """The same for a person."""
    lines: list[str] = []
    for message in found["first"]:
        lines += [
            f"to {message['chat_id']}:",
            *(f"  {printable(line)}" for line in message["text"].splitlines()),
        ]
    if found["already"]:
        lines.append(f"{found['already']:,} are in the store already")
    lines.append(
        f"{found['would_send']:,} would be sent, in {span(found['seconds'])} or more "
        f"at the limit of {found['rate']} s; nothing was: this is a dry run"
    )
    return lines
