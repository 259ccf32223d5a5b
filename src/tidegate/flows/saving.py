"""What is kept of an event in the data of a session: as JSON has it, so that a restart changes nothing."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tidegate.flows.model import Save


def kept(save: Save, value: object) -> dict[str, Any]:
    """Raises ValueError that says what is missing, or cannot be written as JSON."""
    if isinstance(save, str):
        return {save: as_json_has_it(save, value)}
    return {name: as_json_has_it(name, _field(value, name)) for name in save}


def as_json_has_it(name: str, value: object) -> Any:  # noqa: ANN401  (whatever it is)
    """Keeping a tuple and reading a list would make two sessions of one."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"{name} cannot be kept, since JSON has no such value: {error}") from error


def _field(value: object, name: str) -> object:
    if not isinstance(value, Mapping):
        raise ValueError(f"to keep {name} a table of fields was expected, not {type(value).__name__}")  # noqa: TRY004  (one kind for the caller)
    if name not in value:
        raise ValueError(
            f"{name} is to be kept, but not among what came: {', '.join(map(str, value)) or 'nothing'}"
        )
    return value[name]
