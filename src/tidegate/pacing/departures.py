"""When messages leave that all wait from now on. Pure arithmetic on the rules of a window.

n slots, each free again W seconds after the answer, and calls spaced by W/n: n/(W + r) a second for a round
trip of r seconds.
"""

from typing import Final

from tidegate.model import Rate

ROUND_TRIP: Final = 0.05  # seconds from a call to its answer, if it is not known


def departure(number: int, rate: Rate, round_trip: float = ROUND_TRIP) -> float:
    """Return the seconds after which the message with this number leaves. The first one is 0."""
    windows, place = divmod(number, rate.count)
    return windows * (rate.seconds + round_trip) + place * rate.seconds / rate.count
