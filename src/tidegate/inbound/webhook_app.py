"""The webhook app (ASGI): Telegram's updates, signed hooks, /healthz and /readyz."""

import hashlib
import hmac
import re
from collections.abc import Awaitable, Mapping
from typing import Final, Protocol

from tidegate.clock import Clock
from tidegate.errors import BadInputError, ClosedError, StoreError, TidegateError
from tidegate.failure import scrub
from tidegate.inbound.handler_registry import HandlerRegistry
from tidegate.inbound.hook_signature import SignatureRefusal, verify_signature
from tidegate.inbound.signed_hooks import Hook, HookEvent, event_item, safe_headers
from tidegate.inbound.updates import parse_update
from tidegate.inbound.webhook_request import (
    NOT_FOUND,
    OK,
    BodyReader,
    Receive,
    RefusalLog,
    Scope,
    Send,
    WebhookRequest,
    WebhookResponse,
    method_not_allowed,
    unavailable,
)


class WebhookBackend(Protocol):
    @property
    def hooks(self) -> Mapping[str, Hook]:
        """By name."""
        ...

    def reception(self) -> HandlerRegistry:
        """Raises ClosedError unless what arrives is handed out: before `start`, and after `stop`."""
        ...

    def secret_of(self, bot_id: int) -> str | None:
        """What Telegram sends with each update of this bot; None if this process does not know the bot."""
        ...

    def readiness(self) -> Awaitable[dict[str, str]]:
        """What stands in the way of work, by name; nothing when all is well."""
        ...

    async def start(self) -> None:
        """Called when the server starts. What it raises is told to the server, which then ends."""

    async def stop(self) -> None:
        """Called when every request has been answered."""


SECRET_HEADER: Final = b"x-telegram-bot-api-secret-token"
WRONG_SECRET: Final = WebhookResponse(401, "the secret token is missing or wrong")
NO_SUCH_BOT: Final = WebhookResponse(404, "there is no such bot here")
_BOT_ID: Final = re.compile(r"[0-9]{1,19}")
_SECRET_OF_NO_BOT: Final = "0" * 64  # compared with where there is no bot, so that this takes as long


async def accept_update(
    door: WebhookBackend, bodies: BodyReader, request: WebhookRequest, name: str
) -> WebhookResponse | None:
    if request.method != "POST":
        return method_not_allowed("POST")
    if not _BOT_ID.fullmatch(name):
        return NOT_FOUND
    try:
        door.reception()  # as long as nothing is started, nobody can tell which bots are handled here
    except ClosedError as error:
        return unavailable(error)
    bot = int(name)
    secret = door.secret_of(bot)
    is_right = hmac.compare_digest(
        (secret or _SECRET_OF_NO_BOT).encode(), request.headers.get(SECRET_HEADER, b"")
    )
    if secret is None:
        return NO_SUCH_BOT
    if not is_right:
        return WRONG_SECRET
    return await _store_update(door, bodies, request, bot)


async def _store_update(
    door: WebhookBackend, bodies: BodyReader, request: WebhookRequest, bot: int
) -> WebhookResponse | None:
    try:
        reception = door.reception()
        body = await bodies.read(request)
        if not isinstance(body, bytes):
            return body
        await reception.accept([parse_update(bot, body)])
    except (
        BadInputError
    ) as error:  # who knows the secret and sends no update makes a mistake, and should see it
        return WebhookResponse(400, str(error))
    except (ClosedError, StoreError) as error:
        return unavailable(error)
    return OK


NO_SUCH_HOOK = WebhookResponse(404, "there is no such hook here")


async def accept_hook_event(
    door: WebhookBackend, bodies: BodyReader, clock: Clock, request: WebhookRequest, name: str
) -> WebhookResponse | None:
    if request.method != "POST":
        return method_not_allowed("POST")
    hook = door.hooks.get(name)
    if hook is None:
        return NO_SUCH_HOOK
    try:
        reception = door.reception()
        body = await bodies.read(request, hook.limit)
        if not isinstance(body, bytes):
            return body
        event = _verified_event(hook, request, body, clock.now())
        if isinstance(event, SignatureRefusal):
            return WebhookResponse(event.status, event.reason)
        await reception.accept([event_item(event)])
    except (ClosedError, StoreError) as error:
        return unavailable(error)
    return OK


def _verified_event(
    hook: Hook, request: WebhookRequest, body: bytes, now: float
) -> HookEvent | SignatureRefusal:
    found = verify_signature(hook.scheme, hook.secrets, request.headers, body, now, window=hook.window)
    if isinstance(found, SignatureRefusal):
        return found
    return HookEvent(hook.name, found.id, found.timestamp, now, safe_headers(request.headers), body)


READINESS_TIMEOUT: Final = 5.0  # seconds that a look at the store may take


def health_response(request: WebhookRequest) -> WebhookResponse:
    """Nothing is asked: neither Telegram nor the store can make a process look dead."""
    return OK if request.method in {"GET", "HEAD"} else method_not_allowed("GET, HEAD")


async def readiness_response(door: WebhookBackend, clock: Clock, request: WebhookRequest) -> WebhookResponse:
    if request.method not in {"GET", "HEAD"}:
        return method_not_allowed("GET, HEAD")
    problems = await _problems(door, clock)
    return WebhookResponse(503, "not ready", problems=problems) if problems else OK


async def _problems(door: WebhookBackend, clock: Clock) -> dict[str, str]:
    try:
        async with clock.timeout(READINESS_TIMEOUT):
            found = await door.readiness()
    except TimeoutError:
        return {"store": f"does not answer within {READINESS_TIMEOUT:g} s"}
    except TidegateError as error:
        return {"gate": scrub(str(error))}
    return {name: scrub(text) for name, text in found.items()}


_TELEGRAM_PATH = "/webhook/telegram/"
_HOOK_PATH = "/hooks/"


class WebhookApp:
    """Answers 200 for what is held durably, and for nothing else. Everything that it keeps is bounded.

    Served alone, it starts and stops with the server. Where another application mounts it, that one calls
    `start` and `stop`: a mounted application does not hear of them. Before and after, it answers 503.
    """

    def __init__(self, door: WebhookBackend, clock: Clock | None = None) -> None:
        self._door = door
        self._clock = clock or Clock()
        self._updates = BodyReader(self._clock)
        self._events = BodyReader(
            self._clock
        )  # from anybody, until they were read: they must not hold up updates
        self._is_started = False
        self._refusals = RefusalLog(self._clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(WebhookRequest(scope, receive), send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def start(self) -> None:
        """Open the gate, deliver, and hand out what arrives. Raises what is in the way of that."""
        await self._door.start()
        self._is_started = True

    async def stop(self) -> None:
        """Take back `start`; nothing, if that did not succeed."""
        if self._is_started:
            self._is_started = False
            await self._door.stop()

    async def _serve(self, request: WebhookRequest, send: Send) -> None:
        answer = await self._answer(request)
        if answer is None:
            return
        if answer.error and not answer.problems:
            self._refusals.tell(request, answer)
        # A body that nobody read must not be read to its end for the sake of the next request.
        closes = request.may_go_on and request.can_close
        body = answer.body()
        headers = answer.headers(len(body), closes=closes)
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else body})

    async def _answer(self, request: WebhookRequest) -> WebhookResponse | None:
        path = request.path
        if path.startswith(_TELEGRAM_PATH):
            return await accept_update(self._door, self._updates, request, path.removeprefix(_TELEGRAM_PATH))
        if path.startswith(_HOOK_PATH):
            name = path.removeprefix(_HOOK_PATH)
            return await accept_hook_event(self._door, self._events, self._clock, request, name)
        if path == "/healthz":
            return health_response(request)
        if path == "/readyz":
            return await readiness_response(self._door, self._clock, request)
        return NOT_FOUND

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            step = (await receive())["type"]
            act = self.start if step == "lifespan.startup" else self.stop
            try:
                await act()
            except Exception as error:  # noqa: BLE001  (whatever it is, the server has to hear of it)
                await send({"type": f"{step}.failed", "message": scrub(str(error) or repr(error))})
                return
            await send({"type": f"{step}.complete"})
            if step == "lifespan.shutdown":
                return


_SECRET_PURPOSE: Final = b"tidegate: the secret of a webhook"


def webhook_secret(token: str) -> str:
    """64 hexadecimal characters, sent by Telegram with each update. They tell nothing of the token."""
    return hmac.new(token.encode(), _SECRET_PURPOSE, hashlib.sha256).hexdigest()
