"""What a caller may ask for one call: `rate_limit_args` of every method of the bot."""

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

import msgspec

from tidegate.errors import BadInputError
from tidegate.model import Priority
from tidegate.outbox.admission import check_priority


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How one call is to be paced. Times are seconds from now.

    With `queue` the call is written down before anything else: it survives a restart, and is made even if
    whoever waits for it is cancelled. After `deadline` it is not made any more.
    """

    priority: Priority | Literal["high", "normal", "low"] | None = None  # None: high for a reply
    deadline: float | None = None
    max_wait: float | None = None  # for its turn, in all; not for queued calls
    queue: bool = False
    dedup_key: str | None = None  # queued calls only, as the others below; as in `Tidegate.send`
    coalesce_key: str | None = None
    on_unknown: Literal["resend", "park"] | None = None

    def __post_init__(self) -> None:
        if self.priority is not None:
            check_priority(self.priority)
        if not isinstance(self.queue, bool):
            raise BadInputError(f"queue is {self.queue!r}: give True or False")
        _check_seconds("deadline", self.deadline, above=0.0)
        _check_seconds("max_wait", self.max_wait)
        if self.queue and self.max_wait is not None:
            raise BadInputError("a queued call waits as it takes: give a deadline instead of max_wait")
        if not self.queue and (only := ", ".join(self.options())):
            raise BadInputError(f"{only}: for queued calls only; add queue=True")

    @classmethod
    def of(cls, args: object) -> Self:
        """From what stands in `rate_limit_args`: a Pace, a mapping of its fields, a priority, or nothing."""
        if args is None:
            return _USUAL  # type: ignore[return-value]  # made once: most calls ask for nothing
        if isinstance(args, cls):
            return args
        if isinstance(args, str):
            return cls(priority=check_priority(args))
        if not isinstance(args, Mapping):
            raise BadInputError(
                f"rate_limit_args is {args!r}: give a priority such as 'low', a mapping, or a Pace"
            )
        unknown = [name for name in args if name not in cls.__struct_fields__]
        if unknown:
            known = ", ".join(cls.__struct_fields__)
            raise BadInputError(f"rate_limit_args has {unknown[0]!r}: what it may hold is {known}")
        return cls(**args)

    def wait(self, otherwise: float | None) -> float | None:
        """Seconds that a direct call may wait for its turn; None: as it takes."""
        bounds = (otherwise if self.max_wait is None else self.max_wait, self.deadline)
        return min((bound for bound in bounds if bound is not None), default=None)

    def options(self) -> dict[str, Any]:
        """What a queued call passes on as it is."""
        names = ("dedup_key", "coalesce_key", "on_unknown")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def _check_seconds(name: str, value: object, *, above: float = -math.inf) -> None:
    if value is None:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and value >= 0 and value > above):  # type: ignore[arg-type,operator]
        least = "above 0" if above == 0 else "0 or more"
        raise BadInputError(f"{name} is {value!r}: give seconds from now, a number {least}")


_USUAL = Pace()
