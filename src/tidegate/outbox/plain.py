"""Objects of bot libraries as values that can be sent and stored: a keyboard given to `send`, for instance.

The libraries are known by what their objects can do, as none of them need be installed.
"""

import datetime as dt
from collections.abc import Mapping
from enum import Enum
from typing import Any

from tidegate.errors import BadInputError
from tidegate.model import File


def plain(value: object) -> Any:  # noqa: ANN401, PLR0911  (one line for each kind)
    """What JSON has, and files. Raises BadInputError for what cannot be made so."""
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | float() | str() | File():
            return value
        case Mapping():
            return {key: made for key, item in value.items() if (made := plain(item)) is not None}
        case list() | tuple():
            return [plain(item) for item in value]
        case dt.datetime():
            return round(value.timestamp())
    for method in ("to_dict", "model_dump"):  # python-telegram-bot's objects, and aiogram's
        if callable(dump := getattr(value, method, None)):
            return plain(dump())
    if type(value).__module__.partition(".")[0] == "aiogram" and type(value).__name__ == "Default":
        return None  # what the bot has set for all: not known here
    raise BadInputError(
        f"a {type(value).__name__} cannot be sent as JSON: give plain values, and files as tidegate.File"
    )
