"""Counters of one executor, in this process."""

from typing import Any

import msgspec

from tidegate.polling.stats import PollingStats


class FlowCounts(msgspec.Struct):
    events: int = 0
    begun: int = 0
    ended: int = 0
    expired: int = 0
    effects: int = 0
    said: int = 0
    errors: int = 0


class FlowStats(msgspec.Struct, frozen=True, kw_only=True):
    """The state at one moment. `working` and `timers` are under way now; the others are totals."""

    flow: str
    events: int
    begun: int
    ended: int  # including `expired`
    expired: int
    effects: int
    said: int
    errors: int  # events that the flow could not handle
    failed_works: int
    working: int
    timers: int
    unreadable: int = 0  # sessions that this process has set aside
    polls: dict[str, PollingStats]

    def as_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return {**msgspec.structs.asdict(self), "polls": {n: one.as_dict() for n, one in self.polls.items()}}
