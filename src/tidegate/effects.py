"""Effects once: what a handler puts into the outbox is known again when it handles the same thing again.

An update whose handler died half-way is handled from the start; so is the news that a subscriber was being
told. What was put before is in the outbox already: the same message, put for the same cause, gets the same
dedup key.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec


class Effects:
    """Of one cause. Two messages that are alike have two keys, and two that differ never have the same."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._put: Counter[str] = Counter()
        self.open = True

    def key_of(self, content: object) -> str:
        encoded = msgspec.msgpack.encode(content, enc_hook=repr)
        digest = hashlib.blake2b(encoded, digest_size=12).hexdigest()
        self._put[digest] += 1
        return f"{self._scope}:{digest}:{self._put[digest]}"


_handling: ContextVar[Effects | None] = ContextVar("tidegate_effects", default=None)


@contextmanager
def effects_of(cause: str) -> Iterator[None]:
    """Around a handler of what has this name, which no other cause has. What outlives it, in a task of its
    own, has no part in this.
    """
    effects = Effects(cause)
    before = _handling.set(effects)
    try:
        yield
    finally:
        effects.open = False
        _handling.reset(before)


def is_in_hand() -> bool:
    """Whether this runs in such a handler."""
    return _handling.get() is not None


def key_for(content: Any) -> str | None:  # noqa: ANN401  (whatever a message is made of)
    """The dedup key of something that is put now: None outside of a handler."""
    effects = _handling.get()
    return effects.key_of(content) if effects is not None and effects.open else None
