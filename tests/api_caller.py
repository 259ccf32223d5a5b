"""The HTTP API, called as a server calls it, without one."""

import asyncio
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, NamedTuple

import msgspec

from tidegate.ops.api.app import ServiceApp

Message = MutableMapping[str, Any]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401
        return msgspec.json.decode(self.body)

    @property
    def lines(self) -> list[Any]:
        return [msgspec.json.decode(line) for line in self.body.splitlines()]


class ApiCaller:
    """Makes requests with a token, a cookie, or neither."""

    def __init__(
        self, app: ServiceApp, token: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self._app = app
        bearer = {} if token is None else {"authorization": f"Bearer {token}"}
        self._headers = bearer | dict(headers or {})

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.call("GET", path, headers=headers)

    async def post(self, path: str, json: object = None, **headers: str) -> Answer:
        return await self.call("POST", path, json=json, headers=headers)

    async def call(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        content: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        client: str = "192.0.2.7",
        scheme: str = "http",
    ) -> Answer:
        """Return the answer. Content may come in parts; names of headers may be written with `_`."""
        sent: list[Message] = []
        given = self._headers | {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        if json is not None:
            content = msgspec.json.encode(json)
            given.setdefault("content-type", "application/json")
        parts = [content] if isinstance(content, bytes) else list(content or [])
        if parts:
            given.setdefault("content-length", str(sum(map(len, parts))))

        async def receive() -> Message:
            await asyncio.sleep(0)  # noqa: TID251  (virtual)
            if not parts:
                return {"type": "http.request", "body": b"", "more_body": False}
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(message: Message) -> None:
            await asyncio.sleep(0)  # noqa: TID251  (virtual)
            sent.append(message)

        name, _, query = path.partition("?")
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": name,
            "raw_path": name.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "scheme": scheme,
            "server": ("testserver", 80),
            "client": (client, 50_000),
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()],
        }
        await self._app(scope, receive, send)
        start, *rest = sent
        found = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
        return Answer(start["status"], found, b"".join(message.get("body", b"") for message in rest))
