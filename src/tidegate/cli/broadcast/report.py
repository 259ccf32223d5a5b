"""The result of a broadcast: counts, a table, and a CSV file of those it did not reach."""

import csv
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec
from rich import box
from rich.table import Table

from tidegate.broadcast.tracker import GONE_REASONS as GONE
from tidegate.errors import BadInputError
from tidegate.model import Record, State

HEADER: Final = ("chat_id", "state", "reason")
BESIDE: Final = ("", ".key", ".lock", "-wal", "-shm", "-journal")  # a store and its side files


def check_place(path: Path, *, read: Iterable[str], store: str) -> None:
    """Raise BadInputError unless a report may be written there: now, not after hours of sending.

    `read` are the files that the broadcast is made from.
    """
    target = _real(path)
    if any(_same(target, Path(place)) for place in read if place != "-") or _is_stdin(target):
        raise BadInputError(f"--report: {path} is read by this broadcast: name another file")
    if any(_same(target, place) for place in _of_store(store)):
        raise BadInputError(f"--report: {path} belongs to the store: name another file")
    if target.is_dir() or not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise BadInputError(
            f"--report: {path} cannot be written: name a file in a folder that you may write to"
        )
    if target.exists() and not _is_report(target):
        raise BadInputError(f"--report: {path} exists and is not an earlier report: name another file")


def write_rows(path: Path, rows: Iterable[tuple[str, str, str]]) -> int:
    """Write the report as a whole, replacing an earlier one; return the number of rows."""
    target = _real(path)  # a link stays a link
    draft = target.with_name(f".report-{secrets.token_hex(8)}.tmp")
    written = 0
    try:
        with draft.open("x", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(HEADER)
            for row in rows:
                writer.writerow(row)
                written += 1
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return written


def _of_store(store: str) -> Iterator[Path]:
    file = store.removeprefix("sqlite:///")
    if "://" in file:
        return  # no file
    real = _real(Path(file))
    yield from (real.with_name(real.name + end) for end in BESIDE)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # unlike resolve, it accepts a link to itself


def _same(target: Path, other: Path) -> bool:
    """Return True for the same file under any name, even if it does not exist yet."""
    if target == _real(other):
        return True
    with suppress(OSError):
        return target.samefile(other)
    return False


def _is_stdin(target: Path) -> bool:
    with suppress(OSError, ValueError, AttributeError):  # stdin may be closed, or not a file
        return os.path.samestat(os.fstat(sys.stdin.fileno()), target.stat())
    return False


def _is_report(target: Path) -> bool:
    if not target.is_file():
        return False
    header = ",".join(HEADER).encode()
    try:
        with target.open("rb") as file:
            return file.readline(len(header) + 2).rstrip(b"\r\n") == header
    except OSError:
        return False


WAITING: Final = frozenset((State.QUEUED, State.SENDING, State.RETRY))
UNKNOWN: Final = "unknown"  # the reason of parked messages, which have a row of their own
NOT_REACHED: Final = frozenset(State) - WAITING - {State.DELIVERED}


class MissedRow(NamedTuple):
    """A row of the report. `chat_id` is written as in the audience."""

    chat_id: str
    state: str
    reason: str


class BroadcastCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a broadcast by state. `blocked` are a part of `dead`."""

    accepted: int = 0
    delivered: int = 0
    dead: int = 0
    blocked: int = 0
    parked: int = 0
    expired: int = 0
    cancelled: int = 0
    waiting: int = 0
    reasons: dict[str, int] = {}  # of the dead and parked

    @classmethod
    def of(cls, tally: Mapping[tuple[State, str | None], int]) -> Self:
        def count(*states: State) -> int:
            return sum(number for (state, _), number in tally.items() if state in states)

        reasons: dict[str, int] = {}
        blocked = 0
        for (state, reason), number in tally.items():
            if state in {State.DEAD, State.PARKED} and reason:
                reasons[reason] = reasons.get(reason, 0) + number
            blocked += number if state == State.DEAD and reason in GONE else 0
        return cls(
            accepted=sum(tally.values()),
            delivered=count(State.DELIVERED),
            dead=count(State.DEAD),
            blocked=blocked,
            parked=count(State.PARKED),
            expired=count(State.EXPIRED),
            cancelled=count(State.CANCELLED, State.REPLACED),
            waiting=count(*WAITING),
            reasons=dict(sorted(reasons.items(), key=lambda item: -item[1])),
        )

    @property
    def ended(self) -> int:
        return self.accepted - self.waiting

    @property
    def flawless(self) -> bool:
        """Return True if every message that ended was delivered, or its user is gone."""
        return self.delivered + self.blocked == self.ended


def report_table(report: dict[str, Any]) -> Table:
    title = f"Broadcast {report['name']}"
    table = Table(box=box.SIMPLE, title=title, title_justify="left", show_header=False)
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    rows = (
        ("accepted", "accepted"),
        ("delivered", "delivered"),
        ("dead", "dead"),
        ("blocked", "  blocked the bot, or gone"),
        ("parked", "parked, outcome unknown"),
        ("expired", "expired"),
        ("cancelled", "cancelled"),
        ("waiting", "still waiting"),
        ("bad_lines", "bad lines, not sent"),
        ("refused", "refused (429)"),
    )
    for key, name in rows:
        if report[key] or key in {"accepted", "delivered", "refused"}:
            table.add_row(name, f"{report[key]:,}")
        if key == "blocked":  # the last row of dead messages
            _add_reasons(table, report["reasons"])
    if report["avg_rps"]:
        table.add_row("delivered a second", f"{report['avg_rps']:,.1f}")
        table.add_row("seconds", f"{report['seconds']:,.1f}")
    return table


def _add_reasons(table: Table, reasons: Mapping[str, int]) -> None:
    for reason, count in reasons.items():
        if reason != UNKNOWN:
            table.add_row(f"  because: {reason}", f"{count:,}")


def write_unreached(path: Path, records: Iterable[Record], prefix: str) -> int:
    """Write a line for each message that ended without being delivered; return how many."""
    return write_rows(path, missed_chats(records, prefix))


def missed_chats(records: Iterable[Record], prefix: str) -> Iterator[MissedRow]:
    for record in records:
        key = record.message.dedup_key or ""
        if key.startswith(prefix):
            # The chat as it is in the audience: a group may have migrated since.
            chat = key.removeprefix(prefix).partition("+")[0]
            yield MissedRow(chat, record.state.value, record.reason or "")
