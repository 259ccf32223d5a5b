"""The Telegram of `gateway.py`: one answer for every call, as fast as Python writes it, and no limits.

    python benchmarks/gateway_upstream.py

Prints its port. It understands just enough HTTP for a proxy in front of it: bodies with a Content-Length.
"""

import asyncio
import re
import sys
from pathlib import Path
from typing import Final

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.pacing_processes import die_with_parent, tell

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_MESSAGE: Final = (
    b'{"ok":true,"result":{"message_id":1,"date":1767603600,"text":"Your order is on its way",'
    b'"from":{"id":42,"is_bot":true,"first_name":"Bot","username":"a_bot"},'
    b'"chat":{"id":1001,"first_name":"Ada","type":"private"}}}'
)
_ME: Final = b'{"ok":true,"result":{"id":42,"is_bot":true,"first_name":"Bot","username":"a_bot"}}'


def _response(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


MESSAGE: Final = _response(_MESSAGE)
ME: Final = _response(_ME)


class Upstream(asyncio.Protocol):
    """One connection. Of a large body only the length is kept."""

    def __init__(self) -> None:
        self._head = b""
        self._missing = 0  # bytes of a body
        self._answer = MESSAGE

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        while data:
            if self._missing:
                taken = min(self._missing, len(data))
                self._missing -= taken
                data = data[taken:]
            else:
                head, end, data = (self._head + data).partition(b"\r\n\r\n")
                if not end:
                    self._head = head
                    return
                self._head = b""
                self._answer = ME if b"/getMe " in head else MESSAGE
                length = _LENGTH.search(head)
                self._missing = int(length[1]) if length else 0
            if not self._missing:
                self._transport.write(self._answer)


async def serve() -> None:
    die_with_parent()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "127.0.0.1", 0, backlog=1_024)
    tell(port=server.sockets[0].getsockname()[1])
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
