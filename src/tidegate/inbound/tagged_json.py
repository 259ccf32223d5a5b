"""Python data as JSON: what JSON has is written as it is, other types as an object with a tag.

Nothing is imported and no code of an application is called to restore data: a class must be known already.
"""

import dataclasses
import datetime as dt
import enum
import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import cached_property
from math import isfinite
from types import ModuleType
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

TAG: Final = "__tidegate__"  # the key whose value names the type
MAX_DEPTH: Final = 100  # levels
_ADVICE: Final = (
    "Give texts, numbers, True, False, None, dates, times, Decimal, UUID, bytes, enums, and lists, tuples,"
    " sets, dicts and dataclasses of these; no class that is defined within a function"
)
_TAGGED: Final = frozenset({TAG, "value"})
_TAGGED_CLASS: Final = frozenset({TAG, "value", "class"})


class UnstorableError(ValueError):
    """Data hold a value of a type that cannot be written. The text names the first one, and its place."""


class UnknownTypeError(ValueError):
    """Stored data hold a type that this process cannot restore."""


def to_json(data: object, *, ascii_only: bool = False) -> str:
    """Return data as JSON, from which `from_json` makes data that are equal and of the same types.

    Subclasses of str, int, float, list and dict come back as these, unless they are enums or dataclasses.
    Raises UnstorableError.
    """
    try:
        plain = _plain(data, "", 0)
        text = json.dumps(plain, ensure_ascii=ascii_only, allow_nan=False, separators=(",", ":"))
        if TAG in text:
            from_json(text)  # now is the time to learn that a class cannot be restored
    except UnstorableError:
        raise
    except (TypeError, RecursionError, ValueError, AttributeError) as error:
        raise UnstorableError(f"{error}. {_ADVICE}") from error
    return text


def from_json(text: str) -> Any:  # noqa: ANN401  (whatever was stored)
    """Return new data each time. Raises ValueError or RecursionError; UnknownTypeError is a ValueError."""
    if TAG not in text:
        return json.loads(text)
    return json.loads(text, object_hook=_restore)


def _plain(value: Any, path: str, depth: int) -> Any:  # noqa: ANN401  (what JSON has)
    if depth > MAX_DEPTH:
        raise _unstorable(f"it is nested more than {MAX_DEPTH} deep, at {path[:80]!r}…")
    kind = type(value)
    if value is None or kind in {str, int, bool}:
        return value
    if kind in _WRITERS:
        try:
            return {TAG: kind.__name__, "value": _WRITERS[kind](value)}
        except UnknownTypeError as error:
            raise _unstorable(f"{path!r} {error}") from None
    if kind in _COLLECTIONS:
        return {TAG: kind.__name__, "value": _items(value, path, depth)}
    tagged = _with_class(value, path, depth)
    return _subclass_as_base(value, path, depth) if tagged is None else tagged


def _with_class(value: Any, path: str, depth: int) -> dict[str, Any] | None:  # noqa: ANN401
    """Return a value with the name of its class; None if it is of no kind that is restored by its class."""
    content: Any
    if isinstance(value, enum.Enum):
        tag, content = "enum", value.value if isinstance(value, enum.Flag) else value.name
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        tag, content = "dataclass", _plain(_fields_of(value, path), path, depth)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        tag, content = "namedtuple", _items(value, path, depth)
    else:
        return None
    return {TAG: tag, "class": _class_name(type(value), path), "value": content}


def _subclass_as_base(value: Any, path: str, depth: int) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return _plain_dict(value, path, depth)
    if isinstance(value, list):
        return _items(value, path, depth)
    if isinstance(value, float):
        return value if isfinite(value) else {TAG: "float", "value": float.__repr__(value)}
    if isinstance(value, str | int):  # JSON writes the text or the number
        return value
    raise _unstorable(f"{path!r} is of the type {type(value).__name__}")


def _items(values: Iterable[Any], path: str, depth: int) -> list[Any]:
    return [_plain(one, f"{path}[{index}]", depth + 1) for index, one in enumerate(values)]


def _plain_dict(value: dict[Any, Any], path: str, depth: int) -> dict[str, Any]:
    if TAG not in value and not any(map(_needs_tag, value)):
        return {key: _plain(one, f"{path}.{key}" if path else key, depth + 1) for key, one in value.items()}
    pairs = [
        [_plain(key, f"{path}.{key!r}", depth + 1), _plain(one, f"{path}.{key!r}", depth + 1)]
        for key, one in value.items()
    ]
    return {TAG: "dict", "value": pairs}


def _needs_tag(key: object) -> bool:
    """Only texts are keys of JSON; an enum that is a text is more than that."""
    return not isinstance(key, str) or isinstance(key, enum.Enum)


def _fields_of(value: Any, path: str) -> dict[str, Any]:  # noqa: ANN401  (a dataclass)
    names = [field.name for field in dataclasses.fields(value)]
    more = set(getattr(value, "__dict__", ())) - set(names)
    lost = next(
        (n for n in sorted(more) if not isinstance(getattr(type(value), n, None), cached_property)), None
    )
    if lost is not None:
        raise _unstorable(f"{path!r} has an attribute {lost!r}, which is no field of {type(value).__name__}")
    return {name: getattr(value, name) for name in names}


def _class_name(kind: type, path: str) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    try:
        if _find_class(name) is kind:
            return name
    except UnknownTypeError:
        pass
    raise _unstorable(
        f"{path!r} is of the class {kind.__qualname__}, which a restart could not find by its name"
    )


def _unstorable(text: str) -> UnstorableError:
    return UnstorableError(f"{text}. {_ADVICE}")


def _write_datetime(value: dt.datetime | dt.time) -> object:
    zone = value.tzinfo
    if zone is None or type(zone) is dt.timezone:
        return [value.isoformat(), value.fold, None] if value.fold else value.isoformat()
    if isinstance(zone, ZoneInfo) and zone.key is not None:
        return [value.replace(tzinfo=None).isoformat(), value.fold, zone.key]
    raise UnknownTypeError(f"has a time zone of the type {type(zone).__name__}: use datetime.UTC or ZoneInfo")


_WRITERS: Final[dict[type, Callable[[Any], object]]] = {
    dt.datetime: _write_datetime,
    dt.time: _write_datetime,
    dt.date: dt.date.isoformat,
    dt.timedelta: lambda value: [value.days, value.seconds, value.microseconds],
    Decimal: str,
    UUID: str,
    bytes: lambda value: b64encode(value).decode(),
}
_COLLECTIONS: Final = frozenset({tuple, set, frozenset})


def _restore(found: dict[str, Any]) -> Any:  # noqa: ANN401  (of the type that the tag names)
    keys = found.keys()
    if keys not in (_TAGGED, _TAGGED_CLASS) or not isinstance(tag := found[TAG], str):
        return found  # as an earlier version wrote it
    if tag not in (_CLASS_READERS if "class" in found else _READERS):
        raise UnknownTypeError(f"it holds a {tag!r}, which this version of Tidegate does not know")
    try:
        if "class" in found:
            return _CLASS_READERS[tag](_find_class(found["class"]), found["value"])
        return _READERS[tag](found["value"])
    except UnknownTypeError:
        raise
    except (TypeError, ValueError, KeyError, ArithmeticError, AttributeError, OSError) as error:
        raise UnknownTypeError(f"it holds a {tag} that cannot be restored: {error!r}") from error


def _find_class(name: str) -> type:
    """Return a class that this process has imported. Runs no code, and imports nothing."""
    module, _, qualname = name.partition(":")
    found: object = sys.modules.get(module)
    for part in qualname.split("."):
        found = vars(found).get(part) if isinstance(found, ModuleType | type) else None
    if not isinstance(found, type):
        raise UnknownTypeError(f"it holds a {name}, a class that this process has not imported")
    return found


def _read_time(kind: type[dt.datetime] | type[dt.time], value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return kind.fromisoformat(value)
    text, fold, zone = value
    found = kind.fromisoformat(text).replace(fold=fold)
    return found if zone is None else found.replace(tzinfo=ZoneInfo(zone))


def _read_enum(kind: type, value: Any) -> Any:  # noqa: ANN401
    if issubclass(kind, enum.Flag):
        return kind(int(value))
    if not issubclass(kind, enum.Enum):
        raise TypeError(f"{kind.__qualname__} is no enum")
    return kind.__members__[value]


def _read_namedtuple(kind: type, value: Any) -> Any:  # noqa: ANN401
    if not issubclass(kind, tuple) or len(kind._fields) != len(value):  # type: ignore[attr-defined]
        raise TypeError(f"{kind.__qualname__} is no named tuple of {len(value)}")
    return tuple.__new__(kind, value)


def _read_dataclass(kind: type, value: Any) -> Any:  # noqa: ANN401
    """Fields that the class has gained have their defaults; those that it has lost are left out."""
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind.__qualname__} is no dataclass")
    made = object.__new__(kind)  # as `copy` does: neither __init__ nor __post_init__ runs again
    for field in dataclasses.fields(kind):
        if field.name in value:
            content = value[field.name]
        elif field.default is not dataclasses.MISSING:
            content = field.default
        elif field.default_factory is not dataclasses.MISSING:
            content = field.default_factory()
        else:
            raise TypeError(f"{kind.__qualname__} has a field {field.name!r} by now, without a default")
        object.__setattr__(made, field.name, content)
    return made


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "datetime": lambda value: _read_time(dt.datetime, value),
    "time": lambda value: _read_time(dt.time, value),
    "date": dt.date.fromisoformat,
    "timedelta": lambda value: dt.timedelta(*value),
    "Decimal": Decimal,
    "UUID": UUID,
    "bytes": lambda value: b64decode(value, validate=True),
    "float": float,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
}
_CLASS_READERS: Final[dict[str, Callable[[type, Any], Any]]] = {
    "enum": _read_enum,
    "dataclass": _read_dataclass,
    "namedtuple": _read_namedtuple,
}
