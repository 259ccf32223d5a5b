"""Parameters as Telegram takes them: JSON, or a form where there are files to upload. Files are only named
here; whoever sends reads them.
"""

import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import PurePath
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.delivery.file_ids import KINDS
from tidegate.errors import BadInputError
from tidegate.model import File

_encode = msgspec.json.Encoder().encode
_UNSAFE = re.compile(r'[\x00-\x1f"\\\x7f]')
_REUSING: Final = ("send", "editmessagemedia")  # setChatPhoto and others take uploads only


class Spot(NamedTuple):
    """A file in the parameters. `kind`: as what Telegram may know it again, `place`: in an album."""

    file: File
    kind: str | None
    place: int


class Disk(NamedTuple):
    """A file on disk as it was when it was looked at."""

    path: str
    size: int
    modified: int  # ns


Part = bytes | Disk


def files_in(method: str, params: Mapping[str, Any]) -> list[Spot]:
    """Every file, in the order in which `replace_files` meets them."""
    spots = [spot for key, value in params.items() for spot in _walk(key, value, 0)]
    if spots and not method.lower().startswith(_REUSING):
        return [spot._replace(kind=None) for spot in spots]
    return spots


def _walk(kind: object, value: object, place: int) -> Iterator[Spot]:
    if isinstance(value, File):
        yield Spot(value, kind if isinstance(kind, str) and kind in KINDS else None, place)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(value.get("type") if key == "media" else None, item, place)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield from _walk(None, item, at)


def replace_files(value: object, names: Iterator[str]) -> object:
    """The same value with the next name in place of each file."""
    if isinstance(value, File):
        return next(names)
    if isinstance(value, dict):
        return {key: replace_files(item, names) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_files(item, names) for item in value]
    return value


def as_json(params: Mapping[str, Any]) -> bytes:
    return _encoded({key: value for key, value in params.items() if value is not None})


def look_at(file: File) -> tuple[Part, tuple[object, ...]]:
    """What to send, and what tells this content from any other. Blocks: for a thread."""
    if file.content is not None:
        return file.content, (file.name, sha256(file.content).digest())
    if file.path is None:
        raise BadInputError("a file has neither a path nor content: give one of them")
    try:
        # Opened too, as a directory or a file of somebody else has a state as well.
        with open(file.path, "rb") as opened:  # noqa: PTH123  (fstat of what was opened, no race)
            state = os.fstat(opened.fileno())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no valid path"
        raise BadInputError(f"the file {file.path!r} cannot be uploaded: {reason}") from None
    disk = Disk(file.path, state.st_size, state.st_mtime_ns)
    return disk, (file.name, *disk)


def as_form(params: Mapping[str, Any], uploads: Sequence[tuple[str, File, Part]]) -> tuple[str, list[Part]]:
    """The content type and the parts of a multipart body. Each upload goes under its name."""
    boundary = secrets.token_hex(16)
    parts: list[Part] = []
    text = bytearray()
    for key, value in params.items():
        if value is not None:
            content = value.encode() if isinstance(value, str) else _encoded(value)
            text += _head(boundary, f'name="{_quoted(key)}"') + content + b"\r\n"
    for name, file, part in uploads:
        shown = file.name or (PurePath(file.path).name if file.path else name)
        text += _head(boundary, f'name="{name}"; filename="{_quoted(shown)}"')
        parts += [bytes(text), part]
        text = bytearray(b"\r\n")
    parts.append(bytes(text + f"--{boundary}--\r\n".encode()))
    return f"multipart/form-data; boundary={boundary}", parts


def _head(boundary: str, disposition: str) -> bytes:
    return f"--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode()


def _quoted(name: str) -> str:
    """As browsers write it: raw UTF-8, with what would end the header as %XX."""
    clean = name.encode("utf-8", "replace").decode()
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", clean)


def _encoded(value: object) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"the parameters cannot be sent as JSON: {error}") from None
