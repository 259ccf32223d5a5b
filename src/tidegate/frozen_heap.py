"""Keeps what exists when a process begins to serve out of garbage collections.

A process with a bot library has half a million objects that stay. A full collection looks at each of them,
and the event loop stands still for a quarter of a second meanwhile, again and again, with nothing to find.
"""

import gc
from typing import Final


class FrozenHeap:
    """Of this process. What is frozen is freed as always when its last reference goes, but not searched.

    If the application has frozen objects itself, they stay frozen in the end.
    """

    def __init__(self) -> None:
        self._holders = 0
        self._is_ours = False

    def hold(self) -> None:
        """Freeze what exists now. Each call needs its `release`. Takes no time."""
        if self._holders == 0:
            self._is_ours = gc.get_freeze_count() == 0
        self._holders += 1
        gc.freeze()

    def add(self) -> None:
        """Freeze also what was imported and opened since then, if this is held."""
        if self._holders:
            gc.freeze()

    def release(self) -> None:
        """The last one lets the collector see everything again."""
        self._holders -= 1
        if self._holders == 0 and self._is_ours:
            gc.unfreeze()


frozen_heap: Final = FrozenHeap()
