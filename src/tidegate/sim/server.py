"""An HTTP server for a simulator: on loopback by default, without an access log."""

import asyncio
from abc import ABC, abstractmethod
from typing import Self

from aiohttp import web

from tidegate.sim.telegram.incoming import MAX_HEADER, MAX_LINE, UnloggedRequestHandler


class SimulatorServer(ABC):
    """`async with` it. Port 0 takes a free one.

    Requests go on when their client hangs up, as they would on the other side of the wire. Those that wait
    are cut at the end.
    """

    connection: type[UnloggedRequestHandler] = UnloggedRequestHandler

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None

    @abstractmethod
    def _application(self) -> web.Application:
        """What it serves."""

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    async def __aenter__(self) -> Self:
        self._runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                self._connection, self._host, self._port, backlog=1024
            )
        except OSError:
            await self._runner.cleanup()
            raise
        if self._port == 0:
            self._port = self._listening.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._listening is not None:
            self._listening.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _connection(self) -> UnloggedRequestHandler:
        assert self._runner is not None  # noqa: S101  (set before anybody can connect)
        assert self._runner.server is not None  # noqa: S101
        return self.connection(
            self._runner.server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # that is how it is switched off
            max_line_size=MAX_LINE,
            max_field_size=MAX_HEADER,
        )
