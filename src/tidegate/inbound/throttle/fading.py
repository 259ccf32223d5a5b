"""What is remembered of many, and forgotten by itself."""

from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Fading(Generic[V]):
    """A value is kept for at least `lifetime` seconds after it was set, and while in use not for twice that.

    The keys stand in two generations, and the older one is dropped as a whole, without a look at its keys.
    """

    def __init__(self, lifetime: float) -> None:
        self._lifetime = lifetime
        self._young: dict[Hashable, V] = {}
        self._old: dict[Hashable, V] = {}
        self._turned_at = 0.0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: Hashable, now: float) -> V | None:
        self._turn(now)
        found = self._young.get(key)
        return self._old.get(key) if found is None else found

    def set(self, key: Hashable, value: V, now: float) -> None:
        self._turn(now)
        self._young[key] = value
        self._old.pop(key, None)

    def _turn(self, now: float) -> None:
        passed = now - self._turned_at
        if passed >= self._lifetime:
            self._old = {} if passed >= 2 * self._lifetime else self._young
            self._young, self._turned_at = {}, now
