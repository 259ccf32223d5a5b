"""Files within values that are stored as MessagePack."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate.model import File

_FILE: Final = 1  # the extension type of a file


def with_files_packed(value: Any) -> Any:  # noqa: ANN401  (as JSON)
    """A file is an extension type: as a plain structure it would come back as a dictionary."""
    if isinstance(value, File):
        if value.path is not None:  # the sender may run in another folder
            value = msgspec.structs.replace(value, path=str(Path(value.path).absolute()))
        return msgspec.msgpack.Ext(_FILE, msgspec.msgpack.encode(value))
    if isinstance(value, Mapping):
        return {name: with_files_packed(item) for name, item in value.items()}
    return [with_files_packed(item) for item in value] if isinstance(value, list | tuple) else value


def unpack_file(code: int, data: memoryview) -> File:
    """The reverse of `with_files_packed`, as the hook of a decoder for extension types."""
    if code != _FILE:
        raise ValueError(f"extension type {code} is not known")
    return msgspec.msgpack.decode(data, type=File)
