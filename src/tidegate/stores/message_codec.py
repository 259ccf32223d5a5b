"""Messages as bytes, for stores outside of this process, and back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate.model import File, Message

_FLAT: Final = frozenset({str, int, float, bool, type(None)})
_FILE: Final = 1  # the extension type of a file within parameters


def pack(message: Message) -> bytes:
    params = message.params
    if not _FLAT.issuperset(map(type, params.values())):  # else there is no file in it
        message = msgspec.structs.replace(message, params=_with_files_packed(params))
    return encode(message)


def unpack(body: bytes) -> Message:
    return _decoder.decode(body)


def _with_files_packed(value: Any) -> Any:  # noqa: ANN401  (as JSON)
    """A file is an extension type: as a plain structure it would come back as a dictionary."""
    if isinstance(value, File):
        if value.path is not None:  # the sender may run in another folder
            value = msgspec.structs.replace(value, path=str(Path(value.path).absolute()))
        return msgspec.msgpack.Ext(_FILE, encode(value))
    if isinstance(value, Mapping):
        return {name: _with_files_packed(item) for name, item in value.items()}
    return [_with_files_packed(item) for item in value] if isinstance(value, list | tuple) else value


def _file(code: int, data: memoryview) -> File:
    if code != _FILE:
        raise ValueError(f"extension type {code} is not known")
    return msgspec.msgpack.decode(data, type=File)


encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Message, ext_hook=_file)
