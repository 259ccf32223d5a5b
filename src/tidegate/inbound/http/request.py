"""A request, and its body: never more than so many bytes, and never for longer than so many seconds."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.inbound.http.answers import Answer

BODY_LIMIT: Final = 1_000_000  # bytes
BODY_TIME: Final = 10.0  # seconds that a body may take to arrive
_DIGITS: Final = 18  # of a length: more are too many, whatever they are
_THIS_MACHINE: Final = frozenset({"127.0.0.1", "::1"})
AT_ONCE: Final = 64_000_000  # bytes of bodies that are on their way, of all requests of a kind

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

TOO_LARGE: Final = Answer(413, "the body is too large")
TOO_SLOW: Final = Answer(408, "the body did not arrive in time")
TOO_MANY: Final = Answer(503, "too much arrives at once: send it again", retry_after=5)


class Request:
    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path = _own_path(scope)
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.receive = receive
        self.is_read = False  # to its end
        self._scope = scope

    @property
    def client(self) -> str:
        """For people to read. A proxy on this machine says for whom it asks; nobody else is believed."""
        address = self._scope.get("client")
        if not address:
            return "an unknown address"
        asked_for = self.headers.get(b"x-forwarded-for", b"") if address[0] in _THIS_MACHINE else b""
        return asked_for.decode("latin-1").rpartition(",")[2].strip() or str(address[0])

    @property
    def may_go_on(self) -> bool:
        """Whether there is a body, by any method, that was not read to its end."""
        has_body = b"transfer-encoding" in self.headers or self.headers.get(b"content-length", b"0") != b"0"
        return not self.is_read and (has_body or self.method == "POST")

    @property
    def can_close(self) -> bool:
        """Whether its connection has a header to say that it ends."""
        return str(self._scope.get("http_version", "1.1")).startswith("1")


class Bodies:
    """Reads bodies. All that one of these reads together is bounded, whoever sends them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._arriving = 0  # bytes

    async def read(self, request: Request, limit: int = BODY_LIMIT) -> bytes | Answer | None:
        """None if the client has gone: there is nobody to answer."""
        if _declared(request) > limit:
            return TOO_LARGE
        try:
            async with self._clock.timeout(BODY_TIME):
                return await self._collect(request, limit)
        except TimeoutError:
            return TOO_SLOW

    async def _collect(self, request: Request, limit: int) -> bytes | Answer | None:
        message = await request.receive()
        if message["type"] == "http.request" and not message.get("more_body"):  # as a rule
            request.is_read = True
            whole: bytes = message.get("body", b"")
            return whole if len(whole) <= limit else TOO_LARGE
        body = bytearray()
        try:
            return await self._collect_parts(request, message, body, limit)
        finally:
            self._arriving -= len(body)

    async def _collect_parts(
        self, request: Request, message: MutableMapping[str, Any], body: bytearray, limit: int
    ) -> bytes | Answer | None:
        while message["type"] == "http.request":
            part: bytes = message.get("body", b"")
            if len(body) + len(part) > limit:
                return TOO_LARGE
            if self._arriving + len(part) > AT_ONCE:
                return TOO_MANY
            body += part
            self._arriving += len(part)
            if not message.get("more_body"):
                request.is_read = True
                return bytes(body)
            message = await request.receive()
        return None


def _declared(request: Request) -> int:
    length = request.headers.get(b"content-length", b"")
    return int(length[:_DIGITS]) if length.isdigit() else 0


def _own_path(scope: Scope) -> str:
    """Without the place where this application is mounted: some leave it in the path."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path
