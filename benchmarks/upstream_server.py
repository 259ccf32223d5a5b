"""The API of `upstream.py`, in a process of its own: at once and without limit, or strict and some way off.

Paths: /free is answered at once; /<name> has a limit of its own, counted exactly, at the arrival, in a window
that slides; beyond it a 429 that names no wait. /report tells what became of each name.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter, defaultdict, deque
from typing import Final

import uvloop

LIMIT, WINDOW = 5, 1.0
EACH_WAY: Final = (0.005, 0.040)
FREE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
REFUSED = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}"

recent: dict[str, deque[float]] = defaultdict(deque)
seen: dict[str, Counter[str]] = defaultdict(Counter)


def count(name: str) -> bytes:
    now, window = time.monotonic(), recent[name]
    while window and window[0] <= now - WINDOW:
        window.popleft()
    passes = len(window) < LIMIT
    if passes:
        window.append(now)
    seen[name]["ok" if passes else "refused"] += 1
    return FREE if passes else REFUSED


async def strict(name: str) -> bytes:
    await asyncio.sleep(random.uniform(*EACH_WAY))
    answer = count(name)
    await asyncio.sleep(random.uniform(*EACH_WAY))
    return answer


def report() -> bytes:
    body = json.dumps(seen).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            name = head.split(b" ", 2)[1].decode().strip("/")
            if name == "free":
                writer.write(FREE)
            else:
                writer.write(report() if name == "report" else await strict(name))
    except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
        pass
    finally:
        writer.close()


async def main() -> None:
    """Until whoever started this lets go of its stdin."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    uvloop.run(main())
