"""Everybody in the audience is counted here, once."""

import logging
from collections import Counter
from typing import Any, Final

from tidegate.broadcast.gone import REASONS
from tidegate.broadcast.pace import Pace
from tidegate.broadcast.progress import BadRow
from tidegate.clock import Clock
from tidegate.errors import BadInputError, TidegateError
from tidegate.model import ChatId, Record, State

log = logging.getLogger("tidegate.broadcast")

COUNTED: Final = (
    *("read", "accepted", "earlier", "skipped", "bad", "repeated"),
    *("waiting", "delivered", "dead", "parked", "expired", "cancelled", "forgotten"),
)
SHOWN: Final = 20  # bad rows that are kept
TRIED: Final = 100  # with not a single success: it is not the fault of those rows or people


class Tally:
    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self.started_at = clock.now()
        self.pace = Pace(clock)
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.bad_rows: list[BadRow] = []
        self._reached = False
        self._failures: Counter[str] = Counter()  # of those that were put now, until one is reached

    def __getitem__(self, name: str) -> int:
        return self.counts[name]

    # --- rows ---

    def read(self) -> int:
        """The number of the row."""
        self.counts["read"] += 1
        return self.counts["read"]

    def skip(self) -> None:
        self.counts["skipped"] += 1

    def bad(self, row: int, chat_id: ChatId | None, error: Exception) -> None:
        reason = str(error) if isinstance(error, TidegateError) else f"{type(error).__name__}: {error}"
        self.counts["bad"] += 1
        if len(self.bad_rows) < SHOWN:
            self.bad_rows.append(BadRow(row, chat_id, reason))
        if self.counts["bad"] == 1:
            ours = isinstance(
                error, TidegateError
            )  # else it is a function's, who wrote it wants to see where
            log.warning(
                "broadcast %s: row %s is left out: %s. Further ones are counted in its progress",
                self._name,
                row,
                reason,
                exc_info=None if ours else error,
            )

    @property
    def found_one(self) -> bool:
        """Whether there was a row that could be sent, or need not be."""
        return bool(self.counts["accepted"] or self.counts["skipped"])

    def check_rows(self, *, all_read: bool) -> None:
        """Raises BadInputError if every row so far is bad."""
        bad = self.counts["bad"]
        if bad and not self.found_one and (bad >= TRIED or all_read):
            first = self.bad_rows[0]
            which = "the only row" if bad == 1 else f"all of the first {bad} rows"
            raise BadInputError(
                f"broadcast {self._name!r}: {which} cannot be sent, and nothing was sent."
                f" Row {first.row}: {first.reason}"
            )

    # --- messages ---

    def enter(self, *, fresh: bool) -> None:
        self.counts.update(accepted=1, waiting=1, earlier=0 if fresh else 1)

    def repeat(self) -> None:
        self.counts["repeated"] += 1

    def put_again(self) -> None:
        """An earlier call had taken it back, so it is this one's."""
        self.counts["earlier"] -= 1

    def leave_repeated(self) -> None:
        """It was put by this very call, and is counted there."""
        self.counts.subtract(("accepted", "waiting", "earlier"))
        self.repeat()

    def leave(self, record: Record | None, *, fresh: bool) -> None:
        """It has ended; None: the store has forgotten it since."""
        self.counts["waiting"] -= 1
        if record is None:
            self.counts["forgotten"] += 1
            return
        replaced = record.state == State.REPLACED
        self.counts[State.CANCELLED if replaced else record.state.value] += 1
        if record.state in {State.DEAD, State.PARKED} and record.reason:
            self.reasons[record.reason] += 1
        if fresh:
            self._judge(record)
        if (record.settled_at or 0.0) >= self.started_at:
            self.pace.count()

    def _judge(self, record: Record) -> None:
        if self._reached:
            return
        if record.state == State.DEAD and record.reason not in REASONS:
            self._failures[f"{record.reason} ({record.description})"] += 1
        else:
            self._reached = True
            self._failures.clear()

    def check_messages(self) -> None:
        """Raises TidegateError if the first messages have all died of what is nobody's own matter."""
        if self._failures.total() >= TRIED:
            (why, _), many = self._failures.most_common(1)[0], self._failures.total()
            raise TidegateError(
                f"broadcast {self._name!r}: the first {many} messages have all died: {why}."
                " What waited was taken back. Mend that, drop the dead letters (tidegate dlq drop), and call"
                " it again: it goes to whoever did not get it"
            )

    def report(self) -> dict[str, Any]:
        counted: dict[str, Any] = {name: self.counts[name] for name in COUNTED}
        reasons = dict(self.reasons.most_common())
        return counted | {"reasons": reasons, "bad_rows": tuple(self.bad_rows), "started_at": self.started_at}
