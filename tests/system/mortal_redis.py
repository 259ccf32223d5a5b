"""A Redis that keeps its data on disk, to be killed, frozen, robbed of its last second, and started again."""

import os
import signal
from collections import deque
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

from servers import Server, redis_server
from system.killing import clock, in_thread


class MortalRedis:
    """Always on the same port. `fsync`: "always" or "everysec"."""

    def __init__(self, directory: Path, fsync: str = "everysec") -> None:
        self._directory, self._fsync = directory, fsync
        self._stack, self._server = ExitStack(), Server("", 0, 0)
        self._sizes: deque[tuple[float, int]] = deque(maxlen=1_000)  # of the file, by monotonic time

    @property
    def url(self) -> str:
        return self._server.url

    async def start(self) -> None:
        self._server = await in_thread(self._start)

    def _start(self) -> Server:
        self._directory.mkdir(exist_ok=True)
        port = self._server.port or None
        server = redis_server(appendonly=True, fsync=self._fsync, directory=self._directory, port=port)
        return self._stack.enter_context(server)

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._server.pid, signal.SIGKILL)
        await in_thread(self._stack.close)

    async def freeze(self, seconds: float) -> None:
        os.kill(self._server.pid, signal.SIGSTOP)
        await clock.sleep(seconds)
        os.kill(self._server.pid, signal.SIGCONT)

    async def watch(self) -> None:
        """Note how long the file is, again and again."""
        while True:
            self._sizes.append((clock.monotonic(), await in_thread(self._size)))
            await clock.sleep(0.05)

    async def lose(self, seconds: float) -> int:
        """While it is dead: what it has written in its last so many seconds never reached the disk."""
        latest = clock.monotonic() - seconds
        size = max((size for at, size in self._sizes if at <= latest), default=0)
        return await in_thread(self._cut, size)

    def _cut(self, size: int) -> int:
        lost = self._size() - size
        os.truncate(self._file(), size)
        self._sizes.clear()
        return lost

    def _size(self) -> int:
        return self._file().stat().st_size

    def _file(self) -> Path:
        """Redis 7 keeps a base beside what was written since."""
        return max(self._directory.rglob("*.aof"), key=lambda path: path.stat().st_mtime)


@asynccontextmanager
async def mortal_redis(directory: Path, fsync: str = "everysec") -> AsyncIterator[MortalRedis]:
    redis = MortalRedis(directory, fsync)
    await redis.start()
    try:
        yield redis
    finally:
        await redis.kill()
