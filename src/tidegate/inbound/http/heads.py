"""What a connection may take before there is a request: so many seconds, and so many bytes.

Uvicorn bounds neither: whoever sends half a head, or one without end, would hold a connection and the memory.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

HEAD_TIME: Final = 10.0  # seconds that a head may take to arrive
HEAD_LIMIT: Final = 65_536  # bytes that may come to nothing: neither to a whole head nor to a part of a body


class BoundedHead(asyncio.Protocol):
    """Goes before a protocol of uvicorn. An idle connection between two requests is left to that.

    Httptools tells where heads and bodies are. H11 does not, but bounds a head itself.
    """

    if TYPE_CHECKING:  # what uvicorn's have
        transport: asyncio.Transport
        cycle: Any

    _timer: asyncio.TimerHandle | None = None
    _in_head = False
    _came_to_nothing = 0  # bytes, lately
    _gets_on = False  # whether the bytes at hand have come to something

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._hurry()

    def connection_lost(self, exc: Exception | None) -> None:
        self._take_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._gets_on = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head or self._is_waiting():
            self._hurry()
        else:
            self._take_time()
        if hasattr(self, "parser"):  # httptools
            self._count(len(data))

    def _count(self, size: int) -> None:
        self._came_to_nothing = 0 if self._gets_on else self._came_to_nothing + size
        if self._came_to_nothing > HEAD_LIMIT:
            self.send_400_response("The head is too large.")  # type: ignore[attr-defined]

    def _is_waiting(self) -> bool:
        """For a request. What came is no part of one, or only its beginning."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def _hurry(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HEAD_TIME, self._give_up)

    def _take_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        self.transport.close()

    # --- httptools tells ---

    def on_message_begin(self) -> None:
        self._in_head = self._gets_on = True
        super().on_message_begin()  # type: ignore[misc]

    def on_headers_complete(self) -> None:
        self._in_head, self._gets_on = False, True
        self._take_time()
        super().on_headers_complete()  # type: ignore[misc]

    def on_body(self, body: bytes) -> None:
        self._gets_on = True
        super().on_body(body)  # type: ignore[misc]

    def on_message_complete(self) -> None:
        self._gets_on = True
        super().on_message_complete()  # type: ignore[misc]
