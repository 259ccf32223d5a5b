"""How many keys to ask for in one request: decided purely."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tidegate.errors import BadInputError

STEPS: Final = ((300, 20), (1_000, 30))  # up to so many subscribers: so many keys in a request
LARGE: Final = 50

Most = Callable[[Sequence[str]], int]
"""How many of these keys, from the first on, fit into one request."""


def size_for(subscribers: int, interval: float) -> int:
    """Small enough to be answered fast; larger only where a cycle would need over one request per second."""
    usual = next((size for most, size in STEPS if subscribers <= most), LARGE)
    requests = max(1, math.floor(interval))
    return max(usual, math.ceil(subscribers / requests))


def cut(keys: Sequence[str], size: int, most: Most | None = None) -> Iterator[list[str]]:
    """Batches in the order of the keys, none larger than `size` or than what fits into a request."""
    begin = 0
    while begin < len(keys):
        batch = list(keys[begin : begin + size])
        if most is not None:
            batch = _fitting(batch, most)
        yield batch
        begin += len(batch)


def _fitting(batch: list[str], most: Most) -> list[str]:
    """From the first on. A key that fits nowhere is asked for alone: then it is said what is wrong."""
    try:
        return batch[: max(1, most(batch))]
    except BadInputError:
        half = len(batch) // 2
        return _fitting(batch[:half], most) if half else batch


def is_count(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given > 0


def even_share(number: int) -> float:
    """The place of the n-th comer in [0, 1): at any time all places taken are spread evenly.

    The binary digits of the number, mirrored at the point: 0, ½, ¼, ¾, ⅛ …
    """
    share, weight = 0.0, 0.5
    while number:
        number, digit = divmod(number, 2)
        share += digit * weight
        weight /= 2
    return share
