"""Whether a call carries files: those take their time on the way."""

import functools
from typing import Any

from aiogram.methods import TelegramMethod
from aiogram.types import InputFile, TelegramObject


def uploads(method: TelegramMethod[Any]) -> bool:
    return any(_holds_file(getattr(method, field)) for field in _may_hold_files(type(method)))


@functools.cache
def _may_hold_files(kind: type[TelegramMethod[Any]]) -> tuple[str, ...]:
    """Told by its types: most methods have no such field, and cost nothing."""
    return tuple(name for name, field in kind.model_fields.items() if "Input" in str(field.annotation))


def _holds_file(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_holds_file, value))
    if isinstance(value, TelegramObject):
        return any(_holds_file(inner) for _, inner in value)
    return isinstance(value, InputFile)
