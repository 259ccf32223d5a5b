"""The facade, and the one place where stores are chosen and parts are put together."""

import asyncio
import inspect
import itertools
import logging
import secrets
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast, overload

import msgspec

from tidegate.adapters.call_capture import queue_call
from tidegate.bots.registry import TELEGRAM, AnyBot, Bot, BotInfo, BotRegistry
from tidegate.broadcast.audience import Audience
from tidegate.broadcast.campaign import REMEMBER_SECONDS, Campaign, RunningCampaigns, limit_for
from tidegate.broadcast.message import MessageWriter
from tidegate.broadcast.tracker import OnDead as OnGone
from tidegate.clock import Clock
from tidegate.delivery.bot_api import BotApiClient, SessionFactory
from tidegate.delivery.callbacks import DeliveryCallbacks, OnDead, OnDelivered
from tidegate.delivery.direct import DirectCalls, error_for
from tidegate.delivery.outcome_policy import RetryBackoff
from tidegate.delivery.sender import BotAccess, Sender
from tidegate.delivery.transport import BotApiTransport
from tidegate.delivery.worker import CONCURRENCY, Worker
from tidegate.errors import (
    BadInputError,
    ClosedError,
    LimitedError,
    NotTheSenderError,
    StoreAwayError,
    StoreError,
    TidegateError,
)
from tidegate.extras import extra
from tidegate.flows.port import FlowSessionStore
from tidegate.inbound.conversations import Conversations
from tidegate.inbound.handler_registry import HandlerRegistry
from tidegate.inbound.handlers import AttachedLibrary, GateHandlers, HookEventHandler, UpdateHandler
from tidegate.inbound.hook_signature import HOOK_WINDOW, SignatureScheme
from tidegate.inbound.server import OnReady, serve
from tidegate.inbound.signed_hooks import Hook, parse_secrets
from tidegate.inbound.stall_watch import StallWatch
from tidegate.inbound.throttle import Throttle, ThrottleRules
from tidegate.inbound.throttle_middleware import ThrottleMiddleware
from tidegate.inbound.webhook_app import WebhookApp
from tidegate.model import (
    BotId,
    ChatId,
    Dead,
    Delivered,
    Message,
    NotSent,
    Outcome,
    Priority,
    Rate,
    TicketId,
    Unknown,
)
from tidegate.outbox.admission import check_chat, check_method, check_priority, compose
from tidegate.outbox.effect_keys import effect_key
from tidegate.outbox.port import Outbox, OutboxStats, StoreHealth
from tidegate.outbox.tickets import LiveTicket, Receipt, receipt_for
from tidegate.pacing.rules import Rules, cost_of, family_of
from tidegate.polling.poller import Poller
from tidegate.polling.subscriptions import Subscriptions, reopenable_subscriptions
from tidegate.settings import Settings
from tidegate.stores import is_redis, open_store
from tidegate.stores.memory.outbox import MemoryOutbox
from tidegate.stores.store import Store, StoreOptions
from tidegate.upstream.client import DEFAULT_RATE, LOCKOUT, Upstream
from tidegate.upstream.http_transport import TIMEOUT
from tidegate.upstream.nocodb.client import NocoDb, token_headers, url_bytes_left
from tidegate.upstream.registry import UpstreamRegistry, UpstreamTerms

if TYPE_CHECKING:  # each is there only if it is used
    from aiogram import Bot as AiogramBot
    from aiogram import Dispatcher
    from aiogram.methods import TelegramMethod
    from aiogram.methods.base import TelegramType

    from tidegate.adapters.aiogram.attachment import Attachment
    from tidegate.adapters.aiogram.fsm_storage import SqliteStorage
    from tidegate.adapters.aiogram.queued_method import MethodTicket
    from tidegate.adapters.ptb.rate_limiter import TidegateLimiter

log = logging.getLogger("tidegate")

CHUNK: Final = 250  # messages put in one step
TELL: Final = 60.0  # seconds in which it is of use to hear that one has to wait
LOOK: Final = 2.0  # seconds in which a Redis has to say how it keeps what it holds

Fields = Mapping[str, Any]


class Tidegate:
    """Stands between bots and Telegram. `async with` it, or attach it to a bot; nothing runs before.

    `store`: a file (TIDEGATE_STORE or `tidegate.db` if not given), `redis://…` for many machines, or
    `memory://`. Limits and retries come from `rules` and the environment (`TIDEGATE_BOT_RATE` …).
    """

    def __init__(
        self,
        store: str | Path | None = None,
        *,
        rules: Rules | None = None,
        clock: Clock | None = None,
        wire: BotApiTransport | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.settings = settings or Settings.read()
        self.clock = clock or Clock()
        if store == "":
            raise BadInputError("the store has no name: give a file, such as tidegate.db, or memory://")
        self._store = str(store or self.settings.tidegate_store)
        self._rules = rules or self.settings.rules()
        self._wire = wire
        self._hooks = DeliveryCallbacks(self.clock)
        self._ids = _ids()
        self._handlers = GateHandlers(self)
        self._attachment: Attachment | None = None
        self._loading: asyncio.Task[None] | None = None  # held until it is done, or the gate closes
        self._is_open = self._was_open = False
        self._starts = 0
        self._starting = asyncio.Lock()
        self._clients = UpstreamRegistry(
            self.clock,
            lambda api, rate: self._kept.limiter(api, rate),  # noqa: PLW0108  (there will be another)
        )
        self._pollers: list[Poller] = []
        self._delivering: list[AsyncExitStack] = []  # in which pollers run
        self._running = AsyncExitStack()  # what `start` has opened
        self._assemble({})

    def _assemble(self, bots: Mapping[BotId, BotAccess]) -> None:
        """Anew each time it is opened: what matters is in the store, and the bots stay."""
        self._kept = open_store(self._store, self._terms())
        self._outbox = self._kept.outbox
        policy = RetryBackoff(self.settings.telegram_base_delay, self.settings.telegram_max_delay)
        wire = self._wire or BotApiClient(self.clock, timeout=self.settings.telegram_timeout)
        self._sender = Sender(wire, self.clock, policy=policy)
        self._roster = BotRegistry(self._sender.bots, self._kept.shelf, bots)
        self._sender.look_for_bots = self._roster.look
        self.handler_registry = HandlerRegistry(
            self._kept.inbox,
            self.clock,
            at_once=self.settings.tidegate_handlers,
            deadline=self.settings.tidegate_handler_deadline,
            stall_watch=StallWatch(self.clock) if type(self.clock) is Clock else None,  # not in virtual time
        )
        self.direct = DirectCalls(self._outbox, self._sender, self.clock, self.settings.telegram_max_retries)
        self._campaigns = RunningCampaigns()

    def _terms(self) -> StoreOptions:
        return StoreOptions(
            clock=self.clock,
            rules=self._rules,
            settings=self.settings,
            on_end=self._hooks.note,
            on_bots=self._load_bots_soon,
            serves=lambda: list(self._sender.bots),
        )

    async def __aenter__(self) -> Self:
        if self._is_open:
            raise ClosedError("the gate is open already: one `async with` at a time")
        if self._was_open:
            self._assemble(self._roster.added())
        self._was_open = True
        await self._outbox.open()
        try:
            with suppress(StoreAwayError):  # one that may be opened nevertheless: it is tried again
                await self._roster.load()
            await self._warn_of_risks()
        except BaseException:
            await self._outbox.close()
            raise
        self._hooks.start()
        if self._kept.follows_bots:
            following = self._roster.follow(self.clock, lambda: self._is_open)
            self._loading = asyncio.create_task(following, name="tidegate: bots")
        self._is_open = True
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self._campaigns.close()
            await self._running.aclose()  # a worker that was started, and not stopped
            await self._hooks.stop()
        finally:  # whatever failed: the store is free for the next one
            self._is_open = False
            self._starts = 0
            if self._loading is not None:
                self._loading.cancel()
            if self._attachment is not None:
                self._attachment.closed()
            try:
                await self._warn_of_loss()
            finally:
                await self._clients.close()
                await self._sender.close()
                await self._outbox.close()

    async def _warn_of_risks(self) -> None:
        """What the store could lose is said once. It may not tell, or not in time: then nothing is."""
        with suppress(TidegateError, TimeoutError):
            async with self.clock.timeout(LOOK):
                for risk in await self._kept.risks():
                    log.warning("%s", risk)

    async def _warn_of_loss(self) -> None:
        if not isinstance(self._outbox, MemoryOutbox):  # what waits in the others stays there
            return
        waiting = (await self._outbox.stats()).waiting
        if waiting:
            log.warning("%s messages were waiting and are gone: the store is in memory", waiting)

    @property
    def is_open(self) -> bool:
        return self._is_open

    async def end_broadcasts(self) -> None:
        """Feed no more: what was accepted stays, and the same call goes on from there."""
        await self._campaigns.close()

    async def start(self) -> None:
        """Open it, if nobody did, and deliver in this process: for whoever has no `async with` around.

        Each start needs its `stop`; the last one ends what the first has begun.
        """
        async with self._starting:
            if self._starts == 0:
                async with AsyncExitStack() as stack:
                    if not self._is_open:
                        await stack.enter_async_context(self)
                    await stack.enter_async_context(self.worker())
                    self._running = stack.pop_all()
            self._starts += 1

    async def stop(self) -> None:
        """Take back one `start`."""
        async with self._starting:
            self._starts = max(0, self._starts - 1)
            if self._starts == 0:
                await self._running.aclose()

    # --- bots ---

    def add_bot(self, token: str, *, api_url: str = TELEGRAM, session: SessionFactory | None = None) -> Bot:
        """Let this gate send for a bot. The token stays here; it is not in any text or record.

        `session`: an async function that gives the aiohttp session to send with, such as one with a proxy;
        whoever gives it closes it.
        """
        wire = (
            BotApiClient(self.clock, timeout=self.settings.telegram_timeout, lend=session)
            if session
            else None
        )
        return self._roster.add(token, api_url, wire)

    async def register_bot(self, token: str, *, api_url: str = TELEGRAM) -> Bot:
        """As `add_bot`, and kept in the store, encrypted, for every process that opens it."""
        self._check_open()
        return await self._roster.register(token, api_url)

    async def remove_bot(self, bot: AnyBot) -> bool:
        """Forget a bot's token, here and in the store; whether it was known."""
        self._check_open()
        return await self._roster.remove(bot)

    def bots(self) -> list[BotInfo]:
        """The bots that were added here, and those registered in the store."""
        return self._roster.all()

    async def rotate_tokens(self) -> int:
        """Encrypt every stored token anew with the newest key, all or none; returns how many."""
        self._check_open()
        return await self._roster.rotate()

    def _load_bots_soon(self) -> None:
        """Another process has changed what is registered."""
        self._loading = asyncio.create_task(self._roster.load(), name="tidegate: bots")

    async def _become_sender(self) -> None:
        await self._outbox.start_sending()
        await self._roster.unseal()

    # --- bot libraries ---

    def attach(
        self,
        dispatcher: "Dispatcher | None",
        *bots: "AiogramBot",
        max_wait: float | None = None,
        grace: float = 5.0,
        fsm: bool = True,
        inbox: bool = True,
        throttle: ThrottleRules | bool = True,
    ) -> None:
        """Pace every call of aiogram's bots; open the gate and deliver while the dispatcher runs.

        Calls wait their turn, `max_wait` or TELEGRAM_RATE_LIMIT_WAIT seconds at most, high inside a handler
        of that chat, normal elsewhere. Types and exceptions stay aiogram's. When the dispatcher stops,
        handlers have `grace` seconds to end. Without a dispatcher (None), open the gate yourself.

        Updates that the dispatcher polls for are held in the store before Telegram is told that they came;
        one chat's are handled in order, others beside it; what a dead process left is handled again.
        `inbox=False` leaves them to aiogram. Who writes too much is held off, with one friendly answer
        (`throttle`: rules of your own, or False).

        Conversations in aiogram's MemoryStorage move to the store, a file or Redis, where a restart loses
        none; updates of one are handled one at a time, in all processes. `fsm=False` leaves both alone.
        """
        _check_terms(max_wait, grace, throttle)
        if max_wait is None:
            max_wait = self.settings.telegram_rate_limit_wait
        if self._attachment is None:
            with extra("aiogram", "aiogram"):
                from tidegate.adapters.aiogram.attachment import Attachment  # noqa: PLC0415
            self._attachment = Attachment(self, self)
        redis = self._store if is_redis(self._store) else None
        keeper = self.fsm_storage() if self._kept.conversations is not None else redis
        rules = self.throttle_rules() if throttle is True else throttle or None
        self._attachment.add(
            dispatcher, bots, max_wait, grace, keeper if fsm else None, inbox=inbox, throttle=rules
        )

    def fsm_storage(self) -> "SqliteStorage":
        """For aiogram: its conversations in this gate's file, open while the gate is.

        `attach` uses it by itself. Raises BadInputError if the store is not a file.
        """
        with extra("aiogram", "aiogram"):
            from tidegate.adapters.aiogram.fsm_storage import SqliteStorage  # noqa: PLC0415
        if self._kept.conversations is None:
            raise BadInputError("the gate has no file to keep conversations in: use a storage of aiogram's")
        return SqliteStorage(self._open_conversations)

    async def _open_conversations(self) -> Conversations:
        """Another one each time that the gate is opened; attached to a bot, it opens when it is needed."""
        if not self._is_open and self._attachment is not None:
            await self._attachment.ready()
        return cast("Conversations", self._kept.conversations)

    @overload
    async def queue(
        self,
        call: "TelegramMethod[TelegramType]",
        *,
        bot: "AiogramBot | None" = None,
        **options: Any,  # noqa: ANN401
    ) -> "MethodTicket[TelegramType]": ...

    @overload
    async def queue(self, call: Coroutine[Any, Any, Any], **options: Any) -> LiveTicket: ...  # noqa: ANN401

    async def queue(
        self,
        call: "TelegramMethod[TelegramType] | Coroutine[Any, Any, Any]",
        *,
        bot: "AiogramBot | None" = None,
        **options: Any,
    ) -> "MethodTicket[TelegramType] | LiveTicket":
        """Write a call of a bot down instead of making it now: one that was not awaited.

        aiogram: `message.answer("Hi")` or any method; the ticket's receipt is aiogram's result. A coroutine
        of either library, such as `bot.send_message(chat, "Hi")` or python-telegram-bot's
        `message.reply_text("Hi")`: the receipt holds Telegram's own. `options`: priority, not_before,
        expires_at, dedup_key … as in `send`. A file on disk must be there until it is sent; what is in
        memory, or is downloaded, is written down.
        """
        if self._attachment is not None:
            await self._attachment.deliver()
        if inspect.iscoroutine(call):
            ticket: LiveTicket = await queue_call(call, options)
            return ticket
        with extra("aiogram", "aiogram"):
            from tidegate.adapters.aiogram.queued_method import queue_method  # noqa: PLC0415
        return await queue_method(self, cast("TelegramMethod[TelegramType]", call), bot, options)

    def ptb(self, *, max_wait: float | None = None) -> "TidegateLimiter":
        """A rate limiter for python-telegram-bot: `Application.builder().rate_limiter(gate.ptb())`.

        It opens the gate and delivers while the application runs.
        """
        with extra("ptb", "telegram", "python-telegram-bot"):
            from tidegate.adapters.ptb.rate_limiter import TidegateLimiter  # noqa: PLC0415
        return TidegateLimiter(self, max_wait=max_wait)

    # --- what comes in ---

    def on_update(self, handler: UpdateHandler) -> UpdateHandler:
        """`async def handler(bot, update)` handles updates that come to a webhook, for who uses no library.

        One chat's come in order, others beside it; each at least once. What it puts into the outbox is put
        once.
        """
        self._handlers.handle_updates(handler)
        return handler

    def hook(
        self,
        name: str,
        secret: str | Sequence[str],
        *,
        scheme: SignatureScheme = "standard",
        window: float = HOOK_WINDOW,
        attempts: int = 5,
    ) -> Callable[[HookEventHandler], HookEventHandler]:
        """`@gate.hook("payments", secret)` above `async def handler(event)`: for `POST /hooks/payments`.

        An event is answered as soon as it is held, handled once, and tried again `attempts` times if that
        fails. Several secrets: any is right. `scheme`: "standard" (Standard Webhooks), "stripe", "github",
        or an `HmacSignature`; `window`: seconds that its timestamp may be off.
        """
        hook = Hook(name, parse_secrets(name, secret), scheme, window, attempts=attempts)

        def handle(handler: HookEventHandler) -> HookEventHandler:
            self._handlers.handle_events(hook, handler)
            return handler

        return handle

    def asgi(self, *, webhook: bool = True) -> WebhookApp:
        """An ASGI application: Telegram's webhooks, `/hooks/…`, `/healthz`, `/readyz`.

        It opens the gate, and starts the dispatchers that are attached; with `webhook=False` it leaves them
        alone: they poll. With a store in Redis, several processes may serve it (uvicorn --workers 3).
        """
        self._handlers.runs_library = webhook
        return WebhookApp(self._handlers, self.clock)

    async def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 8080,
        *,
        webhook: bool = True,
        reuse_port: bool = False,
        on_ready: OnReady | None = None,
    ) -> None:
        """Serve `asgi()` until SIGTERM or Ctrl-C. With `reuse_port`, several processes share the port."""
        app = self.asgi(webhook=webhook)

        def ready(port: int) -> None:
            log.info("webhooks, hooks and health are served at http://%s:%s", host, port)
            if on_ready is not None:
                on_ready(port)

        await serve(app, host=host, port=port, reuse_port=reuse_port, on_ready=ready)

    @property
    def reception(self) -> HandlerRegistry:
        """The old name of `handler_registry`, until 1.0."""
        return self.handler_registry

    @property
    def attached_library(self) -> AttachedLibrary | None:
        """The dispatchers that are attached."""
        return self._attachment

    def token_of(self, bot: int) -> str | None:
        """Of a bot that this process sends for. It belongs in no text and no log."""
        access = self._sender.bots.get(BotId(bot))
        return None if access is None else access.token

    def throttle_rules(self) -> ThrottleRules:
        """The usual ones, with what the environment says (TIDEGATE_USER_RATE, TIDEGATE_BUSY_TEXT)."""
        usual, said = ThrottleRules(), self.settings
        return ThrottleRules(
            user=said.tidegate_user_rate or usual.user, text=said.tidegate_busy_text or usual.text
        )

    def throttle(self, rules: ThrottleRules | None = None) -> Throttle:
        """Counts in Redis, if that is the store, for all processes; else in this one."""
        rules = rules or self.throttle_rules()
        return Throttle(rules, self._kept.buckets(rules))

    def throttle_middleware(self, throttle: Throttle) -> ThrottleMiddleware:
        """Puts a throttle before the inbox."""
        return ThrottleMiddleware(throttle, self.tell, self._answer_query)

    async def _answer_query(self, bot: int, query: str, text: str | None) -> None:
        params = {"callback_query_id": query, **({"text": text} if text else {})}
        await self.call("answerCallbackQuery", params, bot=BotId(bot))

    async def tell(self, bot: int, chat_id: int, text: str) -> None:
        """What has no value later, such as that somebody has to wait."""
        await self.send(bot=BotId(bot), chat_id=chat_id, text=text, expires_at=self.clock.now() + TELL)

    # --- what is behind the bot ---

    def upstream(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        rate: Rate = DEFAULT_RATE,
        name: str | None = None,
        timeout: float = TIMEOUT,
        lockout: float = LOCKOUT,
    ) -> Upstream:
        """A client of an API that has a limit: one limit for each host and token, whatever the paths.

        `headers` hold its token, which is in no text. With a store in Redis all processes share the limit.
        `name` is for logs: the host, if none is given. `timeout` is for a connection, and once more for the
        answer. Raises BadInputError if the same API has another rate, timeout or lockout already. It is
        closed with the gate: ask for a new one when that is opened again.
        """
        return self._clients.client(url, headers or {}, UpstreamTerms(rate, timeout, lockout), name)

    def nocodb(self, url: str, token: str, *, rate: Rate = DEFAULT_RATE) -> NocoDb:
        """A NocoDB, by its address and API token: `.table("m…")` has typed records."""
        client = self.upstream(url, headers=token_headers(token), rate=rate, name="NocoDB")
        return NocoDb(client, url_bytes=url_bytes_left(url))

    def subscriptions(self, name: str) -> Subscriptions:
        """Where the poller with this name keeps who waits: in the store, so that they survive a restart.

        They are good for as long as the gate is, also when it was closed and is opened again.
        """
        if not (kept := self._kept.subscriptions(name)).is_durable:
            return kept
        return reopenable_subscriptions(lambda: self._kept, name)

    def flow_sessions(self, flow: str) -> FlowSessionStore:
        """The store of a flow's sessions, for its executor; good until the gate is closed."""
        return self._kept.flow_sessions(flow)

    def poll(self, poller: Poller) -> None:
        """Let a poller run while this gate delivers in this process: between `start` and `stop`, `worker`.

        If that is now, it starts at once.
        """
        if not isinstance(poller, Poller):
            raise BadInputError(f"a poller is a DeltaPoller, BatchPoller or UserPoller, not {poller!r}")
        if poller in self._pollers:
            return
        self._pollers.append(poller)
        for stack in self._delivering[:1]:
            poller.begin()
            stack.push_async_callback(poller.stop)

    # --- sending ---

    async def send(self, *, bot: AnyBot | None = None, **fields: Any) -> LiveTicket:  # noqa: ANN401  (Telegram's)
        """Accept one message; what this returned for is not lost, within what the store promises.

        `chat_id`, `text` and every other parameter as Telegram spells them; `method` if it is not
        sendMessage; `priority`, `urgent`, `not_before`, `expires_at`, `dedup_key`, `coalesce_key`,
        `max_attempts`, `on_unknown` as in `tidegate.model.Message`.
        """
        return (await self.send_many([fields], bot=bot))[0]

    async def send_many(
        self,
        items: Iterable[Fields] | AsyncIterable[Fields],
        *,
        bot: AnyBot | None = None,
        **shared: Any,  # noqa: ANN401
    ) -> list[LiveTicket]:
        """Accept many messages, some hundreds in a step. `shared` fields go to each.

        Bad input stores nothing of its step; what earlier steps accepted stays.
        """
        self._check_open()
        if self._attachment is not None:
            await self._attachment.deliver()
        bot_id = self._roster.id_of(bot)
        tickets: list[LiveTicket] = []
        chunk: list[Message] = []
        async for fields in _each(items):
            if not isinstance(fields, Mapping):
                kind = type(fields).__name__
                raise BadInputError(
                    f"each message is a mapping of fields, such as {{'chat_id': 1}}: got {kind}"
                )
            chunk.append(self._compose(bot_id, {**shared, **fields}))
            if len(chunk) == CHUNK:
                tickets += await self._put(chunk)
                chunk = []
                await self.clock.sleep(0)  # let others run: an audience may be large
        return tickets + await self._put(chunk)

    async def _put(self, messages: list[Message]) -> list[LiveTicket]:
        placed = await self._outbox.put(messages)
        return [LiveTicket(ticket.id, self._outbox, self.clock, fresh=ticket.fresh) for ticket in placed]

    def _compose(self, bot: BotId, fields: Fields, *, keyed: bool = True) -> Message:
        defaults = {"max_attempts": self.settings.telegram_max_retries}
        message = compose(next(self._ids), bot, {**defaults, **fields}, self.clock.now())
        return _keyed(message) if keyed else message

    async def call(
        self,
        method: str,
        params: Fields | None = None,
        *,
        bot: AnyBot | None = None,
        priority: Priority | str = Priority.HIGH,
        max_wait: float | None = None,
    ) -> Any:  # noqa: ANN401  (Telegram's result)
        """Make a call now, paced with everything else, not queued.

        Waits its turn, `max_wait` or TELEGRAM_RATE_LIMIT_WAIT seconds at most (then LimitedError). Retries
        what surely did not happen; raises OutcomeUnknownError for what may have, DeadError for what cannot.
        """
        self._check_open()
        if max_wait is None:
            max_wait = self.settings.telegram_rate_limit_wait
        await self._roster.unseal()
        checked = dict(params or {})
        if checked.get("chat_id") is not None:
            checked["chat_id"] = check_chat(checked["chat_id"])
        return await self.direct.call(
            self._roster.id_of(bot),
            check_method(method),
            checked,
            priority=check_priority(priority),
            max_wait=max_wait,
        )

    async def broadcast(
        self,
        name: str,
        audience: Audience,
        letter: object,
        *,
        bot: AnyBot | None = None,
        on_dead: OnGone | None = None,
        ahead: int | None = None,
        remember: float = REMEMBER_SECONDS,
        total: int | None = None,
        **fields: Any,  # noqa: ANN401  (Telegram's)
    ) -> Campaign:
        """Send to everybody in an audience, in the background; returns once a first row was found fit.

        The same `name` goes on where it stopped: nobody gets it twice within `remember` seconds. `audience`:
        any (async) iterable of chats or rows, or `sql(…)`. `letter`: a template, fields, or a function of the
        row. `on_dead(row, reason)` is told who blocked the bot or is gone. At most `ahead` of its messages
        wait at once. `fields` go to each: what sendMessage takes, priority (low if not given) …
        """
        if self._attachment is not None:
            await self._attachment.deliver()
        self._check_open()
        bot_id = self._roster.id_of(bot)
        shared: dict[str, Any] = {"priority": Priority.LOW, **fields}
        rate = await limit_for(bot_id, shared, self._rules, self._outbox)
        self._check_open()  # still: one that begins now would not be ended with the gate
        campaign = Campaign(
            name,
            audience,
            MessageWriter(letter, shared, self._attachment.letter if self._attachment is not None else None),
            put=lambda items: self.send_many(items, bot=bot_id, **shared),
            outbox=self._outbox,
            clock=self.clock,
            rate=rate,
            ahead=ahead,
            remember=remember,
            total=total,
            on_dead=on_dead,
        )
        return await self._campaigns.start(bot_id, campaign)

    async def send_or_queue(self, *, bot: AnyBot | None = None, **fields: Any) -> Receipt | LiveTicket:  # noqa: ANN401
        """Send at once if the limits allow, queue if they do not. A receipt, or a ticket."""
        self._check_open()
        bot_id = self._roster.id_of(bot)
        message = self._compose(bot_id, fields, keyed=False)
        due = message.not_before is None or message.not_before <= self.clock.now()
        remembered = message.dedup_key is not None or message.coalesce_key is not None  # by the store alone
        if due and not remembered and await self._has_room(message):
            outcome = await self._try_now(message)
            if isinstance(outcome, Delivered):
                return receipt_for(outcome.result)
            parks = isinstance(outcome, Unknown) and message.on_unknown == "park"
            if isinstance(outcome, Dead) or parks:
                raise error_for(outcome, message.method, message.chat_id)
        return (await self._put([_keyed(message)]))[0]

    async def _has_room(self, message: Message) -> bool:
        """A guess, that spares a turn in vain. A store that cannot say it now may still take the message."""
        try:
            return await self.can_send(
                message.chat_id, bot=message.bot, method=message.method, params=message.params
            )
        except StoreError:
            return False

    async def _try_now(self, message: Message) -> Outcome:
        try:
            await self._become_sender()
            params = {"chat_id": message.chat_id, **message.params}
            return await self.direct.once(message.bot, message.method, params)
        except LimitedError:
            return NotSent("someone was faster")
        except NotTheSenderError:
            return NotSent("another process sends")

    async def can_send(
        self,
        chat_id: ChatId,
        max_wait: float = 0.0,
        *,
        bot: AnyBot | None = None,
        method: str = "sendMessage",
        params: Fields | None = None,
    ) -> bool:
        """Whether a call to this chat could be made within `max_wait` seconds. Takes nothing."""
        bot_id, chat = self._roster.id_of(bot), check_chat(chat_id)
        family = family_of(method)
        cost = 0 if family == "free" else cost_of(method, params or {})
        return await self._outbox.wait_for(bot_id, chat, family, cost) <= max_wait

    # --- delivering ---

    def worker(
        self, *, concurrency: int = CONCURRENCY, grace: float = 10.0
    ) -> AbstractAsyncContextManager[object]:
        """`async with` it to deliver in this process while the body runs."""
        self._check_open()
        return self._deliver(
            Worker(self._outbox, self._sender, self.clock, concurrency=concurrency, grace=grace)
        )

    @asynccontextmanager
    async def _deliver(self, worker: Worker) -> AsyncIterator[object]:
        await self._become_sender()
        async with worker, AsyncExitStack() as stack:
            for poller in self._pollers:
                await stack.enter_async_context(poller)
            self._delivering.append(stack)
            try:
                yield worker
            finally:
                self._delivering.remove(stack)

    async def drained(self, bot: AnyBot | None = None) -> None:
        """Wait until nothing waits and nothing is being sent, for one bot or for all."""
        self._check_open()
        await self._outbox.drained(self._roster.id_of(bot) if bot is not None else None)

    def on_delivered(self, hook: OnDelivered) -> OnDelivered:
        """`async def hook(message, result)` is told of each delivery."""
        self._hooks.on_delivered(hook)
        return hook

    def on_dead(self, hook: OnDead) -> OnDead:
        """`async def hook(message, reason)` is told of each message that died, to mark a user as gone."""
        self._hooks.on_dead(hook)
        return hook

    # --- watching ---

    @property
    def outbox(self) -> Outbox:
        """The store itself: find, why, pause, resume, cancel, dead letters."""
        return self._outbox

    @property
    def store(self) -> Store:
        """The store bundle, for operators' commands."""
        return self._kept

    async def stats(self) -> OutboxStats:
        """How many messages are where."""
        return await self._outbox.stats()

    def health(self) -> StoreHealth:
        """Whether the store does all it promises at this moment, as this process knows it: for readiness."""
        return self._outbox.health()

    # --- inside ---

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClosedError(
                "the gate is not open: use it inside `async with gate:`, or while the bot runs that it is"
                " attached to"
            )


def _check_terms(max_wait: object, grace: object, throttle: object) -> None:
    """What would fail much later."""
    for name, value in (("max_wait", max_wait), ("grace", grace)):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and value >= 0) and not (name == "max_wait" and value is None):  # type: ignore[operator]
            raise BadInputError(f"{name} is a number of seconds, not {value!r}")
    if not isinstance(throttle, bool | ThrottleRules):
        raise BadInputError(
            "throttle is True, False or ThrottleRules(user=Rate(30, 60), …), not " + type(throttle).__name__
        )


def _keyed(message: Message) -> Message:
    """Put while an update is handled: if that is handled again, this is not put again."""
    if message.dedup_key is not None or message.coalesce_key is not None:
        return message
    key = effect_key((message.method, message.chat_id, message.params))
    return message if key is None else msgspec.structs.replace(message, dedup_key=key)


def _ids() -> Iterator[TicketId]:
    """Never the same in two processes; rising, so that neighbours in time are neighbours in an index."""
    prefix = secrets.token_hex(6)
    return (TicketId(f"{prefix}-{number:08x}") for number in itertools.count(1))


async def _each(items: Iterable[Fields] | AsyncIterable[Fields]) -> AsyncIterable[Fields]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    elif isinstance(items, Iterable):
        for item in items:
            yield item
    else:
        raise BadInputError(f"messages come from an iterable, or an async one: got {type(items).__name__}")
