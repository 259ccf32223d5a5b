"""Numbers of direct calls: counted in memory as they are made, and stored now and then."""

from collections import Counter
from typing import Final

from tidegate.events import EventStream, RefusalHeard
from tidegate.model import BotId, NotSent, Outcome, Refused, Retry, Unreachable

STORED_EVERY: Final = 5.0  # seconds; a crash loses at most the counts of these
SERVER_ERROR: Final = "server_error"  # the reason of a 5xx


class CallCounts:
    """The direct calls of this process that the store has not counted yet."""

    def __init__(self, events: EventStream) -> None:
        self._events = events
        self.unstored: Counter[tuple[BotId, str]] = Counter()

    def note(self, bot: BotId, call: str, outcome: Outcome | None, *, in_lane: bool) -> None:
        """Count one attempt at a call; None: it was given up, as its turn came too late."""
        counts = self.unstored
        if outcome is None:
            counts[bot, "direct_given_up"] += 1
            return
        failed = isinstance(outcome, Retry | Unreachable) and outcome.reason == SERVER_ERROR
        if isinstance(outcome, NotSent | Unreachable) and not failed:
            return
        counts[bot, "direct"] += 1
        if failed:
            counts[bot, "direct_failed"] += 1
        elif isinstance(outcome, Refused):
            counts[bot, "direct_refused"] += 1
            if not in_lane:  # else it is logged with what it closes
                refusal = RefusalHeard(bot, outcome.retry_after, "nothing", call=call)
                self._events.publish(refusal)

    def take(self) -> Counter[tuple[BotId, str]]:
        """Return the counts to be stored. Add them again if that fails."""
        taken, self.unstored = self.unstored, Counter()
        return taken
