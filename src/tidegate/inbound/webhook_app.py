"""The webhook app (ASGI): Telegram's updates, signed hooks, /healthz and /readyz."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from tidegate.clock import Clock
from tidegate.errors import BadInputError, ClosedError, StoreError, TidegateError
from tidegate.failure import scrub
from tidegate.inbound.handler_registry import HandlerRegistry
from tidegate.inbound.inbox import bot_source
from tidegate.inbound.server import run_lifespan
from tidegate.inbound.signed_hooks import (
    Hook,
    HookEvent,
    SignatureRefusal,
    event_item,
    is_hook_name,
    safe_headers,
    verify_signature,
)
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
from tidegate.scrubber import hide

SECRET_HEADER: Final = b"x-telegram-bot-api-secret-token"
# Strangers get one answer for a bot or hook that is here and for one that is not. The log tells them apart.
WRONG_SECRET: Final = WebhookResponse(401, "the secret token is missing or wrong")
NO_SUCH_BOT: Final = WebhookResponse(
    401,
    WRONG_SECRET.error,
    detail="there is no such bot here, or nothing here handles its updates",
    at_unknown_path=True,
)
WRONG_SIGNATURE: Final = "the signature is missing, wrong or too old"
NO_SUCH_HOOK: Final = WebhookResponse(
    401, WRONG_SIGNATURE, detail="there is no such hook here", at_unknown_path=True
)
READINESS_TIMEOUT: Final = 5.0  # seconds that the store may take to answer
_TELEGRAM_PATH: Final = "/webhook/telegram/"
_HOOK_PATH: Final = "/hooks/"
_BOT_ID: Final = re.compile(r"[0-9]{1,19}")
# Compared where there is no such bot or hook, so that the time tells nothing either.
SECRET_OF_NO_BOT: Final = "0" * 64
_NO_HOOK: Final = Hook("none", (secrets.token_hex(32),))
_SECRET_PURPOSE: Final = b"tidegate: the secret of a webhook"


def webhook_secret(token: str) -> str:
    """Return the secret that Telegram sends with each update: 64 hexadecimal characters.

    Made of the token, which it does not reveal: every process knows it, and none has to store it.
    """
    secret = hmac.new(token.encode(), _SECRET_PURPOSE, hashlib.sha256).hexdigest()
    hide(secret)
    return secret


class WebhookBackend(Protocol):
    """The app's port to the gate."""

    @property
    def hooks(self) -> Mapping[str, Hook]:
        """By name."""
        ...

    def registry(self) -> HandlerRegistry:
        """Raises ClosedError unless items are dispatched: before `start`, and after `stop`."""
        ...

    def secret_of(self, bot_id: int) -> str | None:
        """The secret of this bot's webhook; None if its updates are not handled here."""
        ...

    def problems(self) -> Awaitable[dict[str, str]]:
        """Return the reasons why the gate cannot work, by component; none if it is ready."""
        ...

    def notes(self) -> Sequence[str]:
        """Return what is to be known of a gate that is ready."""
        ...

    async def start(self) -> None:
        """Called when the server starts. An error is reported to the server, which then ends."""

    async def stop(self) -> None:
        """Called when every request has been answered."""


class WebhookApp:
    """Answers 200 for what is stored durably, and for nothing else. Everything that it keeps is bounded.

    Served alone, it starts and stops with the server. An application that mounts it calls `start` and
    `stop`: servers do not tell a mounted application. Before and after, it answers 503.
    """

    def __init__(self, backend: WebhookBackend, clock: Clock | None = None) -> None:
        self._backend = backend
        self._clock = clock or Clock()
        self._update_bodies = BodyReader(self._clock)
        # Bounded apart from updates: anybody can send one, as its signature is checked after it was read.
        self._event_bodies = BodyReader(self._clock)
        self._is_started = False
        self._refusals = RefusalLog(self._clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(WebhookRequest(scope, receive), send)
        elif scope["type"] == "lifespan":
            await run_lifespan(self.start, self.stop, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def start(self) -> None:
        """Open the gate, deliver messages and dispatch updates. Raises whatever prevents that."""
        await self._backend.start()
        self._is_started = True

    async def stop(self) -> None:
        """Take back `start`, if it succeeded."""
        if self._is_started:
            self._is_started = False
            await self._backend.stop()

    async def _serve(self, request: WebhookRequest, send: Send) -> None:
        response = await self._respond(request)
        if response is None:
            return
        if response.error and not response.problems:
            self._refusals.add(request, response)
        # An unread body must not be read to its end for the sake of the next request.
        closes = request.has_unread_body and request.can_close
        body = response.body()
        headers = response.headers(len(body), closes=closes)
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else body})

    async def _respond(self, request: WebhookRequest) -> WebhookResponse | None:
        """Return None if the client has gone."""
        path = request.path
        if path.startswith(_TELEGRAM_PATH):
            return await self._accept_update(request, path.removeprefix(_TELEGRAM_PATH))
        if path.startswith(_HOOK_PATH):
            return await self._accept_event(request, path.removeprefix(_HOOK_PATH))
        backend = self._backend
        return await respond_health(request.method, path, backend.problems, backend.notes, self._clock)

    async def _accept_update(self, request: WebhookRequest, name: str) -> WebhookResponse | None:
        """`POST /webhook/telegram/{bot_id}`: an update is durable before Telegram is answered."""
        if request.method != "POST":
            return method_not_allowed("POST")
        if not _BOT_ID.fullmatch(name):
            return NOT_FOUND
        bot = int(name)
        try:
            registry = self._backend.registry()  # before it is started, it is not known which bots are here
            refusal = self._check_secret(bot, request.headers.get(SECRET_HEADER, b""))
            body = refusal or await self._update_bodies.read(request)
            if not isinstance(body, bytes):
                return body
            item = parse_update(bot, body, registry.order_of(bot_source(bot)))
            await registry.accept([item])
        except BadInputError as error:  # the sender knows the secret, and should see the mistake
            return WebhookResponse(400, str(error))
        except (ClosedError, StoreError) as error:
            return unavailable(error)
        return OK

    def _check_secret(self, bot: int, given: bytes) -> WebhookResponse | None:
        secret = self._backend.secret_of(bot)
        is_right = hmac.compare_digest((secret or SECRET_OF_NO_BOT).encode(), given)
        if secret is None:
            return NO_SUCH_BOT
        return None if is_right else WRONG_SECRET

    async def _accept_event(self, request: WebhookRequest, name: str) -> WebhookResponse | None:
        """`POST /hooks/{name}`: a signed event is durable before its sender is answered."""
        if request.method != "POST":
            return method_not_allowed("POST")
        if not is_hook_name(name):
            return NOT_FOUND
        hook = self._backend.hooks.get(name, _NO_HOOK)
        try:
            registry = self._backend.registry()
            body = await self._event_bodies.read(request, hook.limit)
            if not isinstance(body, bytes):
                return body
            now, headers = self._clock.now(), request.headers
            signed = verify_signature(hook.scheme, hook.secrets, headers, body, now, window=hook.window)
            if isinstance(signed, SignatureRefusal):
                return NO_SUCH_HOOK if hook is _NO_HOOK else _refuse(signed)
            event = HookEvent(hook.name, signed.id, signed.timestamp, now, safe_headers(headers), body)
            await registry.accept([event_item(event, hook.dedup)])
        except (ClosedError, StoreError) as error:
            return unavailable(error)
        return OK


async def respond_health(
    method: str,
    path: str,
    problems: Callable[[], Awaitable[Mapping[str, str]]],
    notes: Callable[[], Sequence[str]],
    clock: Clock,
) -> WebhookResponse:
    """Answer `/healthz`: the process is alive, and `/readyz`: it is, unless there are `problems`."""
    if path not in {"/healthz", "/readyz"}:
        return NOT_FOUND
    if method not in {"GET", "HEAD"}:
        return method_not_allowed("GET, HEAD")
    # Health asks nobody: neither Telegram nor the store can make a process look dead.
    return OK if path == "/healthz" else await _check_readiness(problems, notes, clock)


async def _check_readiness(
    problems: Callable[[], Awaitable[Mapping[str, str]]], notes: Callable[[], Sequence[str]], clock: Clock
) -> WebhookResponse:
    try:
        async with clock.timeout(READINESS_TIMEOUT):
            found = await problems()
    except TimeoutError:
        found = {"store": f"does not answer within {READINESS_TIMEOUT:g} s"}
    except TidegateError as error:
        found = {"gate": str(error)}
    if found:
        scrubbed = {name: scrub(text) for name, text in found.items()}
        return WebhookResponse(503, "not ready", problems=scrubbed)
    return WebhookResponse(200, notes=[scrub(note) for note in notes()])


def _refuse(refusal: SignatureRefusal) -> WebhookResponse:
    """Only the sender, whose signature is right, is told more than that it is not."""
    if refusal.is_signed:
        return WebhookResponse(400, refusal.reason)
    return WebhookResponse(401, WRONG_SIGNATURE, detail=refusal.reason)
