"""The words of the domain: values without I/O."""

import re
from typing import Final, Self

from tidegate.errors import BadInputError

_RATE = re.compile(r"(\d{1,9})/(\d{1,9}(?:\.\d{1,6})?)")


class Rate:
    """At most `count` calls in any `seconds` seconds. Written `30/1`. Immutable."""

    # No dataclass: msgspec would then read and write {"count": …, "seconds": …} instead of the text.
    __slots__ = ("count", "seconds")

    def __init__(self, count: int, seconds: float) -> None:
        self.count: Final = count
        self.seconds: Final = seconds

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _RATE.fullmatch(text.strip())
        if match is None:
            raise BadInputError(f"{text!r} is not a limit: write calls/seconds, such as 30/1 or 20/60")
        rate = cls(int(match[1]), float(match[2]))
        if rate.count < 1 or rate.seconds <= 0:
            raise BadInputError(f"{text!r} would never let a call pass: both numbers must be above 0")
        return rate

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rate) and (self.count, self.seconds) == (other.count, other.seconds)

    def __hash__(self) -> int:
        return hash((self.count, self.seconds))

    def __repr__(self) -> str:
        return f"Rate({self})"

    def __str__(self) -> str:
        return f"{self.count}/{self.seconds:g}"
