"""Keeps what exists when a process begins to serve out of garbage collections.

A process with a bot library has half a million objects that stay. A full collection looks at each of them,
and the event loop stands still for a quarter of a second meanwhile, again and again, with nothing to find.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

NEW_OBJECTS: Final = 10_000  # made and not freed, before they are searched; Python's default is 700 or 2,000


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


@contextmanager
def rare_searches() -> Iterator[None]:
    """Search new objects for garbage more rarely while a server runs, in a process that is a server.

    Requests under way are thousands of objects, which soon go by themselves. With Python's threshold they are
    searched again and again. If the application has a higher threshold of its own, or none, that stays.
    """
    before = gc.get_threshold()
    raised = (NEW_OBJECTS, *before[1:]) if 0 < before[0] < NEW_OBJECTS else before
    gc.set_threshold(*raised)
    try:
        yield
    finally:
        if gc.get_threshold() == raised:
            gc.set_threshold(*before)
