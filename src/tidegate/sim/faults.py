"""Faults between a client and a simulator, as shares of all requests; each request draws one fate."""

import math
import random
import re
from collections.abc import Mapping
from typing import Final, Literal, Self, get_args

import msgspec

from tidegate.errors import BadInputError

Fate = Literal["answered", "server_error", "lost_request", "lost_answer", "silent", "malformed"]

_LATENCY = re.compile(r"(\d+(?:\.\d+)?)(?:([-~])(\d+(?:\.\d+)?))?(?:ms)?")
LONGEST_SILENCE = 300.0  # seconds until a request without an answer is cut; no client waits longer
_P99 = 2.326  # standard deviations from the median to the 99th percentile


class Latency:
    """A distribution of delays, in milliseconds.

    `20`: always 20 · `5-40`: evenly between · `20~200`: log-normal, median 20 and 99th percentile 200.
    """

    __slots__ = ("_high", "_low", "_shape")

    def __init__(self, low: float, high: float, shape: Literal["-", "~"] = "-") -> None:
        self._low, self._high, self._shape = low, high, shape

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _LATENCY.fullmatch(text.strip())
        if match is None:
            raise BadInputError(f"{text!r} is not a latency in ms: write 20, 5-40 or 20~200 (median~p99)")
        low, shape = float(match[1]), match[2] or "-"
        high = float(match[3] or low)
        if shape == "~" and low <= 0:
            raise BadInputError(f"{text!r} is not a latency: the median, before the ~, must be above 0")
        if high < low:
            raise BadInputError(f"{text!r} is not a latency: the second number must not be below the first")
        return cls(low, high, "~" if shape == "~" else "-")

    def seconds(self, draw: random.Random) -> float:
        if self._shape == "-":
            return draw.uniform(self._low, self._high) / 1000
        return draw.lognormvariate(math.log(self._low), math.log(self._high / self._low) / _P99) / 1000

    def __bool__(self) -> bool:
        return self._high > 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Latency) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return f"{self._low:g}" if self._low == self._high else f"{self._low:g}{self._shape}{self._high:g}"


NO_DELAY = Latency(0, 0)


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shares between 0 and 1 of the requests. The defaults are a perfect network."""

    latency_in: Latency = NO_DELAY  # until a request arrives, and is counted
    latency_out: Latency = NO_DELAY  # until its answer arrives
    server_error: float = 0.0  # answered 5xx, not accepted
    lost_request: float = 0.0  # the connection is cut before the call is counted
    lost_answer: float = 0.0  # accepted, then the connection is cut
    silent: float = 0.0  # accepted, and never answered
    malformed: float = 0.0  # accepted, answered with broken JSON

    def __post_init__(self) -> None:
        shares = [share for _, share in self._shares()]
        if any(not 0 <= share <= 1 for share in shares) or sum(shares) > 1 + 1e-9:
            raise BadInputError("each share of faults must be between 0 and 1, and their sum at most 1")

    def fate(self, draw: random.Random) -> Fate:
        """Draw what happens to one request."""
        point = draw.random()
        for fate, share in self._shares():
            if point < share:
                return fate
            point -= share
        return "answered"

    def shares(self) -> dict[str, float]:
        """Return the shares that are above 0, by name."""
        return {fate: share for fate, share in self._shares() if share}

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a level (none, some, many) or names with shares: `lost_answer=0.02,server_error`.

        A name without a share means 1 %.
        """
        if text.strip() in LEVELS:
            return msgspec.structs.replace(cls(), **LEVELS[text.strip()])
        shares: dict[str, float] = {}
        for part in text.split(","):
            name, _, share = part.strip().partition("=")
            name = name.strip().replace("-", "_")
            if name not in FATES:
                known = ", ".join(FATES)
                raise BadInputError(f"{name!r} is no fault: write {', '.join(LEVELS)}, or some of {known}")
            if name in shares:
                raise BadInputError(f"{name} is given twice: give one share")
            shares[name] = parse_share(share) if share else DEFAULT_SHARE
        return msgspec.structs.replace(cls(), **shares)

    def _shares(self) -> tuple[tuple[Fate, float], ...]:
        return (
            ("server_error", self.server_error),
            ("lost_request", self.lost_request),
            ("lost_answer", self.lost_answer),
            ("silent", self.silent),
            ("malformed", self.malformed),
        )


PERFECT = Faults()
FATES: Final = tuple(name for name in get_args(Fate) if name != "answered")
DEFAULT_SHARE: Final = 0.01  # of a fault that is named without one
LEVELS: Final[Mapping[str, dict[str, float]]] = {
    "none": {},
    "some": dict.fromkeys(FATES, 0.001),
    "many": dict.fromkeys(FATES, 0.01),
}


def parse_share(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise BadInputError(f"{text!r} is not a share: write a number from 0 to 1, such as 0.05")
    return number


class ConnectionCut(ConnectionError):  # noqa: N818  (an event, as in ConnectionResetError's family)
    """No answer came. With `left` the request may have been counted; without, the connection was refused."""

    def __init__(self, text: str, *, left: bool = True) -> None:
        super().__init__(text)
        self.left = left


class FaultySimulator:
    """A simulator whose faults can be changed while it runs."""

    @property
    def faults(self) -> Faults:
        return self._faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        # A perfect network is recognised by identity, which is fast.
        self._faults = PERFECT if faults == PERFECT else faults
