"""Calling the function that asks the API: it may fail, hang, or not be what was meant."""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError, UpstreamRefusedError

DEADLINE: Final = 300.0  # seconds for one: it may have to wait until a lockout is over
AT_FAULT: Final = frozenset({400, 413, 414, 422, 431})  # statuses: it is what was asked for that is refused

T = TypeVar("T")


class Failure(msgspec.Struct, frozen=True):
    """Expected, and no reason to stop."""

    error: Exception

    @property
    def is_of_the_keys(self) -> bool:
        """Whether asking for others, or for fewer, may work."""
        error = self.error
        return isinstance(error, BadInputError) or getattr(error, "status", None) in AT_FAULT

    @property
    def is_final(self) -> bool:
        """Whether asking again at once is in vain: no such table, bad token, no such function."""
        return isinstance(self.error, UpstreamRefusedError | BadInputError | TypeError)


async def attempt(call: Callable[[], Awaitable[T]], clock: Clock) -> T | Failure:
    """What it returns, or what came instead."""
    try:
        async with clock.timeout(DEADLINE):
            asked = call()
            if not inspect.isawaitable(asked):
                raise TypeError("fetch is no async function: write async def")  # noqa: TRY301
            return await asked
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return Failure(RuntimeError("what the fetch waited for was cancelled"))
    except TimeoutError as error:
        return Failure(TimeoutError(f"it took too long: {str(error) or f'over {DEADLINE:g} s'}"))
    except Exception as error:  # noqa: BLE001  (whatever it raises, the others go on)
        return Failure(error)


def has_come_true(value: object) -> bool:
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
