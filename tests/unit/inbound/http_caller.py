"""The webhook app, called as a server calls it, with a backend that tests can inspect."""

import asyncio
import itertools
from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any, NamedTuple

import msgspec

from tidegate.clock import Clock
from tidegate.errors import ClosedError
from tidegate.inbound.handler_registry import HandlerRegistry
from tidegate.inbound.inbox import InboxItem
from tidegate.inbound.signed_hooks import Hook
from tidegate.inbound.webhook_app import WebhookApp, webhook_secret
from tidegate.stores.memory.inbox import MemoryInbox

TOKEN = "42:AAbbccddeeffgghhiijjkkllmmnnoopp"
SECRET = webhook_secret(TOKEN)
PATH = "/webhook/telegram/42"

Message = MutableMapping[str, Any]


class FakeBackend:
    """A backend with bot 42."""

    def __init__(self, clock: Clock, *hooks: Hook) -> None:
        self.hooks = {hook.name: hook for hook in hooks}
        self.inbox = MemoryInbox(clock)
        self.found_problems: dict[str, str] = {}
        self.found_notes: list[str] = []
        self.failure: Exception | None = None
        self.steps: list[str] = []
        self.is_open = True
        self._registry = HandlerRegistry(self.inbox, clock)
        self.app = WebhookApp(self, clock)

    def registry(self) -> HandlerRegistry:
        if not self.is_open:
            raise ClosedError("the gate is closed")
        return self._registry

    def secret_of(self, bot_id: int) -> str | None:
        return SECRET if bot_id == 42 else None

    def notes(self) -> list[str]:
        return self.found_notes

    async def problems(self) -> dict[str, str]:
        if self.failure is not None:
            raise self.failure
        return self.found_problems

    async def start(self) -> None:
        self.steps.append("start")
        if self.failure is not None:
            raise self.failure

    async def stop(self) -> None:
        self.steps.append("stop")

    async def waiting(self) -> int:
        return (await self.inbox.stats()).waiting

    async def arrived(self) -> list[InboxItem]:
        """The first item of each lane."""
        sources = {held.item.source for held in self.inbox._items.values()}  # noqa: SLF001  (no other way to see all)
        return [held.item for held in await self.inbox.claim(sources, 100, suspects=100)]

    async def update(self, number: int = 1, *, secret: str = SECRET, path: str = PATH) -> "Reply":
        return await call(self.app, path, update(number), secret_header(secret))


class Reply(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes
    parts_taken: int  # of the request's body

    @property
    def content(self) -> Any:  # noqa: ANN401  (JSON)
        return msgspec.json.decode(self.body)


def update(number: int = 1, chat: int = 7) -> bytes:
    content = {
        "update_id": number,
        "message": {"message_id": number, "chat": {"id": chat, "type": "private"}},
    }
    return msgspec.json.encode(content)


def secret_header(secret: str = SECRET) -> dict[str, str]:
    return {"X-Telegram-Bot-Api-Secret-Token": secret}


async def call(
    app: WebhookApp,
    path: str,
    body: bytes | Iterable[bytes] = b"",
    headers: dict[str, str] | None = None,
    *,
    method: str = "POST",
    pause: float = 0.0,
    **scope: object,
) -> Reply:
    """Return the reply. The body may come in parts, which may never end, with a pause before each."""
    body_left: Iterator[bytes] = iter([body] if isinstance(body, bytes) else body)
    taken = itertools.count()
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.sleep(pause)  # noqa: TID251  (virtual)
        next(taken)
        part = next(body_left, None)
        if part is None:
            return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.request", "body": part, "more_body": not isinstance(body, bytes)}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(_scope(path, method, headers or {}, scope), receive, send)
    start, content = sent
    return Reply(start["status"], dict(start["headers"]), content["body"], next(taken))


def _scope(path: str, method: str, headers: dict[str, str], more: dict[str, object]) -> Message:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "query_string": b"key=of-somebody",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": ("192.0.2.7", 50_000),
        **more,
    }
