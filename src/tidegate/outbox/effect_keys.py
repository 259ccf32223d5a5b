"""Dedup keys of messages that a handler puts, so that a handler that runs again puts nothing twice."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec


class EffectKeys:
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


_handling: ContextVar[EffectKeys | None] = ContextVar("tidegate_effects", default=None)


@contextmanager
def effect_keys_for(cause: str) -> Iterator[None]:
    """Around a handler of what has this name, which no other cause has. What outlives it, in a task of its
    own, has no part in this.
    """
    effects = EffectKeys(cause)
    before = _handling.set(effects)
    try:
        yield
    finally:
        effects.open = False
        _handling.reset(before)


def in_handler() -> bool:
    """Whether this runs in such a handler."""
    return _handling.get() is not None


def effect_key(content: Any) -> str | None:  # noqa: ANN401  (whatever a message is made of)
    """The dedup key of something that is put now: None outside of a handler."""
    effects = _handling.get()
    return effects.key_of(content) if effects is not None and effects.open else None
