"""Calling the user's fetch function, and the size of the batches that it is asked for."""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError, UpstreamRefusedError

FETCH_TIMEOUT: Final = 300.0  # seconds for one: it may have to wait until a lockout is over
REJECTED_KEYS_STATUSES: Final = frozenset(
    {400, 413, 414, 422, 431}
)  # statuses: it is what was asked for that is refused

T = TypeVar("T")


class FetchFailure(msgspec.Struct, frozen=True):
    """Expected, and no reason to stop."""

    error: Exception

    @property
    def is_of_the_keys(self) -> bool:
        """Whether asking for others, or for fewer, may work."""
        error = self.error
        return isinstance(error, BadInputError) or getattr(error, "status", None) in REJECTED_KEYS_STATUSES

    @property
    def is_final(self) -> bool:
        """Whether asking again at once is in vain: no such table, bad token, no such function."""
        return isinstance(self.error, UpstreamRefusedError | BadInputError | TypeError)


async def call_fetch(call: Callable[[], Awaitable[T]], clock: Clock) -> T | FetchFailure:
    """What it returns, or what came instead."""
    try:
        async with clock.timeout(FETCH_TIMEOUT):
            asked = call()
            if not inspect.isawaitable(asked):
                raise TypeError("fetch is no async function: write async def")  # noqa: TRY301
            return await asked
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return FetchFailure(RuntimeError("what the fetch waited for was cancelled"))
    except TimeoutError as error:
        return FetchFailure(TimeoutError(f"it took too long: {str(error) or f'over {FETCH_TIMEOUT:g} s'}"))
    except Exception as error:  # noqa: BLE001  (whatever it raises, the others go on)
        return FetchFailure(error)


def is_met(value: object) -> bool:
    return value is not None and value is not False


def check_fetch(fetch: object, takes: str) -> None:
    if not callable(fetch):
        raise BadInputError(f"fetch is {fetch!r}: give an async function that takes {takes}")


def checked_interval(interval: object) -> float:
    if isinstance(interval, bool) or not isinstance(interval, int | float) or not math.isfinite(interval):
        raise BadInputError(f"an interval is a number of seconds, such as 60, not {interval!r}")
    if interval <= 0:
        raise BadInputError(f"an interval of {interval!r} s cannot be: give seconds above 0, such as 60")
    return float(interval)


BATCH_SIZE_STEPS: Final = ((300, 20), (1_000, 30))  # up to so many subscribers: so many keys in a request
BATCH_SIZE_BEYOND_STEPS: Final = 50

CountFitting = Callable[[Sequence[str]], int]
"""How many of these keys, from the first on, fit into one request."""


def batch_size_for(subscribers: int, interval: float) -> int:
    """Small enough to be answered fast; larger only where a cycle would need over one request per second."""
    usual = next((size for most, size in BATCH_SIZE_STEPS if subscribers <= most), BATCH_SIZE_BEYOND_STEPS)
    requests = max(1, math.floor(interval))
    return max(usual, math.ceil(subscribers / requests))


def split_batches(keys: Sequence[str], size: int, most: CountFitting | None = None) -> Iterator[list[str]]:
    """Batches in the order of the keys, none larger than `size` or than what fits into a request."""
    begin = 0
    while begin < len(keys):
        batch = list(keys[begin : begin + size])
        if most is not None:
            batch = _fitting(batch, most)
        yield batch
        begin += len(batch)


def _fitting(batch: list[str], most: CountFitting) -> list[str]:
    """From the first on. A key that fits nowhere is asked for alone: then it is said what is wrong."""
    try:
        return batch[: max(1, most(batch))]
    except BadInputError:
        half = len(batch) // 2
        return _fitting(batch[:half], most) if half else batch


def is_count(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given > 0


def even_spread(number: int) -> float:
    """The place of the n-th comer in [0, 1): at any time all places taken are spread evenly.

    The binary digits of the number, mirrored at the point: 0, ½, ¼, ¾, ⅛ …
    """
    share, weight = 0.0, 0.5
    while number:
        number, digit = divmod(number, 2)
        share += digit * weight
        weight /= 2
    return share
