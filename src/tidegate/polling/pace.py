"""How often to ask: as often as the limit allows, with room for others."""

from typing import Final

from tidegate.errors import BadInputError
from tidegate.model import Rate

FASTEST: Final = 0.2  # seconds from turn to turn, whatever is allowed
SLOWER: Final = 1.5
SLOWEST: Final = 8.0  # times as long as the budget alone would have it
CROWDED: Final = 0.05  # seconds of waiting that are no accident


class Pace:
    """Seconds from the beginning of one turn to that of the next.

    A turn costs its requests, and all turns together have `share` of what the API allows now. Whoever is
    kept waiting slows down by half each time, and comes back to what the budget allows bit by bit.
    """

    def __init__(self, share: float) -> None:
        self._share = _checked(share)
        self._slower = 1.0

    def after(self, requests: int, waited: float, rate: Rate) -> float:
        """How long a turn with so many requests lasts, whose first one had to wait so long."""
        crowded = waited > CROWDED
        self._slower = min(SLOWEST, self._slower * SLOWER) if crowded else max(1.0, self._slower / SLOWER)
        budget = self._share * rate.count / rate.seconds
        return max(FASTEST, max(requests, 1) / budget * self._slower)

    def failed(self) -> None:
        """The next turns come slower."""
        self._slower = min(SLOWEST, self._slower * SLOWER)


def _checked(share: object) -> float:
    if not isinstance(share, int | float) or not 0 < share <= 1:
        raise BadInputError(f"share is {share!r}: give a part of the API's limit, above 0 and at most 1")
    return share
