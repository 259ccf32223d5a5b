"""An audience file that is uploaded: kept in a temporary file, and read by the rules of audience files."""

import asyncio
import itertools
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from tidegate.broadcast.audience_file import BLOCK, AudienceFile, BadLine, GoodLine, rows
from tidegate.errors import BadInputError

IN_MEMORY: Final = 1024 * 1024  # bytes of an upload; the rest goes to a temporary file
MAX_UPLOAD: Final = 1024 * 1024 * 1024  # bytes; a million lines of 1,000 bytes
LINES_AT_ONCE: Final = 500  # parsed in a thread


@asynccontextmanager
async def received_audience(
    stream: AsyncIterable[bytes], name: str, *, most: int = MAX_UPLOAD
) -> AsyncIterator[AudienceFile]:
    """Receive a file to its end; it is there while the body runs. The disk has room for it, the memory not.

    `name` is for errors; by its end, `.csv` or `.ndjson`, the file is read, otherwise by its first line.
    Raises BadInputError if it has more than `most` bytes.
    """
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as kept:
        size = 0
        async for block in _blocks(stream):
            size += len(block)
            if size > most:
                raise BadInputError(f"{name} has more than {most:,} bytes: send it in several parts")
            await asyncio.to_thread(kept.write, block)
        yield AudienceFile(name, kept, size=size)


async def _blocks(stream: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """Join what arrives in small pieces: each block is a step of a thread."""
    pieces: list[bytes] = []
    size = 0
    async for piece in stream:
        pieces.append(piece)
        size += len(piece)
        if size >= BLOCK:
            yield b"".join(pieces)
            pieces, size = [], 0
    yield b"".join(pieces)


async def file_lines(source: AudienceFile, needed: Sequence[str]) -> AsyncGenerator[GoodLine | BadLine]:
    """Yield the lines of a file, as `rows` does, without blocking the event loop."""
    lines = await asyncio.to_thread(rows, source, needed)
    while some := await asyncio.to_thread(lambda: list(itertools.islice(lines, LINES_AT_ONCE))):
        for line in some:
            yield line
