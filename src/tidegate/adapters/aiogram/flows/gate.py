"""The gate that a flow's bot needs, and the one it has if none is given."""

import importlib
from collections.abc import Callable
from typing import Protocol, cast

from aiogram.fsm.storage.base import BaseStorage

from tidegate.flows.executor.ports import Gate


class BotGate(Gate, Protocol):
    """`Tidegate`, as seen from below."""

    @property
    def is_open(self) -> bool: ...

    @property
    def companion(self) -> object | None:
        """The dispatchers that are attached."""

    @property
    def attach(self) -> Callable[..., None]:
        """To a dispatcher and its bots."""
        ...

    def token_of(self, bot: int) -> str | None: ...

    def fsm_storage(self) -> BaseStorage:
        """In the gate's file. Raises BadInputError if it has none."""
        ...


def usual_gate() -> BotGate:
    """On TIDEGATE_STORE. What puts it together is above this, and found when it is asked for."""
    return cast("BotGate", importlib.import_module("tidegate").Tidegate())
