"""What came of a broadcast: in the vocabulary of all reports, as a table, and whom it did not reach."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from rich import box
from rich.table import Table

from tidegate.broadcast.gone import REASONS as GONE
from tidegate.cli.broadcast.place import write_rows
from tidegate.model import Record, State

WAITING: Final = frozenset((State.QUEUED, State.SENDING, State.RETRY))
UNKNOWN: Final = "unknown"  # the reason of all that are parked, whose line says so
NOT_REACHED: Final = frozenset(State) - WAITING - {State.DELIVERED}


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Where the messages of a broadcast are. `blocked` are a part of the dead."""

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
        """Whether everything that ended was delivered, or the person is gone."""
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
        if key == "blocked":  # the end of what is said of the dead
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
    """A line for each message of this broadcast that ended without being delivered; returns how many."""
    return write_rows(path, _unreached(records, prefix))


def _unreached(records: Iterable[Record], prefix: str) -> Iterator[tuple[str, str, str]]:
    for record in records:
        key = record.message.dedup_key or ""
        if key.startswith(prefix):
            # The chat as the file has it: a group may have moved since.
            chat = key.removeprefix(prefix).partition("+")[0]
            yield chat, record.state.value, record.reason or ""
