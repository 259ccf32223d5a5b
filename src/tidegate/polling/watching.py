"""For how long those who were told are watched."""

from collections.abc import Collection
from typing import Final

EVERY: Final = 5.0  # seconds between two looks, so that each costs little


class Watches:
    """`seconds` from when one is first seen among the watched, and a few more. Monotonic times."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[str, float] = {}
        self._look_at = 0.0

    def over(self, watched: Collection[str], now: float) -> list[str]:
        """Whose time is over."""
        if now < self._look_at:
            return []
        self._look_at = now + EVERY
        self._until = {key: self._until.get(key, now + self._seconds) for key in watched}
        return [key for key, until in self._until.items() if until <= now]
