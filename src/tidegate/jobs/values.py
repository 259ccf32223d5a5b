"""Values that jobs take and return: those that another process gets as they are."""

import math
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
_decoder: Final = msgspec.msgpack.Decoder(ext_hook=unpack_file)


def check_storable(value: object, place: str, depth: int = 0) -> None:
    """Raise BadInputError, which names the place, for a value that another process would not get as it is."""
    if depth > DEEPEST:
        raise BadInputError(f"{place} is nested too deeply: {_ADVICE}")
    match value:
        case None | bool() | bytes() | File():
            pass
        case str() | int() | float():
            if (trouble := _trouble_with(value)) is not None:
                raise BadInputError(f"{place} {trouble}")
        case list() | tuple():
            for at, item in enumerate(value):
                check_storable(item, f"{place}[{at}]", depth + 1)
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise BadInputError(f"{place} has the key {key!r}: give texts as keys")
                check_storable(item, f"{place}[{key!r}]", depth + 1)
        case _:
            kind = type(value).__name__
            raise BadInputError(f"{place} is of type {kind}, which cannot be stored: {_ADVICE}")


def _trouble_with(value: str | float) -> str | None:
    if isinstance(value, int) and not -LARGEST_INTEGER <= value < LARGEST_INTEGER:
        return "is a number of more than 64 bits: give it as a text"
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}, which is not a number"
    if isinstance(value, str) and value != value.encode(errors="replace").decode():
        return "holds half a character, which cannot be stored"
    return None


def pack_values(value: object) -> bytes:
    return msgspec.msgpack.encode(with_files_packed(value))


def unpack_values(data: bytes) -> Any:  # noqa: ANN401  (the caller's)
    """The reverse of `pack_values`. A tuple comes back as a list."""
    return _decoder.decode(data)
