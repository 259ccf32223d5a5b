"""The gateway's ASGI application: the Bot API at /bot<token>/<method>, files, and health."""

import asyncio
import logging
import re
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import aiohttp

from tidegate.clock import Clock
from tidegate.delivery.bot_api import BotApiClient, decode_answer
from tidegate.delivery.direct import has_lane
from tidegate.delivery.sender import BotAccess
from tidegate.delivery.transport import NoAnswer, RawAnswer
from tidegate.errors import TidegateError
from tidegate.events import UpdateReceived
from tidegate.failure import traceback_text
from tidegate.gate import Tidegate
from tidegate.gateway.answers import (
    JSON,
    TICKET_HEADER,
    ApiRefusal,
    bad_request,
    encode,
    header_value,
    no_answer,
    send_answer,
    send_content,
    too_many,
)
from tidegate.gateway.bot_access import Authenticate, Caller, CallerRegistry
from tidegate.gateway.directives import Directives, directives_of
from tidegate.gateway.forwarding import ForwardingClient
from tidegate.gateway.kept_connections import KeptConnectionsClient
from tidegate.gateway.paced_call import PacedCalls
from tidegate.gateway.queued_call import QueuedCalls
from tidegate.gateway.received_call import CallBodies, ClientGoneError, ReceivedCall, plain
from tidegate.gateway.reply_chats import ReplyChats
from tidegate.gateway.shared_updates import SharedUpdates, SharingOptions
from tidegate.gateway.update_push import Post
from tidegate.gateway.upstream_webhooks import WEBHOOK_PATH
from tidegate.inbound.handlers import gate_problems
from tidegate.inbound.server import run_lifespan
from tidegate.inbound.update_feed import DEFAULT_READER
from tidegate.inbound.webhook_app import respond_health
from tidegate.inbound.webhook_request import (
    BODY_TIMEOUT,
    Receive,
    RefusalLog,
    Scope,
    Send,
    WebhookRequest,
    WebhookResponse,
)
from tidegate.lifecycle import GateCore
from tidegate.model import BotId, Priority
from tidegate.network_errors import network_failure
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.gateway")

MAX_WAIT: Final = 4.0  # seconds for a turn: client libraries give up after 5
MOST_WAITS: Final = 1_000
LARGEST_BODY: Final = 55_000_000  # bytes: Telegram takes files of 50 MB from a bot
LONGEST_POLL: Final = 120.0  # seconds
WATCH_AFTER: Final = 0.05  # seconds after which a client that goes away is noticed: most calls end sooner
SEND_WITHIN: Final = 60.0  # seconds for a client to take a piece of a file
DRAIN_WITHIN: Final = 10.0  # seconds that calls may wait for their turn once the server stops
LINGER: Final = 2.0  # seconds for which a refused body is read on, so that its client sees the answer
CONNECTIONS: Final = 2_000  # to Telegram: as many as clients may have here
_PATH: Final = re.compile(
    r"(?:/reader/(?P<reader>[\w.-]{1,64}))?/(?P<file>file/)?bot(?P<token>[^/]+)/(?P<rest>.+)"
)
_METHOD: Final = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)
# Headers that are passed on, so that a client can go on with a download that broke off.
_OF_DOWNLOAD: Final = {
    name.lower().encode(): name for name in ("Range", "If-Range", "If-None-Match", "If-Modified-Since")
}
_OF_FILE: Final = (
    "content-type",
    "content-length",
    "content-range",
    "content-encoding",
    "accept-ranges",
    "etag",
    "last-modified",
)
_NO_UPDATES: Final = RawAnswer(200, JSON, b'{"ok":true,"result":[]}')


class GatewayOptions(NamedTuple):
    """How a gateway serves. `allowed`: the only bots that may use it; none: any bot may.

    `sharing`: how updates are shared between readers; None: getUpdates and setWebhook are passed on.
    """

    api_url: str
    allowed: frozenset[BotId] = frozenset()
    max_wait: float = MAX_WAIT
    most_waits: int = MOST_WAITS
    largest_body: int = LARGEST_BODY
    body_timeout: float = BODY_TIMEOUT  # seconds without a part of a body
    sharing: SharingOptions | None = None


class GatewayApp:
    """Passes calls on to Telegram, each in its turn. Everything that it keeps is bounded.

    Served alone, it opens the gate and delivers what is queued; when the server stops, calls that wait are
    answered, and long polls end with no updates.
    """

    def __init__(
        self,
        gate: Tidegate,
        authenticate: Authenticate,
        options: GatewayOptions,
        *,
        client: ForwardingClient | None = None,
        post: Post | None = None,
    ) -> None:
        """`post`: how updates reach the webhooks of readers."""
        core = gate.core
        self._gate = gate
        self._core = core
        self._options = options
        self._client = client or _client(core)
        self._callers = CallerRegistry(
            core, self._client, authenticate, api_url=options.api_url, allowed=options.allowed
        )
        self._paced = PacedCalls(core, self._client, options.max_wait)
        self._queued = QueuedCalls(core, options.max_wait)
        self._bodies = CallBodies(core.clock, options.largest_body, options.body_timeout)
        self._replies = ReplyChats(core.clock)
        self._shared: SharedUpdates | None = None
        if options.sharing is not None:
            self._shared = SharedUpdates(
                core, self._client, self._replies, options.sharing, self._make_reply, post=post
            )
        self._refusals = RefusalLog(core.clock)
        self._tasks = BackgroundTasks()
        self._under_way = 0
        self._polls: set[asyncio.Task[Any]] = set()
        self._is_stopping = False
        self._running = AsyncExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(WebhookRequest(scope, receive), scope, send)
        elif scope["type"] == "lifespan":
            await run_lifespan(self.start, self.stop, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def start(self) -> None:
        """Open the gate and deliver. Raises whatever prevents that."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._gate)
            stack.push_async_callback(self._client.close)
            stack.push_async_callback(self._callers.close)
            stack.push_async_callback(self._tasks.stop)
            await stack.enter_async_context(self._gate.worker())
            if self._shared is not None:
                await self._shared.start()
                stack.push_async_callback(self._shared.stop)
            self._running = stack.pop_all()

    async def stop(self) -> None:
        await self._running.aclose()

    def drain(self) -> None:
        """Answer the long polls, and soon the calls that still wait for a turn: the server is to stop."""
        self._is_stopping = True
        self._core.clock.call_later(DRAIN_WITHIN, self._paced.give_up)
        for poll in self._polls:
            poll.cancel()
        if self._shared is not None:
            self._shared.end_polls()

    async def _serve(self, request: WebhookRequest, scope: Scope, send: Send) -> None:
        match = _PATH.fullmatch(request.path)
        request.path, path = _public_path(match), request.path  # it may be logged: without the token
        try:
            with ClientWatch(request, self._core.clock, self._tasks):
                if self._shared is not None and path.startswith(WEBHOOK_PATH):
                    await self._serve_webhook(request, self._shared, path, send)
                elif match is None:
                    await self._serve_health(request, path, send)
                elif match["file"]:
                    await self._serve_file(request, match["token"], match["rest"], send)
                else:
                    query = scope["query_string"].decode("latin-1")
                    directives = directives_of(scope["headers"])
                    async with ReceivedCall(match["rest"], query) as received:
                        await self._serve_call(request, match, received, directives, send)
        except ClientGoneError:
            return
        except ApiRefusal as refusal:
            await self._refuse(request, refusal, send)
        except TidegateError as error:  # the store is away or full, or the gate is closing
            text = "the gateway cannot do that now: try again"
            away = ApiRefusal(HTTPStatus.SERVICE_UNAVAILABLE, text, detail=str(error))
            await self._refuse(request, away, send)
        except Exception as error:  # noqa: BLE001  (the server's own answer would not be one of the Bot API)
            log.error("%s failed:\n%s", request.path, traceback_text(error))  # noqa: TRY400  (it may hold a token)
            failed = ApiRefusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the gateway failed: see its log")
            await self._refuse(request, failed, send)

    async def _refuse(self, request: WebhookRequest, refusal: ApiRefusal, send: Send) -> None:
        if refusal.code != HTTPStatus.TOO_MANY_REQUESTS:  # those are the gateway's daily work, and counted
            told = WebhookResponse(
                refusal.code, refusal.text or HTTPStatus(refusal.code).phrase, refusal.detail
            )
            self._refusals.add(request, told)
        # An unread body must not be read to its end for the sake of the next request.
        if not (request.has_unread_body and request.can_close):
            await send_content(send, refusal.content())
            return
        await send_content(send, refusal.content(), ((b"connection", b"close"),), more=True)
        # A connection that is closed while its client still sends would take the answer with it.
        with suppress(TimeoutError):
            async with self._core.clock.timeout(min(LINGER, self._options.body_timeout)):
                while (message := await request.receive())["type"] == "http.request":
                    if not message.get("more_body"):
                        break
        await send({"type": "http.response.body", "body": b""})

    async def _serve_call(
        self,
        request: WebhookRequest,
        match: "re.Match[str]",
        received: ReceivedCall,
        directives: Directives,
        send: Send,
    ) -> None:
        if match["reader"] is not None and self._shared is None:
            raise bad_request("/reader/ needs a gateway that shares updates: start it with --share-updates")
        if request.method not in {"GET", "POST"}:
            raise ApiRefusal(HTTPStatus.METHOD_NOT_ALLOWED, "calls are made by GET or POST")
        caller = await self._callers.find(match["token"])
        caller.check_method(received.method)
        if directives.urgent and not caller.may_be_urgent:
            text = "urgent needs an access token of the role admin, as in /bot42:tg_…/sendMessage"
            raise ApiRefusal(HTTPStatus.FORBIDDEN, text)
        await received.read(request, self._bodies)
        # A call that falls under no limit has nothing to skip.
        if directives.queue or (directives.urgent and has_lane(received.method, received.params)):
            act = self._queued.queue if directives.queue else self._queued.make_urgently
            ticket, content = await act(caller, received, directives)
            await send_content(send, content, ((TICKET_HEADER, ticket.encode()),))
            return
        if self._shared is not None and self._shared.answers(received.method):
            body = await self._shared.answer(caller, match["reader"] or DEFAULT_READER, received)
            await send_answer(send, HTTPStatus.OK, body)
            return
        if received.method == "getUpdates":
            answer = await self._poll(caller, received)
        else:
            priority = directives.priority or self._replies.priority(caller.bot, received.chat_id)
            answer = await self._make(caller, received, priority)
        if isinstance(answer, NoAnswer):
            raise no_answer(answer)
        body = _public_body(answer, caller, received.method)
        await send_answer(send, answer.status, body, answer.content_type)

    async def _make(self, caller: Caller, received: ReceivedCall, priority: Priority) -> RawAnswer | NoAnswer:
        most = self._options.most_waits
        if self._under_way >= most:
            raise too_many(1, f"{most:,} calls are under way here already: ")
        self._under_way += 1
        try:
            return await self._paced.make(caller, received, priority)
        finally:
            self._under_way -= 1

    async def _make_reply(self, caller: Caller, received: ReceivedCall) -> object:
        """Make a call that came in the answer to a posted update."""
        return await self._make(caller, received, Priority.HIGH)

    async def _serve_webhook(
        self, request: WebhookRequest, shared: SharedUpdates, path: str, send: Send
    ) -> None:
        """Accept an update that Telegram posts."""
        request.path = path  # it holds no token
        response = await shared.accept_webhook(request)
        if response is None:
            return
        if response.error:
            self._refusals.add(request, response)
        body = response.body()
        closes = request.has_unread_body and request.can_close
        headers = response.headers(len(body), closes=closes)
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _poll(self, caller: Caller, received: ReceivedCall) -> RawAnswer | NoAnswer:
        """Pass a getUpdates on. When the server stops, one that waits ends without updates."""
        timeout = plain(received.params.get("timeout"))
        longest = min(max(0, timeout), LONGEST_POLL) if isinstance(timeout, int) else 0
        within = longest + self._core.settings.telegram_timeout
        if self._is_stopping:
            return _NO_UPDATES
        polling = self._paced.make(caller, received, Priority.NORMAL, answer_within=within)
        poll = self._tasks.start(polling, "polls for a client", awaited=True)
        self._polls.add(poll)
        try:
            answer = await poll
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._is_stopping and task is not None and not task.cancelling():
                return _NO_UPDATES
            poll.cancel()
            raise
        finally:
            self._polls.discard(poll)
        if isinstance(answer, RawAnswer) and answer.body != _NO_UPDATES.body:
            self._note_updates(caller.bot, answer)
        return answer

    def _note_updates(self, bot: BotId, answer: RawAnswer) -> None:
        updates = (decode_answer(answer) or {}).get("result")
        for update in updates if isinstance(updates, list) else ():
            if isinstance(update, dict):
                self._replies.note(bot, update)
                self._core.events.publish(UpdateReceived(bot, partial(dict[str, Any], update)))

    async def _serve_file(self, request: WebhookRequest, token: str, path: str, send: Send) -> None:
        """Stream a file as it arrives from Telegram."""
        if request.method not in {"GET", "HEAD"}:
            raise ApiRefusal(HTTPStatus.METHOD_NOT_ALLOWED, "files are read by GET")
        caller = await self._callers.find(token)
        await self._bodies.text(request)
        if not {".", ".."}.isdisjoint(path.split("/")):
            raise ApiRefusal(HTTPStatus.NOT_FOUND, "")
        headers = request.headers
        asked = {name: headers[key].decode("latin-1") for key, name in _OF_DOWNLOAD.items() if key in headers}
        async with self._client.download(file_url(caller.access, path), asked) as response:
            if isinstance(response, NoAnswer):
                raise ApiRefusal(HTTPStatus.BAD_GATEWAY, f"Telegram cannot be reached ({response.reason})")
            given = [
                (name.encode(), header_value(value))
                for name in _OF_FILE
                if (value := response.headers.get(name))
            ]
            await send({"type": "http.response.start", "status": response.status, "headers": given})
            try:
                if request.method == "GET":
                    async for chunk in response.content.iter_any():
                        async with self._core.clock.timeout(SEND_WITHIN):
                            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except (aiohttp.ClientError, OSError) as error:  # a TimeoutError is one
                # The server then closes the connection: the client sees that the file is not complete.
                log.warning("%s broke off: %s", request.path, network_failure(error))
                return
            await send({"type": "http.response.body", "body": b""})

    async def _serve_health(self, request: WebhookRequest, path: str, send: Send) -> None:
        async def problems() -> dict[str, str]:
            return gate_problems(self._gate.health())

        def notes() -> Sequence[str]:
            return self._gate.health().reasons

        response = await respond_health(request.method, path, problems, notes, self._core.clock)
        if response.status == HTTPStatus.NOT_FOUND:
            raise ApiRefusal(HTTPStatus.NOT_FOUND, "", detail="the path is no call: /bot<token>/<method>")
        await send_answer(send, response.status, response.body())


class ClientWatch:
    """Cancels the task of a request whose client goes away: its turn is free for others.

    `with` it around the work; that then ends with ClientGoneError. The client is watched from a short time
    on, as most calls end sooner, and once the body is read.
    """

    __slots__ = ("_clock", "_is_gone", "_request", "_task", "_tasks", "_timer", "_watching")

    def __init__(self, request: WebhookRequest, clock: Clock, tasks: BackgroundTasks) -> None:
        self._request = request
        self._clock = clock
        self._tasks = tasks
        self._is_gone = False
        self._watching: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle
        self._task: asyncio.Task[Any] | None = None

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._timer = self._clock.call_later(WATCH_AFTER, self._begin)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if self._is_gone and kind is asyncio.CancelledError and self._task is not None:
            self._task.uncancel()
            raise ClientGoneError

    def _begin(self) -> None:
        if self._request.is_read:
            self._watching = self._tasks.start(self._watch(), "watches a client")
        else:
            self._timer = self._clock.call_later(WATCH_AFTER, self._begin)

    async def _watch(self) -> None:
        if (await self._request.receive())["type"] == "http.disconnect" and self._task is not None:
            self._is_gone = True
            self._task.cancel()


def _client(core: GateCore) -> ForwardingClient:
    timeout = core.settings.telegram_timeout
    uploads = BotApiClient(core.clock, timeout=timeout, connections=CONNECTIONS)
    return KeptConnectionsClient(core.clock, uploads, timeout=timeout)


def _public_path(match: "re.Match[str] | None") -> str:
    """Return what a log may say of the path of a request."""
    if match is None:
        return "a path that is no call"
    bot = match["token"].partition(":")[0]
    bot = bot if bot.isdecimal() else ""
    # What is no name of a method may hold anything, the token included.
    method = match["rest"] if _METHOD.fullmatch(match["rest"]) else "…"
    reader = f"/reader/{match['reader']}" if match["reader"] else ""
    return f"{reader}/file/bot{bot}:…" if match["file"] else f"{reader}/bot{bot}:…/{method}"


def file_url(access: BotAccess, path: str) -> str:
    """Return the address of a file. It holds the token: it is for the wire alone."""
    before, _, after = access.api_url.partition("/bot{token}")
    below = after.replace("{method}", quote(path)) if after else f"/{quote(path)}"
    return f"{before}/file/bot{access.token}{below}"


def _public_body(answer: RawAnswer, caller: Caller, method: str) -> bytes:
    """Return an answer without what a client must not know: paths of a Bot API server of one's own, and the
    bot's own token, if the client has an access token.
    """
    body, token = answer.body, caller.access.token
    if method == "getFile":
        found = decode_answer(answer) or {}
        file = found.get("result")
        if isinstance(file, dict) and str(path := file.get("file_path")).startswith("/"):
            within = str(path).partition(f"/{token}/")[2] or str(path).lstrip("/")
            body = encode({**found, "result": {**file, "file_path": within}})
    if caller.principal is not None:
        body = body.replace(token.encode(), f"{caller.bot}:…".encode())
    return body
