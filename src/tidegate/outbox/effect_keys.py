"""Dedup keys of messages that a handler puts, so that a handler that runs again puts nothing twice."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec


class EffectKeys:
    """The keys of one cause. Two equal messages have two keys; two different ones never have the same."""

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
    """Give keys to the messages that the handler of this cause puts. Tasks that outlive it get none."""
    effects = EffectKeys(cause)
    before = _handling.set(effects)
    try:
        yield
    finally:
        effects.open = False
        _handling.reset(before)


def in_handler() -> bool:
    """Return whether this runs inside `effect_keys_for`."""
    return _handling.get() is not None


def effect_key(content: Any) -> str | None:  # noqa: ANN401  (whatever a message is made of)
    """The dedup key of a message that is put now; None outside of a handler."""
    effects = _handling.get()
    return effects.key_of(content) if effects is not None and effects.open else None
