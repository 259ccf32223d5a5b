"""NocoDB's limit: an exact sliding window over the requests of a token, and a block when it is exceeded.

Written independently of `tidegate.pacing` and of `tidegate.upstream`, which are tested against it.
"""

import math
from email.utils import formatdate
from typing import Literal

import msgspec

from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.sim.sliding_window import SlidingWindow

RetryAfter = Literal["seconds", "date", "missing"]


class NocoLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of each token. The defaults are those that NocoDB's cloud documents."""

    rate: Rate = Rate(5, 1)
    block: float = 30.0  # seconds of 429s from the first request too many; 0: none
    retry_after: RetryAfter = "seconds"  # form of the Retry-After header of a 429

    def __post_init__(self) -> None:
        if not 0 <= self.block < math.inf:
            raise BadInputError("a block lasts for 0 seconds or more")


class _Token:
    __slots__ = ("blocked_at", "blocked_until", "window")

    def __init__(self, rate: Rate) -> None:
        self.window = SlidingWindow(rate)
        self.blocked_at = self.blocked_until = -math.inf

    def is_idle(self, now: float) -> bool:
        return self.blocked_until <= now and self.window.is_idle(now)


class TokenLimiter:
    """Counts the requests of every token. `now` must never go back."""

    SWEEPS_FROM = 1_000  # tokens; fewer are not worth a sweep

    def __init__(self, limits: NocoLimits) -> None:
        self.limits = limits
        self.fullest = 0  # the most requests that a window held
        self._tokens: dict[str, _Token] = {}
        self._blocked = 0.0  # seconds of blocks that are over
        self._sweep_at = self.SWEEPS_FROM

    def change(self, limits: NocoLimits, now: float) -> None:
        """Replace the limits: windows start empty, and no token is blocked."""
        self._blocked = self.blocked_seconds(now)
        self.limits = limits
        self._tokens.clear()

    def forget(self, now: float) -> None:
        """Count from zero; windows and blocks stay."""
        self.fullest = 0
        self._blocked -= self.blocked_seconds(now)

    def admit(self, now: float, name: str) -> float:
        """Return 0.0 if the request may pass; else the seconds until the token may send again."""
        token = self._tokens.get(name)
        if token is None:
            token = self._add_token(now, name)
        if token.blocked_until > now:
            return token.blocked_until - now
        wait = token.window.wait(now, 1)
        if wait <= 0:
            self.fullest = max(self.fullest, token.window.add(now, 1))
            return 0.0
        return self._block(token, now) or wait

    def blocked_seconds(self, now: float) -> float:
        """Return the seconds that tokens were blocked until now, all together."""
        return self._blocked + sum(_elapsed(token, now) for token in self._tokens.values())

    def blocked_for(self, now: float) -> float:
        """Return the seconds until the last block ends; 0.0 if there is none."""
        return max((token.blocked_until - now for token in self._tokens.values()), default=0.0)

    def _block(self, token: _Token, now: float) -> float:
        if self.limits.block > 0:
            self._blocked += _elapsed(token, now)
            token.blocked_at, token.blocked_until = now, now + self.limits.block
        return self.limits.block

    def _add_token(self, now: float, name: str) -> _Token:
        if len(self._tokens) >= self._sweep_at:
            self._sweep(now)
        token = self._tokens[name] = _Token(self.limits.rate)
        return token

    def _sweep(self, now: float) -> None:
        for name, token in list(self._tokens.items()):
            if token.is_idle(now):
                self._blocked += _elapsed(token, now)
                del self._tokens[name]
        self._sweep_at = max(self.SWEEPS_FROM, 2 * len(self._tokens))


def _elapsed(token: _Token, now: float) -> float:
    """Return the seconds of the token's latest block until now."""
    if token.blocked_until == -math.inf:
        return 0.0
    return min(now, token.blocked_until) - token.blocked_at


def retry_after(kind: RetryAfter, wait: float, server_now: float) -> dict[str, str]:
    """Return the header, rounded up so that a client that obeys it is not early."""
    if kind == "missing":
        return {}
    if kind == "seconds":
        return {"retry-after": str(math.ceil(wait))}
    return {"retry-after": formatdate(math.ceil(server_now + wait), usegmt=True)}
