"""Tidegate, the facade: one short method for each public verb. The parts behind it are in lifecycle.py."""

import inspect
import logging
import os
import sys
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, ParamSpec, Self, TypeVar, Unpack, cast, overload

from tidegate.adapters.attach_options import AttachOptions, Conversations, Updates
from tidegate.adapters.call_context import queue_call
from tidegate.bots.registry import AnyBot, Bot, BotInfo, bot_number
from tidegate.broadcast.audience import Audience
from tidegate.broadcast.audience_file import AudienceFile
from tidegate.broadcast.campaign import REMEMBER_SECONDS, Campaign, limit_for
from tidegate.broadcast.forecast import Forecast, check_count, forecast
from tidegate.broadcast.message import MessageWriter
from tidegate.broadcast.recorder import (
    CampaignFacts,
    CampaignRecorder,
    describe_audience,
    storable,
)
from tidegate.broadcast.stored_audience import StoredAudience
from tidegate.broadcast.tracker import OnDead as OnGone
from tidegate.campaign_resumer import CampaignKeeper, CampaignResumer, sql_source
from tidegate.clock import Clock
from tidegate.delivery.bot_api import SessionFactory
from tidegate.delivery.callbacks import OnDead, OnDelivered
from tidegate.delivery.send_or_queue import wait_for
from tidegate.delivery.transport import BotApiTransport
from tidegate.delivery.worker import CONCURRENCY, Worker
from tidegate.errors import BadInputError
from tidegate.extras import extra
from tidegate.handler_run import Handler, repeatable
from tidegate.history import History
from tidegate.inbound.handler_registry import HandlerRegistry
from tidegate.inbound.handlers import HookEventHandler, UpdateHandler
from tidegate.inbound.inbox import Inbox
from tidegate.inbound.server import OnReady, serve
from tidegate.inbound.signed_hooks import HOOK_WINDOW, EventIdentity, Hook, SignatureScheme, parse_secrets
from tidegate.inbound.throttle import Throttle, ThrottleRules
from tidegate.inbound.updates import Order
from tidegate.inbound.webhook_app import WebhookApp
from tidegate.jobs.job import FAILED_TEXT, Job, JobOptions
from tidegate.jobs.jobs import Jobs, submits_events
from tidegate.lifecycle import GateCore
from tidegate.model import BotId, BotLimits, ChatId, Priority, Rate, TicketId
from tidegate.ops.history import HistoryRecorder, recorder_of
from tidegate.ops.incident_callbacks import IncidentCallbacks, OnIncident
from tidegate.ops.loop_delay import LoopDelay
from tidegate.ops.vitals import Vitals
from tidegate.ops.watchdog import Watchdog
from tidegate.outbox.admission import check_chat
from tidegate.outbox.campaigns import CampaignRecord
from tidegate.outbox.message_times import absolute_times
from tidegate.outbox.port import Outbox, OutboxStats, StoreHealth
from tidegate.outbox.producer import Fields
from tidegate.outbox.tickets import LiveTicket, Receipt
from tidegate.pacing.rules import Rules
from tidegate.polling.poller import Poller
from tidegate.polling.subscriptions import Subscriptions, reopenable_subscriptions
from tidegate.reminders.reminders import Reminders
from tidegate.settings import Settings, log_misspelt_variables
from tidegate.upstream.client import DEFAULT_RATE, LOCKOUT, Upstream, UpstreamTerms
from tidegate.upstream.http_transport import TIMEOUT
from tidegate.upstream.nocodb.client import NocoDb, token_headers, url_bytes_left

if TYPE_CHECKING:  # each is there only if it is used
    from aiogram import Bot as AiogramBot
    from aiogram import Dispatcher
    from aiogram.methods import TelegramMethod
    from aiogram.methods.base import TelegramType

    from tidegate.adapters.aiogram.fsm_storage import SqliteStorage
    from tidegate.adapters.aiogram.queued_method import MethodTicket
    from tidegate.adapters.ptb.attachment import Builder as PtbBuilder
    from tidegate.adapters.ptb.rate_limiter import TidegateLimiter
    from tidegate.database.database import Database
    from tidegate.outbox.message_fields import MessageFields, SendOptions

log = logging.getLogger("tidegate")

P = ParamSpec("P")
R = TypeVar("R")
HookHandler = TypeVar("HookHandler", bound=HookEventHandler | Job[..., Any])


class Tidegate:
    """Stands between bots and Telegram. `async with` it, or attach it to a bot; nothing runs before.

    `store`: a file, `redis://…` for many machines, or `memory://`; if not given, TIDEGATE_STORE,
    else REDIS_URL, else `tidegate.db`. Limits and retries come from `rules` and the environment
    (`TIDEGATE_BOT_RATE` …). `clock`, `wire` and `seed` (of the jitter of retries) are for simulations: with
    all three, a run can be repeated.
    """

    def __init__(
        self,
        store: str | Path | None = None,
        *,
        rules: Rules | None = None,
        clock: Clock | None = None,
        wire: BotApiTransport | None = None,
        settings: Settings | None = None,
        seed: int | None = None,
    ) -> None:
        if not isinstance(store, str | os.PathLike | None):
            kind = type(store).__name__
            raise BadInputError(
                f"a store is a text or a path, not of type {kind}: give a file, redis://… or memory://"
            )
        if store == "":
            raise BadInputError("the store has no name: give a file, such as tidegate.db, or memory://")
        self.settings = settings or Settings.read()
        self.clock = clock or Clock()
        if store is None and (file := self.settings.overlooked_file()) is not None:
            log.warning(
                "the store is Redis, by REDIS_URL; %s in this folder is not used: move what is in it with"
                " tidegate move, or set TIDEGATE_STORE=%s",
                file,
                file,
            )
        if settings is None:
            log_misspelt_variables()
        name, rules = str(store or self.settings.store.place), rules or self.settings.rules()
        self.core = GateCore(
            name, settings=self.settings, clock=self.clock, rules=rules, transport=wire, seed=seed
        )
        """Internal: for the adapters of bot libraries. Its methods may change at any time."""
        self._watchdog = Watchdog(self.core.incidents, self.settings, self.clock)
        self._incident_callbacks = IncidentCallbacks(self.core.incidents, self.clock)
        self.core.watchers += [self._incident_callbacks, self._watchdog]
        self.core.vitals = Vitals(self.core.events, self.clock, self._watchdog.loop_delay).reading
        self._history_recorder: HistoryRecorder | None = None
        if self.settings.tidegate_history and type(self.clock) is Clock:  # drivers need real time
            self.record_history()
        self._resumer = CampaignResumer(self.broadcast, self.core)

    @property
    def is_open(self) -> bool:
        """Return whether messages can be put and sent now."""
        return self.core.is_open

    async def __aenter__(self) -> Self:
        await self.core.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.core.close()

    async def start(self) -> None:
        """Open the gate, if it is not open, and deliver in this process, without an `async with`.

        Each start needs its `stop`; the last one ends what the first has begun.
        """
        await self.core.start()

    async def stop(self) -> None:
        """Take back one `start`."""
        await self.core.stop()

    def add_bot(
        self, token: str, *, api_url: str | None = None, session: SessionFactory | None = None
    ) -> Bot:
        """Let this gate send for a bot. The token stays here; it is in no text or record.

        `api_url`: of your own Bot API server; without it, that of the registered bot, or else Telegram's.
        `session`: an async function that returns the aiohttp session to send with, such as one with a proxy;
        the caller closes it.
        """
        return self.core.add_bot(token, api_url=api_url, session=session)

    async def register_bot(self, token: str, *, api_url: str | None = None) -> Bot:
        """Add a bot and store its token, encrypted, for every process that opens the store.

        A bot that is registered keeps its address, unless another one is given.
        """
        self.core.check_open()
        return await self.core.registry.register(token, api_url)

    async def remove_bot(self, bot: AnyBot) -> bool:
        """Forget a bot's token, here and in the store; return whether it was known."""
        self.core.check_open()
        return await self.core.registry.remove(bot)

    def bots(self) -> list[BotInfo]:
        """Return the bots that were added here, and those registered in the store."""
        return self.core.bots()

    async def rotate_tokens(self) -> int:
        """Encrypt every stored token anew with the newest key, all or none; return how many."""
        self.core.check_open()
        return await self.core.registry.rotate()

    @overload
    def attach(
        self,
        target: "Dispatcher | None",
        *bots: "AiogramBot",
        max_wait: float | None = None,
        grace: float = 5.0,
        updates: Updates = "library",
        conversations: Conversations = "library",
        throttle: ThrottleRules | bool = False,
        order: Order = "user",
        inbox: bool | None = None,
        fsm: bool | None = None,
    ) -> None: ...

    @overload
    def attach(
        self,
        target: "PtbBuilder",
        *,
        max_wait: float | None = None,
        grace: float = 5.0,
        updates: Updates = "library",
        throttle: ThrottleRules | bool = False,
        order: Order = "user",
        inbox: bool | None = None,
    ) -> "PtbBuilder": ...

    def attach(
        self,
        target: Any,
        *bots: "AiogramBot",
        max_wait: float | None = None,
        grace: float = 5.0,
        updates: Updates = "library",
        conversations: Conversations = "library",
        throttle: ThrottleRules | bool = False,
        order: Order = "user",
        inbox: bool | None = None,
        fsm: bool | None = None,
    ) -> Any:
        """Pace every call of a bot library; open the gate and deliver while the bot runs.

        aiogram: `gate.attach(dispatcher, bot)`. python-telegram-bot: the builder of the application comes
        back, `gate.attach(Application.builder().token(TOKEN)).build()`.

        Calls wait their turn, `max_wait` or TELEGRAM_RATE_LIMIT_WAIT seconds at most, with high priority
        inside a handler of that chat, normal elsewhere. Types and exceptions stay the library's. When
        the bot stops, handlers have `grace` seconds to end. Without a dispatcher (None), open the gate
        yourself. Nothing else changes, unless it is switched on:

        `updates="durable"`: polled updates are stored before Telegram is told that they came, and those that
        a killed process left are handled again. Updates of one user in a chat are handled one after another,
        others side by side (`order="chat"`: of one chat; `"none"`: all side by side).

        `conversations="store"` (aiogram): conversations in its MemoryStorage move to the store and survive a
        restart; updates of one conversation are handled one at a time, in all processes.

        `throttle=True`, or rules of your own: messages of a user above a rate are dropped, and the user is
        told once.

        `inbox` and `fsm` are the switches before 1.0: use `updates` and `conversations`.
        """
        switches = AttachOptions.checked(
            max_wait=max_wait,
            grace=grace,
            updates=updates if inbox is None else ("durable" if inbox else "library"),
            conversations=conversations if fsm is None else ("store" if fsm else "library"),
            throttle=throttle,
            order=order,
        )
        core = self.core
        if _is_ptb_builder(target):
            from tidegate.adapters.ptb.attachment import attach  # noqa: PLC0415

            return attach(core, target, switches)
        if core.attachment is None:
            with extra("aiogram"):
                from tidegate.adapters.aiogram.attachment import Attachment  # noqa: PLC0415
            core.attachment = Attachment(core, self)
        core.attachment.add(target, bots, switches)
        return None

    @staticmethod
    def repeatable(handler: Handler) -> Handler:
        """Mark a handler of durable updates that may run again from its start: `@gate.repeatable`.

        When the process stops and the handler has not ended in time, its update is handled again by the next
        process. That of a handler without this mark is parked.
        """
        return repeatable(handler)

    def fsm_storage(self) -> "SqliteStorage":
        """Return a storage for aiogram's conversations in this gate's file, open while the gate is.

        `attach(…, conversations="store")` uses it by itself. Raises BadInputError if the store is not a file.
        """
        with extra("aiogram"):
            from tidegate.adapters.aiogram.fsm_storage import SqliteStorage  # noqa: PLC0415
        if self.core.store.conversations is None:
            raise BadInputError("the gate has no file to keep conversations in: use a storage of aiogram's")
        return SqliteStorage(self.core.conversations)

    @overload
    async def queue(
        self,
        call: "TelegramMethod[TelegramType]",
        *,
        bot: "AiogramBot | None" = None,
        **options: "Unpack[SendOptions]",
    ) -> "MethodTicket[TelegramType]": ...

    @overload
    async def queue(self, call: Coroutine[Any, Any, Any], **options: "Unpack[SendOptions]") -> LiveTicket: ...

    async def queue(
        self,
        call: "TelegramMethod[TelegramType] | Coroutine[Any, Any, Any]",
        *,
        bot: "AiogramBot | None" = None,
        **options: "Unpack[SendOptions]",
    ) -> "MethodTicket[TelegramType] | LiveTicket":
        """Write a call of a bot down instead of making it now. Give the call without awaiting it.

        aiogram: `message.answer("Hi")` or any method; the ticket's receipt is aiogram's result. A coroutine
        of either library, such as `bot.send_message(chat, "Hi")` or python-telegram-bot's
        `message.reply_text("Hi")`: the receipt holds Telegram's own. `options`: priority, not_before,
        expires_at, dedup_key … as in `send`. A file on disk must be there until it is sent; content in
        memory, or downloaded, is stored.
        """
        await self.core.ready_to_deliver()
        if inspect.iscoroutine(call):
            ticket: LiveTicket = await queue_call(call, options)
            return ticket
        with extra("aiogram"):
            from tidegate.adapters.aiogram.queued_method import queue_method  # noqa: PLC0415
        return await queue_method(self.core, cast("TelegramMethod[TelegramType]", call), bot, options)

    def ptb(self, *, max_wait: float | None = None) -> "TidegateLimiter":
        """Return a rate limiter for python-telegram-bot: `Application.builder().rate_limiter(gate.ptb())`.

        It opens the gate and delivers while the application runs.
        """
        with extra("telegram"):
            from tidegate.adapters.ptb.rate_limiter import TidegateLimiter  # noqa: PLC0415
        return TidegateLimiter(self.core, max_wait=max_wait)

    def on_update(self, handler: UpdateHandler) -> UpdateHandler:
        """Register `async def handler(bot, update)` for webhook updates, for bots without a library.

        Updates of one chat are handled in order, chats side by side; each at least once. What the handler
        puts into the outbox is put once.
        """
        self.core.handlers.handle_updates(handler)
        return handler

    def on_hook(
        self,
        name: str,
        secret: str | Sequence[str],
        *,
        scheme: SignatureScheme = "standard",
        window: float = HOOK_WINDOW,
        attempts: int = 5,
        dedup: EventIdentity = "id",
    ) -> Callable[[HookHandler], HookHandler]:
        """Register `async def handler(event)` for signed events: `@gate.on_hook("payments", secret)`.

        They arrive at `POST /hooks/payments`, as a payment provider sends them. An event is acknowledged as
        soon as it is stored, handled once, and tried again `attempts` times if that fails. Any of several
        secrets is accepted. `scheme`: "standard" (Standard Webhooks), "stripe", "github", or an
        `HmacSignature`; `window`: seconds that its timestamp may be off. `dedup`: an event is recognised for
        24 hours by its id or, with "body", by its body: GitHub does not sign the id.

        A job in place of a handler is submitted with each event, as a dictionary: `hook`, `id`, `timestamp`,
        `received_at`, `headers`, `body` (bytes) and `json` (None if the body is not JSON).
        """
        hook = Hook(name, parse_secrets(name, secret), scheme, window, attempts=attempts, dedup=dedup)

        def register(handler: HookHandler) -> HookHandler:
            takes = submits_events(handler) if isinstance(handler, Job) else handler
            self.core.handlers.handle_events(hook, takes)
            return handler

        return register

    hook = on_hook  # the name before 1.0

    def asgi(self, *, webhook: bool = True) -> WebhookApp:
        """Return an ASGI application: Telegram's webhooks, `/hooks/…`, `/healthz`, `/readyz`.

        It opens the gate and starts the attached dispatchers; with `webhook=False` it leaves them alone, to
        poll. With a store in Redis, several processes may serve it (uvicorn --workers 3).
        """
        self.core.handlers.runs_library = webhook
        return WebhookApp(self.core.handlers, self.core.clock)

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

        def ready(port: int) -> None:
            log.info("webhooks, hooks and health are served at http://%s:%s", host, port)
            if on_ready is not None:
                on_ready(port)

        app = self.asgi(webhook=webhook)
        await serve(
            app,
            host=host,
            port=port,
            reuse_port=reuse_port,
            on_ready=ready,
            on_second_signal=self.core.end_at_once,
        )

    @property
    def inbox(self) -> Inbox:
        """The updates and events that wait to be handled or were parked."""
        return self.core.store.inbox

    @property
    def reception(self) -> HandlerRegistry:
        """The name before 1.0: use `inbox`."""
        return self.core.handler_registry

    def throttle(self, rules: ThrottleRules | None = None, name: str = "own") -> Throttle:
        """Return a throttle of your own, shared by all processes if the store is Redis.

        There, throttles of the same name count together: give each a name, such as that of its handler.
        """
        if rules is not None and rules.is_queue:
            raise BadInputError(
                'over="queue" needs an inbox: give the rules to attach, with updates="durable"'
            )
        return self.core.throttle(rules, name)

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
        """Return the client of a rate-limited API: one limit for each host and token, whatever the paths.

        `headers` hold its token, which is in no text. With a store in Redis all processes share the limit.
        `name` is for logs; the host, if not given. `timeout` is for a connection, and once more for the
        answer. Raises BadInputError if the same API has another rate, timeout or lockout already. It is
        closed with the gate: ask for a new one when the gate is opened again.
        """
        terms = UpstreamTerms(rate, timeout, lockout)
        return self.core.upstreams.client(url, headers or {}, terms, name)

    def nocodb(self, url: str, token: str, *, rate: Rate = DEFAULT_RATE) -> NocoDb:
        """Return a NocoDB by its address and API token: `.table("m…")` has typed records."""
        client = self.upstream(url, headers=token_headers(token), rate=rate, name="NocoDB")
        return NocoDb(client, url_bytes=url_bytes_left(url))

    def subscriptions(self, name: str) -> Subscriptions:
        """Return the stored subscriptions of the poller with this name. They survive a restart.

        They stay usable when the gate is closed and opened again.
        """
        subscriptions = self.core.store.subscriptions(name)
        if not subscriptions.is_durable:
            return subscriptions
        return reopenable_subscriptions(lambda: self.core.store, name)

    def add_poller(self, poller: Poller) -> None:
        """Run a poller while this gate delivers in this process: between `start` and `stop`, in `worker`.

        If that is now, it starts at once.
        """
        if not isinstance(poller, Poller):
            raise BadInputError(f"a poller is a DeltaPoller, BatchPoller or UserPoller, not {poller!r}")
        self.core.add_poller(poller)

    poll = add_poller  # the name before 1.0

    @property
    def reminders(self) -> Reminders:
        """Messages that are sent when it is time: add, list, pause, resume, snooze, change, remove."""
        return self.core.reminders

    @overload
    def job(self, function: Callable[P, R], /) -> Job[P, R]: ...

    @overload
    def job(
        self,
        /,
        *,
        retries: int = 3,
        pause: float = 60.0,
        timeout: float = 300.0,
        failed_text: str | None = FAILED_TEXT,
        name: str | None = None,
    ) -> Callable[[Callable[P, R]], Job[P, R]]: ...

    def job(
        self,
        function: Callable[P, R] | None = None,
        /,
        *,
        retries: int = 3,
        pause: float = 60.0,
        timeout: float = 300.0,
        failed_text: str | None = FAILED_TEXT,
        name: str | None = None,
    ) -> Job[P, R] | Callable[[Callable[P, R]], Job[P, R]]:
        """Let a heavy function run in another process: `@gate.job`, then `await function.submit(…)`.

        It runs in a pool of processes on this machine or, with CELERY_BROKER_URL, on workers of Celery. One
        that raises, or takes longer than `timeout` seconds, is tried again after `pause` seconds, `retries`
        times; then it is dead, and its chat hears `failed_text` (None: nothing). A job whose process was
        killed runs again from its start. The function is at the top of a module; `name` is for records.
        """
        options = JobOptions(retries=retries, pause=pause, timeout=timeout, failed_text=failed_text)
        if function is not None:
            return self.core.jobs.declare(function, options)
        return lambda given: self.core.jobs.declare(given, options, name)

    @property
    def jobs(self) -> Jobs:
        """The jobs that were submitted: list, get, counts, queue_length, cancel, retry."""
        return self.core.jobs

    @property
    def database(self) -> "Database":
        """The SQL database of reminders and jobs, for tables of your own: `await gate.database.open()` first.

        Then `async with gate.database.write() as transaction`, or `.read()`, which asks the replica if there
        is one. Needs the extra `sql`. It is closed with the gate.
        """
        return self.core.database

    @property
    def history(self) -> History:
        """The messages that were recorded: list, search, find, chain, stats."""
        return self.core.history

    @property
    def history_recorder(self) -> HistoryRecorder | None:
        """The recorder of the history, with its counts: written, dropped, waiting; or None."""
        return self._history_recorder

    def record_history(self) -> HistoryRecorder | None:
        """Record every message in and out in the database from now on, for TIDEGATE_HISTORY or 30 days.

        Returns the recorder, the same each time. With TIDEGATE_HISTORY=off it does nothing, and returns None.
        Nothing waits for it: rows are written beside the bot, about a second later. Needs the extra `sql`.
        """
        if self.settings.tidegate_history == 0:
            return None
        if self._history_recorder is None:
            self._history_recorder = recorder_of(
                self.core.events, self.core.history, self.clock, self.settings, self.core.store_name
            )
            self.core.add_companion(self._history_recorder)
        return self._history_recorder

    async def send(
        self, *unnamed: Never, bot: AnyBot | None = None, **fields: "Unpack[MessageFields]"
    ) -> LiveTicket:
        """Accept one message; what this returned for is not lost, within what the store promises.

        `chat_id`, `text` and every other parameter as Telegram spells them; `method` if it is not
        sendMessage; `priority`, `urgent`, `not_before`, `expires_at`, `dedup_key`, `coalesce_key`,
        `max_attempts`, `on_unknown` as in the reference.
        """
        _refuse_unnamed("send", unnamed)
        return await self.core.send(bot=bot, **fields)

    async def send_many(
        self,
        items: Iterable[Fields] | AsyncIterable[Fields],
        *,
        bot: AnyBot | None = None,
        **shared: "Unpack[MessageFields]",
    ) -> list[LiveTicket]:
        """Accept many messages, some hundreds in a step. `shared` fields go to each.

        Bad input stores nothing of its step; what earlier steps accepted stays.
        """
        self.core.check_open()
        await self.core.ready_to_deliver()
        return await self.core.producer.send_many(self.core.registry.id_of(bot), items, shared)

    async def send_or_queue(
        self, *unnamed: Never, bot: AnyBot | None = None, **fields: "Unpack[MessageFields]"
    ) -> Receipt | LiveTicket:
        """Send at once if the limits allow, queue if they do not. Returns a receipt, or a ticket."""
        _refuse_unnamed("send_or_queue", unnamed)
        self.core.check_open()
        return await self.core.send_or_queue(self.core.registry.id_of(bot), fields)

    async def call(
        self,
        method: str,
        params: Fields | None = None,
        *,
        bot: AnyBot | None = None,
        priority: Priority | str = Priority.HIGH,
        max_wait: float | None = None,
        extra: Fields | None = None,
    ) -> Any:  # noqa: ANN401  (Telegram's result)
        """Make a call now, paced with everything else, not queued.

        Waits its turn, `max_wait` or TELEGRAM_RATE_LIMIT_WAIT seconds at most (then LimitedError). Retries
        what surely did not happen; raises OutcomeUnknownError for what may have, DeadError for what cannot.
        Parameters that the method does not have are refused; `extra` are sent as they are.
        """
        return await self.core.call(
            method, params, bot=bot, priority=priority, max_wait=max_wait, extra=extra
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
        **fields: Any,  # noqa: ANN401  (TypedDict has `name`, too)
    ) -> Campaign:
        """Send to everybody in an audience, in the background; return once a first row was found fit.

        The same `name` goes on where it stopped: nobody gets it twice within `remember` seconds. `audience`:
        any (async) iterable of chats or rows, or `sql(…)`. `letter`: a template, fields, or a function of the
        row. `on_dead(row, reason)` is told who blocked the bot or is gone. At most `ahead` of its messages
        wait at once. `fields` go to each: what sendMessage takes, priority (low if not given) …
        """
        core = self.core
        await core.ready_to_deliver()
        core.check_open()
        bot_id = core.registry.id_of(bot)
        # A delay counts from now, not from when each message is put.
        shared: dict[str, Any] = {"priority": Priority.LOW, **absolute_times(fields, core.clock.now())}
        rate = await limit_for(bot_id, shared, core.rules, core.outbox)
        core.check_open()  # still: a campaign that begins now would not be ended with the gate
        campaign = Campaign(
            name,
            audience,
            MessageWriter(
                letter, shared, core.attachment.broadcast_fields if core.attachment is not None else None
            ),
            put=lambda items: self.send_many(items, bot=bot_id, **shared),
            outbox=core.outbox,
            clock=core.clock,
            rate=rate,
            ahead=ahead,
            remember=remember,
            total=total,
            on_dead=on_dead,
        )
        facts = CampaignFacts(
            bot=bot_id,
            audience=describe_audience(audience),
            fields=storable(shared) or {},
            remember=remember,
            ahead=ahead,
            source=None if on_dead is not None else sql_source(audience, letter, shared, self.settings),
            stored=audience.source if isinstance(audience, StoredAudience) else None,
        )
        recorder = CampaignRecorder(core.store.campaigns, core.clock, facts)
        return await core.campaigns.start(bot_id, campaign, recorder)

    async def start_broadcast(
        self,
        name: str,
        rows: Audience | AudienceFile,
        letter: str | Mapping[str, Any] | None = None,
        *,
        bot: AnyBot | None = None,
        ahead: int | None = None,
        remember: float = REMEMBER_SECONDS,
        **fields: Any,  # noqa: ANN401  (TypedDict has `name`, too)
    ) -> CampaignRecord:
        """Store an audience in the SQL database and begin its broadcast; what this returned for is not lost.

        `rows`: any (async) iterable of chats or rows, or a file. Every row is checked first: if one is bad,
        BadRowsError names it, and nothing is stored. `letter`: a template, or fields; None: each row has its
        `text`. The same call again returns the broadcast that runs; other rows or another letter under its
        name raise ConflictError until it has ended. `ahead`, `remember` and `fields` as in `broadcast`.
        """
        core = self.core
        await core.ready_to_deliver()
        core.check_open()
        bot_id = core.registry.id_of(bot)
        return await self._resumer.stored.start(
            name, rows, letter, bot_id, remember=remember, ahead=ahead, fields=fields
        )

    async def campaigns(self, *, resume: bool = False, patience: float | None = None) -> list[CampaignRecord]:
        """Return the broadcasts that the store knows, the oldest first, with their state and counts.

        The messages of those that no process runs are counted, which takes seconds for a million. With
        `patience`, it waits so many seconds for that, and else gives the latest counts that are known.

        With `resume`, those that ran when their process ended go on in this one, if they need none of the
        application's functions: those of `start_broadcast`, and an audience `sql(…)` with a template or
        fields. For others make the same call of `broadcast` again. After a crash this takes some seconds, to
        see whether another process runs them.
        """
        self.core.check_open()
        if resume:
            await self._resumer.resume_all()
            await self._resumer.stored.tend()
        return await self.core.campaign_control.all(patience)

    def keep_campaigns(self) -> CampaignKeeper:
        """`async with` it, beside `worker`: broadcasts that a process has left go on in this one by itself.

        Those that `campaigns(resume=True)` could resume. `tidegate worker` does so. One process of many looks
        for them, every ten seconds.
        """
        self.core.check_open()
        return CampaignKeeper(self._resumer, self.core)

    async def forecast(self, messages: int, *, bot: AnyBot | None = None, **fields: Any) -> Forecast:  # noqa: ANN401
        """Return how long so many messages of a broadcast take, and when the last one leaves.

        By the limit of the bot, learned or set, if nothing else is sent. `fields` as in `broadcast`.
        """
        self.core.check_open()
        check_count("messages", messages)
        rate = await limit_for(self.core.registry.id_of(bot), fields, self.core.rules, self.core.outbox)
        return forecast(messages, rate, self.clock.now())

    async def campaign(
        self, name: str, *, bot: AnyBot | None = None, patience: float | None = None
    ) -> CampaignRecord:
        """Return one broadcast of the store; `patience` as in `campaigns`. Raises UnknownNameError."""
        self.core.check_open()
        return await self.core.campaign_control.find(name, bot_number(bot), patience)

    async def pause_campaign(self, name: str, *, bot: AnyBot | None = None) -> CampaignRecord:
        """Let a broadcast put no more messages, whichever process runs it; those in the queue are sent.

        Returns once that is so. A pause survives a restart. Raises BadInputError if all are in the queue.
        """
        self.core.check_open()
        return await self.core.campaign_control.steer(name, "pause", bot_number(bot))

    async def resume_campaign(self, name: str, *, bot: AnyBot | None = None) -> CampaignRecord:
        """End a pause. One whose process has ended (`stopped`) goes on once a process resumes it."""
        self.core.check_open()
        return await self.core.campaign_control.steer(name, "run", bot_number(bot))

    async def cancel_campaign(self, name: str, *, bot: AnyBot | None = None) -> CampaignRecord:
        """End a broadcast and cancel its messages that wait, whether its process runs or not."""
        self.core.check_open()
        return await self.core.campaign_control.steer(name, "cancel", bot_number(bot))

    async def can_send(
        self,
        chat_id: ChatId,
        max_wait: float = 0.0,
        *,
        bot: AnyBot | None = None,
        method: str = "sendMessage",
        params: Fields | None = None,
    ) -> bool:
        """Return whether a call to this chat could be made within `max_wait` seconds. Takes nothing."""
        bot_id = self.core.registry.id_of(bot)
        return await wait_for(self.core.outbox, bot_id, check_chat(chat_id), method, params or {}) <= max_wait

    async def cancel(
        self,
        ticket: "LiveTicket | MethodTicket[Any] | str | None" = None,
        *,
        key: str | None = None,
        bot: AnyBot | None = None,
    ) -> bool:
        """Take a message back by its ticket or id, or by its dedup key; return whether it was waiting.

        One that is being sent, or has ended, is not touched. The key stays used until `dedup_for` is over:
        to send anew before that, use another one.
        """
        self.core.check_open()
        outbox = self.core.outbox
        if (ticket is None) == (key is None):
            raise BadInputError("cancel takes a ticket, or the dedup key of a message as key=…: give one")
        if key is not None:
            found = await outbox.find_by_key(self.core.registry.id_of(bot), key)
        else:
            found = TicketId(ticket if isinstance(ticket, str) else ticket.id)  # type: ignore[union-attr]
        return found is not None and await outbox.cancel([found]) == 1

    def worker(
        self, *, concurrency: int = CONCURRENCY, grace: float = 10.0, reminders: bool = True
    ) -> AbstractAsyncContextManager[Worker]:
        """`async with` it to deliver in this process while the body runs.

        Without `reminders`, they are left to `tidegate scheduler` or another process.
        """
        core = self.core
        core.check_open()
        worker = Worker(
            core.outbox, core.sender, core.clock, core.events, concurrency=concurrency, grace=grace
        )
        return core.deliver(worker, reminders=reminders)

    async def drained(self, bot: AnyBot | None = None) -> None:
        """Wait until nothing waits and nothing is being sent, for one bot or for all."""
        self.core.check_open()
        await self.core.outbox.drained(self.core.registry.id_of(bot) if bot is not None else None)

    def on_delivered(self, callback: OnDelivered) -> OnDelivered:
        """Call `async def callback(message, result)` for each delivered message."""
        self.core.callbacks.on_delivered(callback)
        return callback

    def on_dead(self, callback: OnDead) -> OnDead:
        """Call `async def callback(message, reason)` for each message that died, to mark a user as gone."""
        self.core.callbacks.on_dead(callback)
        return callback

    @property
    def outbox(self) -> Outbox:
        """The outbox itself: find, why, pause, resume, cancel, dead letters."""
        return self.core.outbox

    async def stats(self) -> OutboxStats:
        """Return how many messages are in which state."""
        return await self.core.outbox.stats()

    async def own_limits(self) -> dict[BotId, BotLimits]:
        """Return the limits that were set for single bots; the others have those of the rules."""
        self.core.check_open()
        return await self.outbox.own_limits()

    async def set_limits(self, limits: BotLimits, *, bot: AnyBot | None = None) -> None:
        """Give a bot limits of its own, at once and in every process; `BotLimits()`: those of the rules.

        They replace those that it had, are kept in the store, and count what was sent before. Raises
        BadInputError for limits that cannot be meant.
        """
        self.core.check_open()
        await self.outbox.set_limits(self.core.registry.id_of(bot), limits)

    def on_incident(self, callback: OnIncident) -> OnIncident:
        """Call `callback(incident)` for each reported incident: a blocked loop, something slow, many errors.

        An async function runs in the loop, any other one in a thread: it is called even while the loop hangs.
        """
        self._incident_callbacks.add(callback)
        return callback

    def loop_delay(self) -> LoopDelay:
        """Return how late the event loop was, in seconds, since this gate has been delivering."""
        return self._watchdog.loop_delay()

    def health(self) -> StoreHealth:
        """Return whether this process and its store do all they promise now, and if not, why."""
        return self.core.health()

    def report_to_sentry(self) -> bool:
        """Report errors of this process, and incidents such as a blocked loop, to the Sentry of SENTRY_DSN.

        Call it once, before the bot runs. Without SENTRY_DSN it does nothing, and returns False. If the
        application has called `sentry_sdk.init`, its settings stay, and only incidents are added. Reports
        hold no secrets, and no texts of users unless TIDEGATE_SENTRY_TEXTS=1. Needs the extra `sentry`.
        """
        if self.settings.sentry_dsn is None and "sentry_sdk" not in sys.modules:
            return False
        with extra("sentry_sdk"):
            from tidegate.ops.sentry import start_sentry  # noqa: PLC0415
        return start_sentry(self.settings, self.core.incidents, self.clock)


def _refuse_unnamed(method: str, given: Sequence[object]) -> None:
    if given:
        raise BadInputError(f'{method} takes its fields by name: gate.{method}(chat_id=1001, text="Hello")')


def _is_ptb_builder(target: object) -> bool:
    library = sys.modules.get("telegram.ext")  # whoever has a builder has imported it
    return library is not None and isinstance(target, library.ApplicationBuilder)
