"""The load of `webhook.py`: updates over connections that stay open, the next one when the last is answered.

    python benchmarks/webhook_load.py PORT PATH SECRET UPDATES CONNECTIONS

Prints figures as JSON. A process of its own, which does as little as it can: requests are made before the
clock starts, and of an answer only its status and its end are looked at.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator

import uvloop

CHATS = 1_000


def requests(path: str, secret: str, number: int) -> list[bytes]:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"X-Telegram-Bot-Api-Secret-Token: {secret}\r\n"
    )
    return [_request(head, update(i)) for i in range(1, number + 1)]


def update(i: int) -> str:
    """As Telegram sends it: an ordinary message."""
    person = {"id": 1_000_000 + i % CHATS, "is_bot": False, "first_name": "Ada", "language_code": "en"}
    chat = {"id": person["id"], "first_name": "Ada", "type": "private"}
    text = f"Has my order #{i} left your house, and when will it be here?"
    message = {"message_id": i, "from": person, "chat": chat, "date": 1_767_603_600, "text": text}
    return json.dumps({"update_id": i, "message": message})


def _request(head: str, body: str) -> bytes:
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


class Connection(asyncio.Protocol):
    def __init__(self, left: Iterator[bytes], waits: list[float], statuses: Counter[bytes]) -> None:
        self._left = left
        self._waits = waits
        self._statuses = statuses
        self._answer = b""
        self._sent_at = 0.0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("the server closed a connection"))

    def send_next(self) -> None:
        request = next(self._left, None)
        if request is None:
            self.ended.set_result(None)
            self._transport.close()
            return
        self._sent_at = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if not _is_whole(self._answer):
            return
        self._waits.append(time.perf_counter() - self._sent_at)
        self._statuses[self._answer[9:12]] += 1
        self._answer = b""
        self.send_next()


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    _, _, length = head.lower().partition(b"content-length:")
    return len(body) >= int(length.partition(b"\r\n")[0] or 0)


async def load(port: int, made: list[bytes], connections: int) -> dict[str, float]:
    left, waits, statuses = iter(made), list[float](), Counter[bytes]()
    loop = asyncio.get_running_loop()
    opened = [
        (await loop.create_connection(lambda: Connection(left, waits, statuses), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    started, cpu = time.perf_counter(), time.process_time()
    for connection in opened:
        connection.send_next()
    await asyncio.gather(*(connection.ended for connection in opened))
    seconds = time.perf_counter() - started
    waits.sort()
    return {
        "per_second": len(made) / seconds,
        "p50_ms": 1e3 * waits[len(waits) // 2],
        "p99_ms": 1e3 * waits[len(waits) * 99 // 100],
        "accepted": statuses[b"200"],
        "load_cpu": (time.process_time() - cpu) / seconds,
    }


def main(port: str, path: str, secret: str, number: str, connections: str) -> None:
    made = requests(path, secret, int(number))
    print(json.dumps(uvloop.run(load(int(port), made, int(connections)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
