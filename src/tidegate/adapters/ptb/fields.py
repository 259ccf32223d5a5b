"""The parameters of a call as values that can be stored: python-telegram-bot passes its own objects on."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from telegram import InputFile, TelegramObject

from tidegate.errors import BadInputError
from tidegate.model import File


def plain(data: Mapping[str, object]) -> dict[str, Any]:
    """Every value as it is sent, files as `File`. Blocks where it reads an open file: for a thread."""
    return {name: _plain(name, value) for name, value in data.items() if value is not None}


def _plain(name: str, value: object) -> object:  # noqa: PLR0911  (one for each kind)
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | float() | str():
            return value
        case InputFile():
            return _file(name, value)
        case TelegramObject():
            return plain(value.to_dict())
        case Mapping():
            return plain(value)
        case datetime():
            return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
        case timedelta():
            seconds = value.total_seconds()
            return int(seconds) if seconds.is_integer() else seconds
        case Sequence() if not isinstance(value, bytes | bytearray | memoryview):
            return [_plain(name, item) for item in value]
        case _:
            kind = type(value).__name__
            raise BadInputError(f"{name} holds a {kind}, which cannot be queued: give a file as InputFile")


def _file(name: str, file: InputFile) -> File:
    content = file.input_file_content
    if isinstance(content, bytes):
        return File(content=content, name=file.filename)
    try:
        content.seek(0)  # as the library's own client does
        return File(content=content.read(), name=file.filename)
    except (OSError, ValueError) as error:
        raise BadInputError(f"{name} is a file that cannot be read to be queued: {error}") from None
