"""An HTTP request to the webhook app, its bounded body, its response, and the log of refused ones."""

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from tidegate.clock import Clock
from tidegate.failure import scrub

log = logging.getLogger("tidegate.inbound")

MAX_BODY_BYTES: Final = 1_000_000
BODY_TIMEOUT: Final = 10.0  # seconds that a body may take to arrive
MAX_ARRIVING_BYTES: Final = 64_000_000  # of all bodies that one reader reads at a time
REFUSAL_LOG_INTERVAL: Final = 1.0  # seconds after a log line in which refusals like it are only counted
MAX_REFUSAL_KINDS: Final = 200  # counted apart at a time
_MAX_LENGTH_DIGITS: Final = 18  # of a content-length: a longer one is too large in any case
_MAX_LOGGED_CHARACTERS: Final = 100  # of a text that the client chose
_LOCALHOST: Final = frozenset({"127.0.0.1", "::1"})
_JSON: Final = (b"content-type", b"application/json")
ARRIVED: Final = "tidegate.arrived"  # in the scope of a request that is here to its end, if that is known

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class WebhookResponse(msgspec.Struct, frozen=True):
    """`error` is shown to the client and logged; `detail` is only logged."""

    status: int
    error: str = ""
    detail: str = ""
    retry_after: int = 0  # seconds
    allow: str = ""  # methods
    problems: Mapping[str, str] = {}
    notes: Sequence[str] = ()
    at_unknown_path: bool = False

    def body(self) -> bytes:
        if not self.error:
            return msgspec.json.encode({"ok": True, "notes": self.notes}) if self.notes else b'{"ok":true}'
        content: dict[str, Any] = {"ok": False, "error": self.error}
        if self.problems:
            content["problems"] = self.problems
        return msgspec.json.encode(content)

    def headers(self, length: int, *, closes: bool) -> list[tuple[bytes, bytes]]:
        headers = [_JSON, (b"content-length", b"%d" % length)]
        if self.retry_after:
            headers.append((b"retry-after", b"%d" % self.retry_after))
        if self.allow:
            headers.append((b"allow", self.allow.encode()))
        if closes:
            headers.append((b"connection", b"close"))
        return headers


OK: Final = WebhookResponse(200)
NOT_FOUND: Final = WebhookResponse(404, "there is nothing here", at_unknown_path=True)
TOO_LARGE: Final = WebhookResponse(413, "the body is too large")
TOO_SLOW: Final = WebhookResponse(408, "the body did not arrive in time")
TOO_MANY: Final = WebhookResponse(503, "too much arrives at once: send it again", retry_after=5)


def unavailable(error: Exception) -> WebhookResponse:
    """The sender tries again. The reason is for the log alone."""
    return WebhookResponse(503, "it cannot be accepted now: send it again", detail=str(error), retry_after=5)


def method_not_allowed(allow: str) -> WebhookResponse:
    return WebhookResponse(405, f"only {allow} is allowed here", allow=allow, at_unknown_path=True)


class WebhookRequest:
    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path = _path_in_app(scope)
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.receive = receive
        self.is_read = False  # to its end
        self._scope = scope

    @property
    def client(self) -> str:
        """The address, for people to read. X-Forwarded-For is believed from a proxy on this machine only."""
        address = self._scope.get("client")
        if not address:
            return "an unknown address"
        forwarded_for = self.headers.get(b"x-forwarded-for", b"") if address[0] in _LOCALHOST else b""
        return forwarded_for.decode("latin-1").rpartition(",")[2].strip() or str(address[0])

    @property
    def has_arrived(self) -> bool:
        """Return whether it is known that nothing of the request is still on its way."""
        return ARRIVED in self._scope

    @property
    def has_unread_body(self) -> bool:
        """A request of any method may have a body."""
        has_body = b"transfer-encoding" in self.headers or self.headers.get(b"content-length", b"0") != b"0"
        return not self.is_read and (has_body or self.method == "POST")

    @property
    def can_close(self) -> bool:
        """HTTP/1 has a header to announce the end of the connection."""
        return str(self._scope.get("http_version", "1.1")).startswith("1")


def _path_in_app(scope: Scope) -> str:
    """The path below the place where this application is mounted: some servers leave that in the path."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path


class BodyReader:
    """Reads bodies, each bounded in size and time, and all of them together in size."""

    def __init__(self, clock: Clock, timeout: float = BODY_TIMEOUT) -> None:
        self._clock = clock
        self._timeout = timeout
        self._arriving = 0  # bytes

    async def read(
        self, request: WebhookRequest, limit: int = MAX_BODY_BYTES
    ) -> bytes | WebhookResponse | None:
        """Return the body or a refusal; None if the client has gone."""
        if declared_length(request) > limit:
            return TOO_LARGE
        if request.has_arrived:  # as most have: a timer would cost more than all the rest
            return await self._collect(request, limit)
        try:
            async with self._clock.timeout(self._timeout):
                return await self._collect(request, limit)
        except TimeoutError:
            return TOO_SLOW

    async def _collect(self, request: WebhookRequest, limit: int) -> bytes | WebhookResponse | None:
        body = bytearray()
        try:
            while (message := await request.receive())["type"] == "http.request":
                part: bytes = message.get("body", b"")
                is_last = not message.get("more_body")
                if is_last and not body:  # the usual case: nothing has to be copied or counted
                    request.is_read = True
                    return part if len(part) <= limit else TOO_LARGE
                if len(body) + len(part) > limit:
                    return TOO_LARGE
                if self._arriving + len(part) > MAX_ARRIVING_BYTES:
                    return TOO_MANY
                body += part
                self._arriving += len(part)
                if is_last:
                    request.is_read = True
                    return bytes(body)
            return None
        finally:
            self._arriving -= len(body)


def declared_length(request: WebhookRequest) -> int:
    """Return the bytes that the body will have; 0 if the client does not say."""
    length = request.headers.get(b"content-length", b"")
    return int(length[:_MAX_LENGTH_DIGITS]) if length.isdigit() else 0


RefusalKind = tuple[int, str, str]  # status, reason, path
_OTHER_REFUSALS: Final[RefusalKind] = (0, "for various reasons", "")


class RefusalLog:
    """Logs refused requests, at most two lines a second for those of one kind.

    A client that sends a million of them fills neither the disk nor the memory.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unlogged: dict[RefusalKind, int] = {}  # of each kind logged in the last second

    def add(self, request: WebhookRequest, response: WebhookResponse) -> None:
        # Paths that do not exist are without number: those are counted by reason alone.
        path = "" if response.at_unknown_path else _printable(request.path)
        # The details of a store that is away may differ each time.
        reason = response.error if response.retry_after else scrub(response.detail or response.error)
        kind = (response.status, reason, path)
        if kind not in self._unlogged and len(self._unlogged) >= MAX_REFUSAL_KINDS:
            kind = _OTHER_REFUSALS
        if kind in self._unlogged:
            self._unlogged[kind] += 1
            return
        self._unlogged[kind] = 0
        self._clock.call_later(REFUSAL_LOG_INTERVAL, partial(self._sum_up, kind))
        what = f"{_printable(request.method)} {_printable(request.path)}"
        why = scrub(response.detail or response.error)
        log.warning("%s from %s: %d, %s", what, _printable(request.client), response.status, why)

    def _sum_up(self, kind: RefusalKind) -> None:
        more, (status, reason, path) = self._unlogged.pop(kind), kind
        if more:
            log.warning("%d more%s: %d, %s", more, f" at {path}" if path else "", status, reason)


def _printable(text: str) -> str:
    """A client's text may hold anything, also what would look like another line of the log."""
    return scrub("".join(one if one.isprintable() else "?" for one in text))[:_MAX_LOGGED_CHARACTERS]
