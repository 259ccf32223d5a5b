"""A gateway in virtual time, called as a server calls it, before the simulated Telegram."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

import aiohttp
import msgspec

from memory_access import MemoryAccess
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.delivery.bot_api import RawCall
from tidegate.delivery.transport import ApiAnswer, NoAnswer, RawAnswer
from tidegate.gateway.app import GatewayApp, GatewayOptions
from tidegate.gateway.form_reader import FormReader, boundary_of
from tidegate.gateway.update_push import Post
from tidegate.ops.access import AccessControl
from tidegate.settings import Settings
from tidegate.sim.faults import ConnectionCut
from tidegate.sim.telegram import Limits, World
from tidegate.sim.telegram.call import Upload
from tidegate.sim.telegram.telegram import SimulatedTelegram, TelegramWire

TELEGRAM = "http://telegram.test"
TOKEN = "42:AAaaBBbbCCccDDddEEeeFFffGGgg"
SECRET = TOKEN.partition(":")[2]
BOUNDARY = "----boundary"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401
        return msgspec.json.decode(self.body)

    @property
    def ticket(self) -> str:
        return self.headers["x-tidegate-ticket"]

    @property
    def error(self) -> str:
        assert self.json["ok"] is False
        assert self.json["error_code"] == self.status
        description: str = self.json["description"]
        return description


class SimulatedNetwork:
    """Carries calls to the simulated Telegram, those of the gateway and those of its worker.

    `down`: nothing can be reached; `answers` come instead.
    """

    def __init__(self, telegram: SimulatedTelegram) -> None:
        self.telegram = telegram
        self._wire = TelegramWire(telegram, telegram.clock)
        self.down = False
        self.answers: list[RawAnswer] = []
        self.calls: list[RawCall] = []
        self.cancelled: list[str] = []
        self.spooled: list[tuple[Path, int]] = []  # files in which bodies waited, and who may read them

    async def forward(
        self,
        token: str,
        call: RawCall,
        *,
        api_url: str,
        deadline: float,  # noqa: ARG002
        timeout: float | None = None,  # noqa: ASYNC109
        on_left: Callable[[], None] | None = None,
    ) -> RawAnswer | NoAnswer:
        assert api_url == TELEGRAM
        if self.down:
            return NoAnswer(left=False, reason="connect")
        if on_left is not None:
            on_left()
        self.calls.append(call)
        if self.answers and call.method != "getMe":
            return self.answers.pop(0)
        content = await self._content(call)
        params, uploads = decoded(call, content)
        try:
            async with self.telegram.clock.timeout(timeout or 20.0):
                answer = await self.telegram.call(token, call.method, params, uploads)
        except asyncio.CancelledError:
            self.cancelled.append(call.method)
            raise
        except ConnectionCut:
            return NoAnswer(left=True, reason="disconnected")
        except TimeoutError:
            return NoAnswer(left=True, reason="timeout")
        raw = answer.raw if answer.raw is not None else msgspec.json.encode(answer.body)
        return RawAnswer(answer.status, "application/json", raw)

    async def call(
        self,
        token: str,
        method: str,
        params: Mapping[str, Any],
        *,
        api_url: str,
        deadline: float,
        on_left: Callable[[], None] | None = None,
        on_written: Callable[[], None] | None = None,
        wait_for_upload: bool = True,
    ) -> ApiAnswer | NoAnswer:
        if self.down:
            return NoAnswer(left=False, reason="connect")
        assert api_url == TELEGRAM
        return await self._wire.call(
            token,
            method,
            params,
            api_url=api_url,
            deadline=deadline,
            on_left=on_left,
            on_written=on_written,
            wait_for_upload=wait_for_upload,
        )

    @asynccontextmanager
    async def download(
        self, url: str, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse | NoAnswer]:
        raise NotImplementedError(url, headers)
        yield

    async def close(self) -> None:
        pass

    async def _content(self, call: RawCall) -> bytes:
        [part] = call.parts
        if isinstance(part, bytes):
            return part
        path = Path(part.path)
        self.spooled.append((path, (await asyncio.to_thread(path.stat)).st_mode & 0o777))
        return await asyncio.to_thread(path.read_bytes)


def decoded(call: RawCall, body: bytes) -> tuple[dict[str, Any], dict[str, Upload]]:
    kind = call.content_type.partition(";")[0]
    params: dict[str, Any] = dict(parse_qsl(call.query))
    if kind == "multipart/form-data":
        form = FormReader(boundary_of(call.content_type), keep_files=True)
        form.feed(body)
        files = {
            name: Upload(file.name or name, "application/octet-stream", file.content or b"")
            for name, file in form.files.items()
        }
        return params | dict(form.fields), files
    if body:
        params |= msgspec.json.decode(body) if kind == "application/json" else dict(parse_qsl(body.decode()))
    return params, {}


class SimulatedGateway:
    """The gateway and everything around it. Requests wait in virtual time."""

    def __init__(
        self,
        clock: Clock,
        *,
        limits: Limits | None = None,
        telegram: SimulatedTelegram | None = None,
        store: Path | str = "memory://",
        post: Post | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        self.clock = clock
        world = World(tokens={TOKEN})
        self.telegram = telegram or SimulatedTelegram(clock, limits=limits or Limits(), world=world)
        self.network = SimulatedNetwork(self.telegram)
        self.gate = Tidegate(store, clock=clock, settings=Settings.model_construct(), wire=self.network)
        access = MemoryAccess(clock)
        self.access = AccessControl(lambda: access, clock)
        self.app = GatewayApp(
            self.gate,
            self.access.authenticate,
            GatewayOptions(TELEGRAM, **options),
            client=self.network,
            post=post,
        )

    @property
    def refused(self) -> int:
        """The 429s of the simulated Telegram."""
        return self.telegram.request_log.refused_by.total()

    async def call(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        token: str = TOKEN,
        directives: str | None = None,
        gone: asyncio.Event | None = None,
        prefix: str = "",
        **more: Any,  # noqa: ANN401  (of the request)
    ) -> Answer:
        headers = {} if directives is None else {"x-tidegate": directives}
        content = None if params is None else msgspec.json.encode(params)
        if content is not None:
            headers["content-type"] = "application/json"
        return await self.request(
            f"{prefix}/bot{token}/{method}",
            content=more.pop("content", content),
            headers=headers | more.pop("headers", {}),
            gone=gone,
            **more,
        )

    async def request(
        self,
        path: str,
        *,
        method: str = "POST",
        content: bytes | list[bytes | float] | None = None,
        headers: dict[str, str] | None = None,
        gone: asyncio.Event | None = None,
        query: str = "",
        more_headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> Answer:
        """Return the answer; one with status 0 if none was sent.

        Numbers in the content are seconds in which nothing arrives. `gone`: the client closes its connection.
        """
        sent: list[MutableMapping[str, Any]] = []
        parts: list[bytes | float] = [content] if isinstance(content, bytes) else list(content or [])
        answered = asyncio.Event()

        async def receive() -> MutableMapping[str, Any]:
            while parts:
                part = parts.pop(0)
                if isinstance(part, float):
                    await self.clock.sleep(part)
                    continue
                return {"type": "http.request", "body": part, "more_body": bool(parts)}
            if not begun.is_set():
                begun.set()
                return {"type": "http.request", "body": b"", "more_body": False}
            waits = [asyncio.ensure_future(answered.wait())]
            if gone is not None:
                waits.append(asyncio.ensure_future(gone.wait()))
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        begun = asyncio.Event()
        if parts:
            begun.set()
        scope: MutableMapping[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": unquote(path),
            "query_string": query.encode(),
            "headers": [
                *((name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()),
                *more_headers,
            ],
            "client": ("127.0.0.1", 5000),
        }
        await self.app(scope, receive, send)
        answered.set()
        if not sent:
            return Answer(0, {}, b"")
        given = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], given, b"".join(message.get("body", b"") for message in sent[1:]))


@asynccontextmanager
async def gateway(clock: Clock, **options: Any) -> AsyncIterator[SimulatedGateway]:  # noqa: ANN401
    simulated = SimulatedGateway(clock, **options)
    await simulated.app.start()
    try:
        yield simulated
    finally:
        await simulated.app.stop()
        await simulated.access.close()


def form(fields: dict[str, str], files: dict[str, bytes]) -> tuple[bytes, dict[str, str]]:
    """A multipart body, and the header that says so."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    for name, content in files.items():
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}.bin"\r\n\r\n'
        parts.append(head.encode() + content + b"\r\n")
    parts.append(f"--{BOUNDARY}--\r\n".encode())
    return b"".join(parts), {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
