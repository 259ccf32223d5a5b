"""Product pictures: a coloured jar on a shelf, drawn into a PNG."""

import functools
import struct
import zlib

WIDTH, HEIGHT = 160, 120
SHELF, WALL = bytes((121, 85, 61)), bytes((246, 240, 228))
JAR = range(50, 110), range(28, 96)  # across, down


@functools.cache
def draw(colour: str) -> bytes:
    """`colour`: #rrggbb."""
    paint = bytes.fromhex(colour.removeprefix("#"))
    rows = b"".join(b"\0" + b"".join(_pixel(x, y, paint) for x in range(WIDTH)) for y in range(HEIGHT))
    header = struct.pack(">2I5B", WIDTH, HEIGHT, 8, 2, 0, 0, 0)  # eight bits each of red, green, blue
    chunks = (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(rows)), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _pixel(x: int, y: int, paint: bytes) -> bytes:
    if x in JAR[0] and y in JAR[1]:
        return paint
    return SHELF if y >= JAR[1].stop else WALL


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
