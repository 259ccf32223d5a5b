"""Keeps what exists when a process begins to serve out of garbage collections.

A process with a bot library has half a million objects that stay. A full collection looks at each of them,
and the event loop stands still for a quarter of a second meanwhile, again and again, with nothing to find.

Calls under way are thousands of objects, which soon go by themselves. With Python's threshold they are
searched again and again: with a hundred calls at a time, that is a twentieth of the CPU of the gateway.
"""

import gc
from typing import Final

NEW_OBJECTS: Final = 10_000  # made and not freed, before they are searched; Python's default is 700 or 2,000


class FrozenHeap:
    """Of this process. What is frozen is freed as always when its last reference goes, but not searched.

    If the application has frozen objects itself, they stay frozen in the end. If it has a higher threshold of
    its own, or none, that stays, too.
    """

    def __init__(self) -> None:
        self._holders = 0
        self._is_ours = False
        self._thresholds = self._raised = gc.get_threshold()

    def hold(self) -> None:
        """Freeze what exists now. Each call needs its `release`. Takes no time."""
        if self._holders == 0:
            self._is_ours = gc.get_freeze_count() == 0
            self._raise_threshold()
        self._holders += 1
        gc.freeze()

    def add(self) -> None:
        """Freeze also what was imported and opened since then, if this is held."""
        if self._holders:
            gc.freeze()

    def release(self) -> None:
        """The last one lets the collector see everything again."""
        self._holders -= 1
        if self._holders:
            return
        if self._is_ours:
            gc.unfreeze()
        if gc.get_threshold() == self._raised:
            gc.set_threshold(*self._thresholds)

    def _raise_threshold(self) -> None:
        self._thresholds = self._raised = gc.get_threshold()
        new, middle, old = self._thresholds
        if 0 < new < NEW_OBJECTS:
            self._raised = NEW_OBJECTS, middle, old
            gc.set_threshold(*self._raised)


frozen_heap: Final = FrozenHeap()
