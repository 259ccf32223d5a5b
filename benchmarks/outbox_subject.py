"""What the sections of `outbox.py` share: what a subject is, messages, and limits that never bind."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.model import BotId, Message, Priority, Rate, TicketId
from tidegate.pacing.rules import Rules
from tidegate.stores.sqlite.outbox import SqliteOutbox

Figures = dict[str, float]

BOT: Final = BotId(42)
FREE: Final = Rate(10**9, 1)
RULES: Final = Rules(bot=FREE, private=FREE, group=FREE, paid=FREE)
TEXT: Final = "Your order has left our house and will be with you on Thursday between 9 and 12. Thank you!"
STORE: Final = "tidegate.db"


class Target(msgspec.Struct, frozen=True):
    """What one figure of a subject has to be."""

    figure: str
    at_least: float = 0.0
    below: float = float("inf")

    def met(self, figures: Figures) -> bool:
        return self.at_least <= figures[self.figure] < self.below


class Subject(msgspec.Struct, frozen=True):
    """Something to measure. `run` has a process and an empty folder of its own, and so has `prepare`.

    What `prepare` leaves behind is made once and copied into the folder of each run.
    """

    label: str
    run: Callable[[Path], Figures]
    rounds: int = 3
    prepare: Callable[[Path], None] | None = None
    targets: tuple[Target, ...] = ()


class Section(msgspec.Struct, frozen=True):
    """Subjects in one table. `per_second` is compared with that of each of `peers`, where there are some."""

    title: str
    subjects: Mapping[str, Subject]
    peers: Mapping[str, str] = {}  # a subject, and how a column calls it


def outbox_at(folder: Path) -> SqliteOutbox:
    return SqliteOutbox(folder / STORE, Clock(), RULES)


def batches(number: int, size: int, *, chats: int | None = None) -> Iterator[list[Message]]:
    """Each to a chat of its own, or to `chats` chats in turn.

    Of high priority: others are spaced, which makes small batches of large ones where nothing else limits.
    """
    for start in range(0, number, size):
        yield [message(i, chats or number) for i in range(start, min(number, start + size))]


def message(i: int, chats: int) -> Message:
    return Message(
        id=TicketId(f"0123456789ab-{i:x}"),
        bot=BOT,
        chat_id=1_000_000_000 + i % chats,
        method="sendMessage",
        params={"text": TEXT},
        priority=Priority.HIGH,
    )


class Watch:
    """Adds up real time, and the processor time of this process, while the body of a `with` runs."""

    def __init__(self) -> None:
        self.seconds = self.cpu = 0.0

    def __enter__(self) -> None:
        self._started = time.perf_counter(), time.process_time()

    def __exit__(self, *exc: object) -> None:
        self.seconds += time.perf_counter() - self._started[0]
        self.cpu += time.process_time() - self._started[1]

    def figures(self, number: int) -> Figures:
        return {"per_second": number / self.seconds, "cpu_us": 1e6 * self.cpu / number}


def peak_memory() -> float:
    """The most this process ever had, in MB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1000


def seconds_of_fsync(folder: Path, times: int = 50) -> list[float]:
    """What the disk asks for each commit: 4 KiB more, and on disk."""
    found: list[float] = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(times):
            started = time.perf_counter()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            found.append(time.perf_counter() - started)
    return sorted(found)
