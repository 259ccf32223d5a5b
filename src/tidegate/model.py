"""The words of the domain, as frozen records without I/O."""

import re
from typing import Self

import msgspec

from tidegate.errors import BadInputError

_RATE = re.compile(r"(\d{1,9})/(\d{1,9}(?:\.\d{1,6})?)")


class Rate(msgspec.Struct, frozen=True):
    """At most `count` calls in any `seconds` seconds. Written `30/1`."""

    count: int
    seconds: float

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _RATE.fullmatch(text.strip())
        if match is None:
            raise BadInputError(f"{text!r} is not a limit: write calls/seconds, such as 30/1 or 20/60")
        rate = cls(int(match[1]), float(match[2]))
        if rate.count < 1 or rate.seconds <= 0:
            raise BadInputError(f"{text!r} would never let a call pass: both numbers must be above 0")
        return rate

    def __str__(self) -> str:
        return f"{self.count}/{self.seconds:g}"
