"""A request from what a caller gives: checked, spelled one way, its body fixed as it is now."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from tidegate.errors import BadInputError
from tidegate.upstream.retrying import IDEMPOTENT
from tidegate.upstream.wire import Request

METHODS: Final = IDEMPOTENT | {"POST", "PATCH"}
_UNSENDABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_HALF = re.compile(r"[\ud800-\udfff]")  # of a character

# A dict of texts and numbers, or pairs of a name and one of these.
Query = Mapping[str, object] | Iterable[tuple[str, str | int | float]]


def made(method: str, path: str, query: Query = (), body: Any = None) -> Request:  # noqa: ANN401  (JSON)
    """Raises BadInputError for what cannot be sent, or would be read as something else."""
    return Request(method=_method(method), path=_path(path), query=_query(query), body=_body(body))


def _method(given: object) -> str:
    method = given.upper() if isinstance(given, str) else ""
    if method not in METHODS:
        raise BadInputError(f"{given!r:.60} is not a method that is known here: {', '.join(sorted(METHODS))}")
    return method


def _path(given: object) -> str:
    if not isinstance(given, str) or _UNSENDABLE.search(given):
        raise BadInputError(f"{given!r:.60} is no path: give a text such as api/v2/orders")
    if "?" in given or "#" in given or "://" in given:
        raise BadInputError("a path goes without address and query: give those to the wire and as `query`")
    parts = [part for part in given.split("/") if part]
    if "." in parts or ".." in parts:
        raise BadInputError(f"{given!r:.60}: a path goes without . and .., which lead elsewhere")
    return "/".join(parts)


def _query(given: object) -> tuple[tuple[str, str], ...]:
    pairs = given.items() if isinstance(given, Mapping) else given
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise BadInputError(f"{given!r:.60} is no query: give a dict, or pairs of a name and a value")
    return tuple(map(_pair, pairs))


def _pair(given: object) -> tuple[str, str]:
    match given:
        case (str(name), bool()):
            raise BadInputError(f"{name!r:.60} in a query: write true and false as the API spells them")
        case (str(name), str() | int() | float() as value) if not _HALF.search(f"{name}{value}"):
            return name, str(value)
        case _:
            raise BadInputError(
                f"{given!r:.60} cannot stand in a query: give pairs of a name and a text or number"
            )


def _body(given: Any) -> msgspec.Raw | None:  # noqa: ANN401
    """Encoded here, once: what the caller changes later is not sent."""
    try:
        return None if given is None else msgspec.Raw(msgspec.json.encode(given))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"a body is sent as JSON, which this one cannot be: {error}") from error
