"""A blocking call inside a coroutine raises `BlockingError`, except where it may block.

BlockBuster looks for the functions that may block by the names of each frame of the stack, for each call that
could block: a tenth of the CPU of all tests. The same is decided here once for each function of a program.
"""

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from types import CodeType
from typing import Any

from blockbuster import BlockBuster
from blockbuster.blockbuster import BlockBusterFunction

Rules = tuple[tuple[str, frozenset[str]], ...]
Known = dict[
    int, tuple[CodeType, bool]
]  # by id: a code object takes long to hash, and stays as it is kept here

_known: dict[Rules, Known] = {}


class BlockingCalls(AbstractContextManager[BlockBuster]):
    """Of one test, which may say where else it blocks (`can_block_in`), also when this is entered."""

    def __init__(self) -> None:
        self._guard = BlockBuster()
        for function in self._guard.functions.values():
            function.can_block_predicate = _may_block(function)

    def __enter__(self) -> BlockBuster:
        self._guard.activate()
        return self._guard

    def __exit__(self, *_: object) -> None:
        self._guard.deactivate()


def _may_block(function: BlockBusterFunction) -> Callable[..., bool]:
    """What BlockBuster asks before it looks through the stack itself, to say no."""
    usual, allowed = function.can_block_predicate, function.can_block_functions
    known: Known = {}
    rules_read = -1

    def may_block(*args: Any, **options: Any) -> bool:  # noqa: ANN401  (those of the blocking function)
        nonlocal known, rules_read
        if usual(*args, **options):
            return True
        if rules_read != len(allowed):
            known, rules_read = _known.setdefault(_rules(allowed), {}), len(allowed)
        frame = sys._getframe(1)  # noqa: SLF001  (as `inspect.currentframe`)
        while frame is not None:
            code = frame.f_code
            found = known.get(id(code))
            if found is None:
                found = known[id(code)] = (code, _is_allowed(code, allowed))
            if found[1]:
                return True
            frame = frame.f_back  # type: ignore[assignment]
        return False

    return may_block


def _rules(allowed: list[tuple[str, Iterable[str]]]) -> Rules:
    return tuple((file, frozenset(names)) for file, names in allowed)


def _is_allowed(code: CodeType, allowed: list[tuple[str, Iterable[str]]]) -> bool:
    file = code.co_filename.replace("\\", "/")
    return any(file.endswith(name) and code.co_name in functions for name, functions in allowed)
