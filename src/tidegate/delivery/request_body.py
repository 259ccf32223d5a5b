"""Request bodies: JSON, or a form with files, written by a payload that knows how far it got."""

import asyncio
import os
import re
import secrets
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import PurePath
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from tidegate.errors import BadInputError
from tidegate.model import File

# Kinds of files that a later message may name by their file_id. Thumbnails cannot be named.
REUSABLE_KINDS: Final = frozenset(
    ("photo", "document", "video", "audio", "voice", "animation", "sticker", "video_note")
)
_encode = msgspec.json.Encoder().encode
_UNSAFE = re.compile(r'[\x00-\x1f"\\\x7f]')
_REUSING: Final = ("send", "editmessagemedia")  # setChatPhoto and others take uploads only


class FileSpot(NamedTuple):
    """A file in the parameters. `kind`: under which its file_id may be reused; `place`: in an album."""

    file: File
    kind: str | None
    place: int


class DiskFile(NamedTuple):
    """A file on disk, as it was when it was inspected."""

    path: str
    size: int
    modified: int  # ns


Part = bytes | DiskFile


def files_in(method: str, params: Mapping[str, Any]) -> list[FileSpot]:
    """Every file, in the order in which `replace_files` meets them."""
    spots = [spot for key, value in params.items() for spot in _walk(key, value, 0)]
    if spots and not method.lower().startswith(_REUSING):
        return [spot._replace(kind=None) for spot in spots]
    return spots


def _walk(kind: object, value: object, place: int) -> Iterator[FileSpot]:
    if isinstance(value, File):
        yield FileSpot(value, kind if isinstance(kind, str) and kind in REUSABLE_KINDS else None, place)
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


def inspect_file(file: File) -> tuple[Part, tuple[object, ...]]:
    """The part to send, and a key of its content. Blocks: call it in a thread."""
    if file.content is not None:
        return file.content, (file.name, sha256(file.content).digest())
    if file.path is None:
        raise BadInputError("a file has neither a path nor content: give one of them")
    try:
        # Opened, as stat alone would succeed for an unreadable file.
        with open(file.path, "rb", opener=_open_at_once) as opened:
            state = os.fstat(opened.fileno())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no valid path"
        raise BadInputError(f"the file {file.path!r} cannot be uploaded: {reason}") from None
    if not stat.S_ISREG(state.st_mode):
        raise BadInputError(f"the file {file.path!r} cannot be uploaded: it is not a regular file")
    disk = DiskFile(file.path, state.st_size, state.st_mtime_ns)
    return disk, (file.name, *disk)


def _open_at_once(path: str, flags: int) -> int:
    """Open a file. A FIFO without a writer would block the thread for ever."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def as_form(params: Mapping[str, Any], uploads: Sequence[tuple[str, File, Part]]) -> tuple[str, list[Part]]:
    """The content type and the parts of a multipart body, with each upload under its name."""
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
    """A name as browsers write it: raw UTF-8, with characters that would end the header as %XX."""
    clean = name.encode("utf-8", "replace").decode()
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", clean)


def _encoded(value: object) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"the parameters cannot be sent as JSON: {error}") from None


CHUNK_BYTES: Final = 256 * 1024
SMALL_BODY_BYTES: Final = 32 * 1024  # below what makes aiohttp wait for the network


class NotSentError(Exception):
    """The request was stopped before its first byte."""


class FileChangedError(Exception):
    """A file is no longer what it was when its size was announced."""


class RequestBody(Payload):
    """A body that knows how far it got. `left` is true as soon as a byte may have reached the network.

    aiohttp's tracing hooks cannot tell that: "headers sent" fires while they are only buffered, "chunk sent"
    before the chunk is written. But a payload is asked for its bytes when the connection is there, and the
    headers wait for the first of them: before that call nothing has left, after it everything may have.

    `obstacle` is asked right before the first byte; a word stops the request. `leaving` is called then,
    `moved` before each chunk of a larger body, `written` once all is handed over (to the kernel, except the
    last 64 KiB).
    """

    def __init__(
        self,
        parts: Sequence[Part],
        content_type: str,
        *,
        obstacle: Callable[[], str | None],
        leaving: Callable[[], None],
        moved: Callable[[], None],
        written: Callable[[], None],
    ) -> None:
        super().__init__(None, content_type=content_type)
        self._autoclose = True  # no file stays open between two reads
        self._parts = parts
        self._size = sum(part.size if isinstance(part, DiskFile) else len(part) for part in parts)
        # Almost every body: one write, which the transport takes at once.
        first = parts[0]
        self._small = (
            first if len(parts) == 1 and isinstance(first, bytes) and self._size <= SMALL_BODY_BYTES else None
        )
        self._obstacle, self._leaving, self._moved, self._written = obstacle, leaving, moved, written
        self.left = False
        self.failure: str | None = None  # a word for a failure that is not the network's

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        del content_length  # it is our own size
        transport = writer.transport
        # A kept connection that the server has closed: aiohttp would fail too, without saying that it wrote
        # nothing.
        closing = transport is None or transport.is_closing()
        self.failure = "disconnected" if closing else self._obstacle()
        if self.failure is not None:
            raise NotSentError
        if self._small is not None:
            self.left = True
            self._leaving()
            await writer.write(self._small)
        else:
            async for chunk in self._chunks():
                self._moved()
                if not self.left:
                    self.left = True
                    self._leaving()
                await writer.write(chunk)
            await writer.drain()
        self._written()

    async def write(self, writer: AbstractStreamWriter) -> None:
        await self.write_with_length(writer, None)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise NotImplementedError("a body is never shown: it may be large, and it is private")

    async def _chunks(self) -> AsyncIterator[bytes | memoryview]:
        for part in self._parts:
            if isinstance(part, DiskFile):
                for start in range(0, part.size, CHUNK_BYTES):
                    yield await self._read(part, start)
            elif len(part) <= CHUNK_BYTES:
                yield part
            else:
                view = memoryview(part)
                for start in range(0, len(part), CHUNK_BYTES):
                    yield view[start : start + CHUNK_BYTES]

    async def _read(self, disk: DiskFile, start: int) -> bytes:
        try:
            return await asyncio.to_thread(_read, disk, start)
        except (OSError, FileChangedError):
            self.failure = "file_changed"
            raise


def _read(disk: DiskFile, start: int) -> bytes:
    """Read one chunk. Opened anew each time: a cancellation would leave a kept handle open."""
    with open(disk.path, "rb", opener=_open_at_once) as file:
        file.seek(start)
        chunk = file.read(min(CHUNK_BYTES, disk.size - start))
        modified = os.fstat(file.fileno()).st_mtime_ns
    if modified != disk.modified or len(chunk) != min(CHUNK_BYTES, disk.size - start):
        raise FileChangedError
    return chunk
