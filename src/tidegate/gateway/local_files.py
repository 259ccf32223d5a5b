"""Finds paths of the server's own files in the parameters of a call.

A Bot API server of one's own, started with --local, takes `file:///etc/passwd` where a file belongs, and
sends that file of its disk. A client of the gateway has no business there.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from tidegate.gateway.answers import CANNOT_PARSE, bad_request

_OPTIONS: Final = "options"  # of a poll: JSON, in which an option may have a photo of its own
# Parameters whose texts are never a file, at any depth: they may begin with anything.
_TEXTS: Final = frozenset(
    (
        "callback_data",
        "caption",
        "description",
        "explanation",
        "name",
        _OPTIONS,
        "payload",
        "query",
        "question",
        "text",
        "title",
    )
)
_LOCAL: Final = "file:/"
_MAYBE: Final = (b"file:", b"\\u")  # one of these is in JSON that names a local file: \u0066 is an f


class _Object(list[tuple[str, Any]]):
    """An object of JSON, with all of its pairs: of two with one name, servers take the first or the last."""


def check_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Raise ApiRefusal if a parameter of a form or query names a local file."""
    for name, value in pairs:
        _check(name, value)


def check_json(body: bytes) -> None:
    """Raise ApiRefusal if a parameter of a JSON object names a local file. Most need no second look."""
    lower = body.lower()
    if any(sign in lower for sign in _MAYBE):
        found = _decode(body.decode("utf-8", "replace"))
        if not isinstance(found, _Object):
            raise bad_request(CANNOT_PARSE)
        for name, value in found:
            _check(name, value)


def _check(name: str, value: object) -> None:
    found: object = value
    is_json = name == _OPTIONS or name not in _TEXTS
    if isinstance(value, str) and is_json and value.lstrip()[:1] in {"[", "{"}:
        found = _decode(value)
        if found is None and any(sign.decode() in value.lower() for sign in _MAYBE):
            raise bad_request(f"can't parse {_shown(name)}: it is no valid JSON")
    if _names_local_file(name, found):
        raise bad_request(
            f"{_shown(name)} names a file of the server: upload it, or give a file_id or an HTTP URL"
        )


def _names_local_file(name: str, value: object) -> bool:
    if isinstance(value, str):
        return name not in _TEXTS and value.lstrip()[: len(_LOCAL)].lower() == _LOCAL
    if isinstance(value, _Object):
        return any(_names_local_file(key, item) for key, item in value)
    return isinstance(value, list) and any(_names_local_file(name, item) for item in value)


def _decode(text: str) -> Any:  # noqa: ANN401  (JSON)
    try:
        # Control characters in texts are no valid JSON, but some servers take them.
        return json.loads(text, object_pairs_hook=_Object, strict=False, parse_int=float)
    except (ValueError, RecursionError):
        return None


def _shown(name: str) -> str:
    return name if len(name) <= 64 and name.isidentifier() else "a parameter"  # noqa: PLR2004
