"""Attaches a gate to aiogram's dispatchers and bots: it runs while they run."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from aiogram import Bot, Dispatcher, Router
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.session.base import BaseSession
from aiogram.client.session.middlewares.base import NextRequestMiddlewareType
from aiogram.dispatcher.middlewares.user_context import EVENT_CONTEXT_KEY, EventContext
from aiogram.fsm.storage.base import BaseStorage
from aiogram.methods import GetUpdates, TelegramMethod
from aiogram.types import TelegramObject

from tidegate.adapters.aiogram.fsm_storage import has_default_storage, use_file_storage
from tidegate.adapters.aiogram.queued_method import fields_of
from tidegate.adapters.aiogram.session_middleware import PacingMiddleware
from tidegate.adapters.aiogram.throttle import AiogramThrottleMiddleware, NextUpdateHandler
from tidegate.adapters.aiogram.updates import DispatcherInbox
from tidegate.adapters.attach_options import AttachOptions
from tidegate.adapters.call_context import begin_reply, end_reply
from tidegate.adapters.port import Gate
from tidegate.errors import BadInputError, ClosedError, NotTheSenderError
from tidegate.events import UpdateReceived
from tidegate.inbound.throttle import Throttle, ThrottleRules
from tidegate.inbound.throttle_middleware import SendNotice
from tidegate.inbound.updates import Order
from tidegate.leader_lease import take_over
from tidegate.model import BotId
from tidegate.outbox.effect_keys import in_handler
from tidegate.stop_notice import log_wait
from tidegate.stores import is_redis

log = logging.getLogger("tidegate")

_STANDARD_PATH: Final = "/bot{token}/{method}"


class AttachedDispatcher:
    """A dispatcher and its bots. `updates` is set while it runs, if its updates go through the inbox."""

    def __init__(
        self, dispatcher: Dispatcher, *, inbox: bool, order: Order, rules: ThrottleRules | None
    ) -> None:
        self.dispatcher = dispatcher
        self.bots: list[Bot] = []
        self.has_inbox = inbox
        self.order: Order = order
        self.updates: DispatcherInbox | None = None
        self.is_running = False
        self.handler_data: dict[str, Any] = {}  # arguments that its handlers may take
        self.rules = rules
        self.throttle: Throttle | None = None
        self.throttle_middleware: AiogramThrottleMiddleware | None = None

    @property
    def is_stopping(self) -> bool:
        """Return whether Ctrl-C was pressed: aiogram notices only after it has started."""
        signal: asyncio.Event | None = getattr(self.dispatcher, "_stop_signal", None)
        return signal is not None and signal.is_set()

    @property
    def workflow_data(self) -> dict[str, Any]:
        """The arguments that aiogram passes to startup and shutdown handlers."""
        bots = tuple(self.bots)
        return {
            "dispatcher": self.dispatcher,
            **self.dispatcher.workflow_data,
            "bots": bots,
            "bot": bots[-1],
        }

    def add_throttle(self, throttle: Throttle, send_notice: SendNotice) -> None:
        """Throttle updates that do not come through the inbox, as from aiogram's own webhook server."""
        self.throttle = throttle
        self.throttle_middleware = AiogramThrottleMiddleware(throttle, send_notice, is_charged=in_handler)
        # The first of all: what the others do, such as look up a conversation, is not done for a flood.
        middlewares = self.dispatcher.update.outer_middleware
        others = list(middlewares)
        for other in others:
            middlewares.unregister(other)
        middlewares.register(self.throttle_middleware)
        for other in others:
            middlewares.register(other)

    def remove_throttle(self) -> None:
        middleware, self.throttle_middleware = self.throttle_middleware, None
        if middleware is not None:
            self.dispatcher.update.outer_middleware.unregister(middleware)


class Attachment:
    """One for each gate. Opens the gate when a dispatcher starts, or at the first call before that.

    `public_gate` is what a handler gets that takes `gate`.
    """

    def __init__(self, gate: Gate, public_gate: object) -> None:
        self._gate = gate
        self._public_gate = public_gate
        self._bots: list[Bot] = []
        self._dispatchers: list[AttachedDispatcher] = []
        self._storages: list[BaseStorage] = []  # given to dispatchers by this class
        self._running = 0  # dispatchers
        self._started = self._stopped = False
        self._has_webhook = False  # the gate's own
        self._sends_elsewhere = False  # another process is the sender
        self._start_lock = asyncio.Lock()
        self._grace = 0.0  # seconds in which handlers may end when the dispatcher stops
        self._handling = 0  # updates
        self._idle = asyncio.Event()
        self._idle.set()
        self._hurry = asyncio.Event()  # it is to end at once

    def add(
        self,
        dispatcher: Dispatcher | None,
        bots: tuple[Bot, ...],
        options: AttachOptions,
    ) -> None:
        """Attach bots, and their dispatcher if there is one."""
        self._grace = options.grace
        if not bots or not all(isinstance(bot, Bot) for bot in bots):
            raise BadInputError(
                "attach takes aiogram's dispatcher and its bots, gate.attach(dp, bot), or the builder of a"
                " python-telegram-bot application, before its build();"
                f" got {', '.join(type(one).__name__ for one in (dispatcher, *bots))}"
            )
        if dispatcher is not None and not isinstance(dispatcher, Dispatcher):
            raise BadInputError("attach takes aiogram's Dispatcher first, or None without one")
        known = next((one for one in self._dispatchers if one.dispatcher is dispatcher), None)
        new = dispatcher if known is None else None
        use_storage = None
        if new is not None and options.conversations == "store":
            use_storage = self._choose_storage(new, options.order_in_conversations)
        self._bots += bots
        for bot in bots:
            self._gate.add_bot(bot.token, api_url=_api_url(bot), session=_own_session(bot))
            self._add_pacing(bot.session, options.max_wait)
        if use_storage is not None:
            self._storages.append(use_storage())
        if new is not None:
            rules = self._gate.throttle_rules() if options.throttle is True else options.throttle or None
            known = AttachedDispatcher(new, inbox=options.is_durable, order=options.order, rules=rules)
            self._register(known)
        if known is not None:
            known.bots += bots

    def _choose_storage(self, dispatcher: Dispatcher, order: Order) -> Callable[[], BaseStorage] | None:
        """Return a function that moves the dispatcher's conversations to the store; None if they stay.

        They stay in a storage that the user chose, and where the store would not keep them either.
        """
        gate = self._gate
        in_file, in_redis = gate.store.conversations is not None, is_redis(gate.store_name)
        if not (in_file or in_redis):
            log.warning("conversations stay in memory: so does everything in the store %s", gate.store_name)
            return None
        if not has_default_storage(dispatcher):
            chosen = type(dispatcher.fsm.storage).__name__
            log.warning("conversations stay in the dispatcher's own storage, %s", chosen)
            return None
        if in_file:
            return partial(use_file_storage, dispatcher, gate.conversations, self._mark_busy, order)
        from tidegate.adapters.aiogram.fsm_redis import use_redis_storage  # noqa: PLC0415  (an extra)

        return partial(use_redis_storage, dispatcher, gate.store_name, gate.clock, self._mark_busy, order)

    async def broadcast_fields(self, method: object) -> dict[str, Any]:
        """Return the fields of a method that a broadcast is to send. Raises BadInputError."""
        if not isinstance(method, TelegramMethod):
            raise BadInputError(
                f"a letter is text, fields, a method of aiogram, or None: got {type(method).__name__}"
            )
        return await fields_of(method, method.bot or self._bots[0], self._gate.clock)

    def _add_pacing(self, session: BaseSession, max_wait: float | None) -> None:
        """Pace a session once: several bots may share it."""
        if max_wait is None:
            max_wait = self._gate.settings.telegram_rate_limit_wait
        found = next((known for known in session.middleware if isinstance(known, PacingMiddleware)), None)
        if found is None:
            # The innermost: what other middlewares do is done once, however many attempts there are.
            pacing = PacingMiddleware(self._gate, self.ready, self._get_updates, max_wait)
            session.middleware.register(pacing)
        elif found.gate is not self._gate:
            raise BadInputError("this bot is attached to another gate: two share no limits, so use one")

    async def ready(self) -> None:
        """Open the gate if nobody did. Raises ClosedError once its dispatchers have stopped."""
        if self._started:
            return
        async with self._start_lock:
            if self._stopped and not self._running and not self._gate.is_open:
                raise ClosedError("the gate was closed with its dispatcher: this call came too late")
            if not self._started:
                await self._gate.start()
                self._started = True

    async def deliver(self) -> None:
        """Let this process send what is put, unless another process is the sender."""
        if self._started or self._sends_elsewhere:
            return
        try:
            await self.ready()
        except NotTheSenderError:
            if not self._gate.is_open:
                raise
            self._sends_elsewhere = True

    def closed(self) -> None:
        """The gate was closed. It may be opened and started again."""
        self._started, self._stopped, self._sends_elsewhere = False, True, False

    async def start(self) -> None:
        """Start the dispatchers, for updates that come to the gate's webhook: those are always durable."""
        self._has_webhook = True
        started = 0
        try:
            for attached in self._dispatchers:
                await attached.dispatcher.emit_startup(**attached.workflow_data)
                started += 1
        except BaseException:
            await self._shut_down(self._dispatchers[:started])
            self._has_webhook = False
            raise

    async def stop(self) -> None:
        await self._shut_down(self._dispatchers)
        self._has_webhook = False

    @staticmethod
    async def _shut_down(dispatchers: list[AttachedDispatcher]) -> None:
        for attached in dispatchers:
            try:
                await attached.dispatcher.emit_shutdown(**attached.workflow_data)
            finally:
                for bot in attached.bots:
                    await bot.session.close()

    async def _get_updates(
        self, make_request: NextRequestMiddlewareType[Any], bot: Bot, method: TelegramMethod[Any]
    ) -> Any:  # noqa: ANN401  (updates)
        """Poll into the inbox if the dispatcher of this bot runs; else the user makes the call."""
        running = (one.updates for one in self._dispatchers if one.updates is not None)
        updates = next((found for found in running if found.has(bot)), None)
        if updates is None or not isinstance(method, GetUpdates):
            return await make_request(bot, method)
        return await updates.fetch(make_request, bot, method)

    def _register(self, attached: AttachedDispatcher) -> None:
        self._dispatchers.append(attached)
        self._watch_signals(attached)
        dispatcher = attached.dispatcher
        dispatcher.update.outer_middleware(self._handle)
        dispatcher.workflow_data.setdefault("gate", self._public_gate)
        last = Router(name="tidegate")

        async def start(**data: Any) -> None:  # noqa: ANN401  (arguments that handlers may take)
            # Included as the last, so that other shutdown handlers can still send.
            if last.parent_router is None:
                dispatcher.include_router(last)
            await self._start_dispatcher(attached, data)

        dispatcher.startup.register(start)
        last.startup.register(partial(self._start_inbox, attached))
        dispatcher.shutdown.register(partial(self._stop_inbox, attached))
        # Before the other shutdown handlers: the update handlers need what those shut down.
        dispatcher.shutdown.handlers.insert(0, dispatcher.shutdown.handlers.pop())
        last.shutdown.register(partial(self._stop_dispatcher, attached))

    def _watch_signals(self, attached: AttachedDispatcher) -> None:
        """Let a second Ctrl-C end the process at once, if aiogram handles signals: it ignores that one.

        An application that handles them itself (`handle_signals=False`) never calls this method of aiogram's.
        """
        dispatcher = attached.dispatcher
        usual: Callable[[signal.Signals], None] | None = getattr(dispatcher, "_signal_stop_polling", None)
        if usual is None:
            return

        def handle(number: signal.Signals) -> None:
            if number == signal.SIGINT and attached.is_stopping:
                self._gate.end_at_once()
            else:
                usual(number)

        vars(dispatcher)["_signal_stop_polling"] = handle  # given to the loop when it begins to poll

    def end_at_once(self) -> None:
        """Give handlers no time to end."""
        self._hurry.set()

    async def _start_dispatcher(self, attached: AttachedDispatcher, data: dict[str, Any]) -> None:
        if attached.is_running:  # an earlier start failed after ours, and aiogram did not shut down
            await self._stop_inbox(attached)
            await self._stop_dispatcher(attached)
        self._hurry.clear()
        self._warn_of_others(data.get("bots", ()))
        self._running += 1  # a gate that waits to be opened is not closed for good
        try:
            refusals = await take_over(
                self.ready, self._gate.clock, log, is_wanted=lambda: not attached.is_stopping
            )
            if refusals:
                log.warning("this process has taken over")
            attached.is_running = refusals is not None  # None: the dispatcher is to stop before that
            if attached.is_running and attached.rules is not None:
                attached.add_throttle(self._gate.throttle(attached.rules), self._gate.send_notice)
        finally:
            if not attached.is_running:
                self._running -= 1
        attached.handler_data = data

    async def _start_inbox(self, attached: AttachedDispatcher) -> None:
        """After all other startup handlers: the update handlers need what those set up."""
        if not ((attached.has_inbox or self._has_webhook) and attached.is_running):
            return
        registry, throttle = self._gate.handler_registry, attached.throttle
        attached.updates = DispatcherInbox(
            attached.dispatcher,
            attached.bots,
            registry,
            self._gate.clock,
            data=attached.handler_data,
            order=attached.order,
            accept_filter=None if throttle is None else self._gate.throttle_middleware(throttle),
        )
        try:
            await registry.start()
        except BaseException:
            await attached.updates.stop()
            attached.updates = None
            raise

    async def _stop_inbox(self, attached: AttachedDispatcher) -> None:
        updates, attached.updates = attached.updates, None
        if updates is not None:
            await updates.stop()
            await self._gate.handler_registry.stop(self._grace)

    async def _stop_dispatcher(self, attached: AttachedDispatcher) -> None:
        if not attached.is_running:  # it never took over
            return
        self._running -= 1
        attached.is_running = False
        attached.remove_throttle()
        if self._running:
            return
        try:
            if self._started:
                await self._stop_gate()
        finally:  # aiogram has closed them, but before the last handlers ended
            for storage in self._storages:
                await storage.close()

    async def _stop_gate(self) -> None:
        await self._gate.end_broadcasts()
        # aiogram does not wait for its handlers: what they are about to say would be lost.
        await self._wait_for_handlers()
        async with self._start_lock:  # a dispatcher that starts meanwhile opens it anew
            if self._running:
                return
            self._started, self._stopped = False, True
            await self._gate.stop()

    async def _wait_for_handlers(self) -> None:
        log_wait(log, self._grace, handlers=self._handling)
        waits = [asyncio.ensure_future(event.wait()) for event in (self._idle, self._hurry)]
        try:
            with suppress(TimeoutError):
                async with self._gate.clock.timeout(self._grace):
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _warn_of_others(self, polled: Iterable[Bot]) -> None:
        """Its calls go past the gate: nobody would notice until Telegram refuses them."""
        for bot in polled:
            if not any(bot is one for one in self._bots):
                log.warning(
                    "bot %s is polled but not attached: its calls are not paced. Attach it, too:"
                    " gate.attach(dp, bot, other_bot)",
                    bot.id,
                )

    @contextmanager
    def _mark_busy(self) -> Iterator[None]:
        """Entered while an update is handled, or waits for that."""
        self._handling += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._handling -= 1
            if not self._handling:
                self._idle.set()

    async def _handle(self, handler: NextUpdateHandler, event: TelegramObject, data: dict[str, Any]) -> Any:  # noqa: ANN401  (the handler's)
        """Mark the calls of a handler as replies, also a method that it returns."""
        context: EventContext | None = data.get(EVENT_CONTEXT_KEY)
        bot: Bot = data["bot"]
        self._tell_update(bot, event)
        chats = (context.chat, context.user) if context is not None else ()
        before = begin_reply(BotId(bot.id), [chat.id for chat in chats if chat is not None])
        with self._mark_busy(), self._gate.slow_calls.outer_handler():
            result = await handler(event, data)
            if isinstance(result, TelegramMethod):
                # In the response to a webhook it would bypass every limit.
                await data["dispatcher"].silent_call_request(bot, result)
                result = None
            end_reply(before)  # not after an error: an error handler still replies
            return result

    def _tell_update(self, bot: Bot, update: TelegramObject) -> None:
        """Publish an update that did not come through the inbox: that publishes its own."""
        if not self._gate.events.has(UpdateReceived):
            return
        if any(one.updates is not None and one.updates.has(bot) for one in self._dispatchers):
            return
        dump = partial(update.model_dump, mode="json", exclude_none=True, by_alias=True, warnings=False)
        self._gate.events.publish(UpdateReceived(BotId(bot.id), dump))


def _api_url(bot: Bot) -> str:
    return bot.session.api.base.removesuffix(_STANDARD_PATH)


def _own_session(bot: Bot) -> Callable[[], Awaitable[Any]] | None:
    """Return the bot's session if it is not the usual one, as with a proxy: queued calls use it too."""
    session = bot.session
    if isinstance(session, AiohttpSession) and (type(session) is not AiohttpSession or session.proxy):
        return session.create_session
    return None
