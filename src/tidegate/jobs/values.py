"""Values that jobs take and return: those that another process gets as they are."""

import math
import reprlib
from enum import Enum
from os import PathLike, fspath
from typing import Any, Final

import msgspec

from tidegate.errors import BadInputError
from tidegate.file_codec import unpack_file, with_files_packed
from tidegate.model import File

LARGEST_INTEGER: Final = 2**63
DEEPEST: Final = 50  # levels
_ADVICE: Final = (
    "give texts, numbers, bytes, lists, dictionaries or tidegate.File, such as an id to look it up by"
)
# Not the classes below them, such as numbers of NumPy: they would come back as something else.
_PLAIN_TYPES: Final = (str, int, float, bool, bytes, type(None))
_decoder: Final = msgspec.msgpack.Decoder(ext_hook=unpack_file)


def check_storable(value: object, place: str, depth: int = 0) -> None:
    """Raise BadInputError, which names the place, for a value that another process would not get as it is.

    A tuple becomes a list, a member of a StrEnum or IntEnum its value, and the path of a file absolute.
    """
    if depth > DEEPEST:
        shown = place.partition("[")[0]
        raise BadInputError(
            f"{shown} is nested too deeply: {DEEPEST} lists or dictionaries in each other at most"
        )
    match value:
        case list() | tuple():
            for at, item in enumerate(value):
                check_storable(item, f"{place}[{at}]", depth + 1)
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise BadInputError(f"{place} has the key {reprlib.repr(key)}: give texts as keys")
                check_storable(str(key), f"a key of {place}", depth + 1)
                check_storable(item, f"{place}[{reprlib.repr(key)}]", depth + 1)
        case File():
            if not _is_whole(value):
                raise BadInputError(f"{place} is a File of another kind: give a path, or bytes as content")
        case _:
            if (trouble := _trouble_with(value)) is not None:
                raise BadInputError(f"{place} {trouble}")


def _is_whole(file: File) -> bool:
    path: object = file.path  # a File does not check what it is made of
    path = fspath(path) if isinstance(path, PathLike) else path
    texts = all(
        part is None or (isinstance(part, str) and not _trouble_with(part)) for part in (path, file.name)
    )
    return texts and (path is not None or type(file.content) is bytes)


def _trouble_with(value: object) -> str | None:
    if isinstance(value, Enum) and isinstance(value, str | int | float):
        value = value.value
    if type(value) not in _PLAIN_TYPES:
        return f"is of type {type(value).__name__}, which cannot be stored: {_ADVICE}"
    if isinstance(value, int) and not -LARGEST_INTEGER <= value < LARGEST_INTEGER:
        return "is a number of more than 64 bits: give it as a text"
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}, which is not a finite number"
    if isinstance(value, str) and value != value.encode(errors="replace").decode():
        return "holds half a character, which cannot be stored"
    return None


def pack_values(value: object) -> bytes:
    return msgspec.msgpack.encode(with_files_packed(value))


def unpack_values(data: bytes) -> Any:  # noqa: ANN401  (the caller's)
    """The reverse of `pack_values`. A tuple comes back as a list."""
    return _decoder.decode(data)
