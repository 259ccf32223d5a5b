"""Calls of the user's fetch function, which may fail, hang, or not be an async function at all."""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError, UpstreamRefusedError

FETCH_TIMEOUT: Final = 300.0  # seconds: it may have to wait until a lockout is over
REJECTED_KEYS_STATUSES: Final = frozenset({400, 413, 414, 422, 431})

T = TypeVar("T")


class FetchFailure(msgspec.Struct, frozen=True):
    """An expected failure, which does not stop polling."""

    error: Exception

    @property
    def is_of_the_keys(self) -> bool:
        """True if asking for other or fewer keys may work."""
        error = self.error
        return isinstance(error, BadInputError) or getattr(error, "status", None) in REJECTED_KEYS_STATUSES

    @property
    def is_final(self) -> bool:
        """True if asking again at once is useless: no such table, bad token, no such function."""
        return isinstance(self.error, UpstreamRefusedError | BadInputError | TypeError)


async def call_fetch(call: Callable[[], Awaitable[T]], clock: Clock) -> T | FetchFailure:
    """Return its result, or the failure."""
    try:
        async with clock.timeout(FETCH_TIMEOUT):
            result = call()
            if not inspect.isawaitable(result):
                raise TypeError("fetch is not an async function: write async def")  # noqa: TRY301
            return await result
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


def is_count(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given > 0


def check_fetch(fetch: object, takes: str) -> None:
    if not callable(fetch):
        raise BadInputError(f"fetch is {fetch!r}: give an async function that takes {takes}")


def checked_interval(interval: object) -> float:
    if isinstance(interval, bool) or not isinstance(interval, int | float) or not math.isfinite(interval):
        raise BadInputError(f"an interval is a number of seconds, such as 60, not {interval!r}")
    if interval <= 0:
        raise BadInputError(f"an interval of {interval!r} s: give seconds above 0, such as 60")
    return float(interval)
