"""Conversations (FSM state and data of a chat): the record, and its data as JSON."""

import json
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Final

from aiogram.exceptions import DataNotDictLikeError

from tidegate.errors import BadInputError

_MAX_DEPTH: Final = 100  # levels, of which a path is told
_ADVICE: Final = "Give texts, finite numbers, True, False, None, lists, and dicts whose keys are texts"

# As aiogram's other storages do: subclasses of texts and numbers, such as enums, come back as plain ones.
_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_decode: Final = json.JSONDecoder().decode


def pack_data(data: Mapping[str, Any]) -> bytes | None:
    """None if there is nothing. A tuple comes back as a list. Raises BadInputError that names the field."""
    if not isinstance(data, Mapping):
        raise DataNotDictLikeError(f"Data must be a dict or dict-like object, got {type(data).__name__}")
    plain = dict(data)
    if not plain:
        return None
    try:
        text = _encode(plain)
        if _decode(text) != plain and (misfit := _find_unstorable(plain, "")):
            raise _refusal(misfit)
    except (TypeError, RecursionError, ValueError) as error:
        if isinstance(error, BadInputError):
            raise
        raise _refusal(_find_unstorable(plain, "") or str(error)) from error
    return text.encode(errors="surrogatepass")  # half a pair is no character, yet people's texts have some


def _refusal(misfit: str) -> BadInputError:
    return BadInputError(f"the data of a conversation cannot be kept: {misfit}. {_ADVICE}")


def unpack_data(body: bytes | None) -> dict[str, Any]:
    """A new one each time: whoever gets it may change it."""
    data: dict[str, Any] = {} if body is None else _decode(body.decode(errors="surrogatepass"))
    return data


def _find_unstorable(value: object, path: str, depth: int = 0) -> str | None:
    """The first thing that JSON has no word for, and where it is."""
    if depth > _MAX_DEPTH:
        return f"it is nested more than {_MAX_DEPTH} deep, at {path[:80]!r}…"
    if isinstance(value, dict):
        found: Iterable[str | None] = (
            _find_unstorable(one, f"{path}.{key}" if path else key, depth + 1)
            if isinstance(key, str)
            else f"a key of {path or 'the data'!r} is {key!r}, no text"
            for key, one in value.items()
        )
        return next(filter(None, found), None)
    if isinstance(value, list | tuple):
        found = (_find_unstorable(one, f"{path}[{place}]", depth + 1) for place, one in enumerate(value))
        return next(filter(None, found), None)
    if isinstance(value, float):
        return None if isfinite(value) else f"{path!r} is {value}"
    if value is None or isinstance(value, str | int):
        return None
    return f"{path!r} is of the kind {type(value).__name__}"
