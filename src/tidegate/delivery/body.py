"""A request body that knows how far it got.

aiohttp's tracing hooks cannot tell: "headers sent" fires while they are only buffered, "chunk sent" before
the chunk is written. A payload is asked for its bytes when the connection is there, and aiohttp holds the
headers back until the first of them: before that call nothing has left, and after it everything has.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from tidegate.delivery.form import Disk, Part

CHUNK: Final = 256 * 1024
SMALL: Final = 32 * 1024  # below what makes aiohttp wait for the network


class NotSentError(Exception):
    """Nothing was written, on purpose."""


class FileChangedError(Exception):
    """A file is no longer what it was when its size was announced."""


class Body(Payload):
    """Written at most once. `left` is true as soon as a byte may have reached the network.

    `obstacle` is asked right before the first byte: a word stops it. `moved` is told before each chunk
    of a larger body, `written` once all is handed over (to the kernel, but for the last 64 KiB).
    """

    def __init__(
        self,
        parts: Sequence[Part],
        content_type: str,
        *,
        obstacle: Callable[[], str | None],
        moved: Callable[[], None],
        written: Callable[[], None],
    ) -> None:
        super().__init__(None, content_type=content_type)
        self._autoclose = True  # no file stays open between two reads
        self._parts = parts
        self._size = sum(part.size if isinstance(part, Disk) else len(part) for part in parts)
        # Almost every call: one write, which the transport takes at once.
        first = parts[0]
        self._small = first if len(parts) == 1 and isinstance(first, bytes) and self._size <= SMALL else None
        self._obstacle, self._moved, self._written = obstacle, moved, written
        self.left = False
        self.failure: str | None = None  # a word, where it is not the network's

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        del content_length  # ours is what was announced
        transport = writer.transport
        # A kept connection whose end we have heard of: aiohttp would fail as well, but not say that it
        # wrote nothing.
        closing = transport is None or transport.is_closing()
        self.failure = "disconnected" if closing else self._obstacle()
        if self.failure is not None:
            raise NotSentError
        if self._small is not None:
            self.left = True
            await writer.write(self._small)
        else:
            async for chunk in self._chunks():
                self._moved()
                self.left = True
                await writer.write(chunk)
            await writer.drain()
        self._written()

    async def write(self, writer: AbstractStreamWriter) -> None:
        await self.write_with_length(writer, None)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise NotImplementedError("a body is written, never shown: it may be large, and it is private")

    async def _chunks(self) -> AsyncIterator[bytes | memoryview]:
        for part in self._parts:
            if isinstance(part, Disk):
                for start in range(0, part.size, CHUNK):
                    yield await self._read(part, start)
            elif len(part) <= CHUNK:
                yield part
            else:
                view = memoryview(part)
                for start in range(0, len(part), CHUNK):
                    yield view[start : start + CHUNK]

    async def _read(self, disk: Disk, start: int) -> bytes:
        try:
            return await asyncio.to_thread(_read, disk, start)
        except (OSError, FileChangedError):
            self.failure = "file_changed"
            raise


def _read(disk: Disk, start: int) -> bytes:
    """One chunk, opened anew: a handle that waits for a slow network would be left open by a cancellation."""
    with open(disk.path, "rb") as file:  # noqa: PTH123  (seek and read)
        file.seek(start)
        chunk = file.read(min(CHUNK, disk.size - start))
        modified = os.fstat(file.fileno()).st_mtime_ns
    if modified != disk.modified or len(chunk) != min(CHUNK, disk.size - start):
        raise FileChangedError
    return chunk
