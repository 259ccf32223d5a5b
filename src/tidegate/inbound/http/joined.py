"""A connection that sends what is written in one turn of the loop at once: head and body of an answer.

Uvicorn writes them apart. Each write is a call into the system, which costs more than all else of an answer.
"""

import asyncio
from typing import Any


class JoinedTransport:
    """Everything but writing and closing is the transport's own."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._written: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._written:
            self._loop.call_soon(self._flush)
        self._written.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._written:
            self._transport.write(b"".join(self._written))
            self._written = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever a transport has)
        return getattr(self._transport, name)
