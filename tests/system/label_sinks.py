"""Services that the label bot calls, on loopback: a mail server, and one that takes JSON by HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email import message_from_bytes
from email.message import Message
from typing import Any

import msgspec
from aiohttp import web

from tidegate.clock import Clock

LOOPBACK = "127.0.0.1"


class MailSink:
    """Takes mail by SMTP, without TLS and passwords."""

    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["MailSink"]:
        server = await asyncio.start_server(self._talk, LOOPBACK, 0)
        self.url = f"smtp://{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 sink\r\n")
        while line := await reader.readline():
            match line.split()[0].upper():
                case b"EHLO" | b"HELO":
                    writer.write(b"250 sink\r\n")
                case b"DATA":
                    writer.write(b"354 go on\r\n")
                    content = await reader.readuntil(b"\r\n.\r\n")
                    self.mails.append(message_from_bytes(content.removesuffix(b".\r\n")))
                    writer.write(b"250 taken\r\n")
                case b"QUIT":
                    writer.write(b"221 bye\r\n")
                    break
                case _:
                    writer.write(b"250 ok\r\n")
            await writer.drain()
        writer.close()


class HttpSink:
    """Takes JSON by POST, `seconds` after it came, and answers what `answer` makes of it."""

    def __init__(
        self, answer: Callable[[dict[str, Any]], dict[str, str]] = lambda _: {}, seconds: float = 0.0
    ) -> None:
        self._answer = answer
        self._seconds = seconds
        self.bodies: list[dict[str, Any]] = []
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["HttpSink"]:
        app = web.Application()
        app.router.add_post("/", self._take)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, LOOPBACK, 0).start()
        self.url = f"http://{LOOPBACK}:{runner.addresses[0][1]}/"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        self.bodies.append(body)
        await Clock().sleep(self._seconds)
        return web.json_response(self._answer(body))
