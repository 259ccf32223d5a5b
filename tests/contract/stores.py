"""The stores under contract. A new one is one more line in `STORES`."""

from typing import Final, Protocol

from tidegate.clock import Clock
from tidegate.outbox.base import Outbox
from tidegate.outbox.memory import MemoryOutbox
from tidegate.pacing.rules import Rules


class Store(Protocol):
    """How a store is made: not opened yet, empty, with time from `clock`."""

    def __call__(self, clock: Clock, rules: Rules, *, lease: float, keep: float) -> Outbox: ...


def memory(clock: Clock, rules: Rules, *, lease: float, keep: float) -> Outbox:
    return MemoryOutbox(clock, rules, lease=lease, keep=keep)


STORES: Final[dict[str, Store]] = {"memory": memory}
