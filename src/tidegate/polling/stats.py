"""The statistics of a poller: requests made and avoided, callbacks, for printing and for JSON."""

from typing import Any, Final

import msgspec

TABLE_RULE: Final = "=" * 60


class PollingTotals(msgspec.Struct):
    """Counts of a poller since it was made.

    `asked` counts each subscriber again in every cycle. `alone` is the number of requests that per-user
    polling would have made.
    """

    cycles: int = 0
    batches: int = 0
    requests: int = 0
    asked: int = 0
    alone: float = 0.0
    failed_batches: int = 0
    told: int = 0
    failed_callbacks: int = 0
    last_cycle_seconds: float = 0.0

    def end_cycle(self, *, asked: int, seconds: float, alone: float | None = None) -> None:
        self.cycles += 1
        self.asked += asked
        self.alone += asked if alone is None else alone
        self.last_cycle_seconds = seconds


class PollingStats(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of one poller in this process.

    `requests_avoided` compares with one request for each subscriber in every interval (for deltas, every
    minute); negative if more were made. `reduction` is the same in percent.
    """

    title: str
    active_subscriptions: int
    cycles: int
    batches: int
    requests: int
    average_batch_size: float
    requests_avoided: int
    reduction: float
    told: int
    telling: int  # subscribers whose callback runs, or will
    untold: int  # subscribers without a callback, or whose callback failed too often: told after a start
    failed_callbacks: int  # calls, not subscribers
    failed_batches: int
    last_cycle_seconds: float
    unreadable: int = 0  # stored subscriptions that cannot be decoded, and are skipped

    @classmethod
    def of(
        cls, totals: PollingTotals, *, title: str, active: int, telling: int, untold: int, unreadable: int = 0
    ) -> "PollingStats":
        counts = msgspec.structs.asdict(totals)
        asked, alone = counts.pop("asked"), counts.pop("alone")
        avoided = round(alone) - totals.requests
        return cls(
            **counts,
            title=title,
            active_subscriptions=active,
            average_batch_size=asked / totals.batches if totals.batches else 0.0,
            requests_avoided=avoided,
            reduction=100 * avoided / alone if alone else 0.0,
            telling=telling,
            untold=untold,
            unreadable=unreadable,
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return msgspec.structs.asdict(self)

    def table(self) -> str:
        """For people."""
        return "\n".join(
            [
                TABLE_RULE,
                f"📊 {self.title}",
                TABLE_RULE,
                f"Active Subscriptions: {self.active_subscriptions}",
                f"Total Poll Cycles: {self.cycles}",
                f"Total Batches Processed: {self.batches}",
                f"Total API Requests: {self.requests}",
                f"Average Batch Size: {self.average_batch_size:.1f}",
                *([f"Unreadable Subscriptions: {self.unreadable}"] if self.unreadable else []),
                "",
                "💡 Efficiency:",
                f"   API Request Reduction: {self.reduction:.1f}%",
                f"   Requests Avoided: {self.requests_avoided}",
                TABLE_RULE,
            ]
        )
