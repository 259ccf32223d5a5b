"""Ties a gate to a dispatcher and its bots: it runs while they run."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
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

from tidegate.adapters.aiogram.fsm_storage import SqliteStorage, has_default_storage, use_file_storage
from tidegate.adapters.aiogram.queued_method import fields_of
from tidegate.adapters.aiogram.session_middleware import PacingMiddleware
from tidegate.adapters.aiogram.throttle import AiogramThrottleMiddleware
from tidegate.adapters.aiogram.updates import DispatcherInbox
from tidegate.adapters.port import Gate
from tidegate.adapters.reply_context import begin_reply, end_reply
from tidegate.errors import BadInputError, ClosedError, NotTheSenderError
from tidegate.inbound.throttle import Throttle
from tidegate.inbound.throttle_rules import ThrottleRules
from tidegate.leader_lease import take_over
from tidegate.model import BotId
from tidegate.outbox.effect_keys import in_handler

log = logging.getLogger("tidegate")

_STANDARD_PATH: Final = "/bot{token}/{method}"


class AttachedDispatcher:
    """A dispatcher and its bots; `updates` while it runs, if they go through the inbox."""

    def __init__(self, dispatcher: Dispatcher, *, inbox: bool, rules: ThrottleRules | None) -> None:
        self.dispatcher = dispatcher
        self.bots: list[Bot] = []
        self.inbox = inbox
        self.updates: DispatcherInbox | None = None
        self.is_running = False
        self.data: dict[str, Any] = {}  # what its handlers may ask for
        self.rules = rules
        self.throttle: Throttle | None = None
        self.throttling: AiogramThrottleMiddleware | None = None

    @property
    def is_stopping(self) -> bool:
        """Somebody pressed Ctrl-C: aiogram notices only after it has started."""
        signal: asyncio.Event | None = getattr(self.dispatcher, "_stop_signal", None)
        return signal is not None and signal.is_set()


class Attachment:
    """One for each gate. Opens the gate when the dispatcher starts, or at the first call before that."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._bots: list[Bot] = []
        self._followed: list[AttachedDispatcher] = []
        self._storages: list[BaseStorage] = []  # those that we gave to dispatchers
        self._running = 0  # dispatchers
        self._started = self._stopped = False
        self._elsewhere = False  # another process sends
        self._starting = asyncio.Lock()
        self._grace = 0.0  # seconds in which handlers may end when the dispatcher stops
        self._handling = 0  # updates
        self._idle = asyncio.Event()
        self._idle.set()

    def add(
        self,
        dispatcher: Dispatcher | None,
        bots: tuple[Bot, ...],
        max_wait: float | None,
        grace: float,
        keeper: str | SqliteStorage | None,
        *,
        inbox: bool,
        throttle: ThrottleRules | None,
    ) -> None:
        """`keeper` of conversations: the address of a Redis, or the file. None: they stay where they are."""
        self._grace = grace
        if not bots or not all(isinstance(bot, Bot) for bot in bots):
            raise BadInputError("attach takes the dispatcher and its bots: gate.attach(dp, bot)")
        if dispatcher is not None and not isinstance(dispatcher, Dispatcher):
            raise BadInputError("the first thing to attach to is aiogram's Dispatcher, or None without one")
        known = next((one for one in self._followed if one.dispatcher is dispatcher), None)
        new = dispatcher if known is None else None
        keep = None if new is None or keeper is None else self._choose_storage(new, keeper)
        self._bots += bots
        for bot in bots:
            self._gate.add_bot(bot.token, api_url=_api_url(bot), session=_own_session(bot))
            self._pace(bot.session, max_wait)
        if keep is not None:
            self._storages.append(keep())
        if new is not None:
            known = AttachedDispatcher(new, inbox=inbox, rules=throttle)
            self._follow(known)
        if known is not None:
            known.bots += bots

    def _choose_storage(
        self, dispatcher: Dispatcher, keeper: str | SqliteStorage
    ) -> Callable[[], BaseStorage] | None:
        """What moves the dispatcher's conversations there, unless somebody chose another place for them."""
        if not has_default_storage(dispatcher):
            return None
        if isinstance(keeper, SqliteStorage):
            return lambda: use_file_storage(dispatcher, keeper, self._busy)
        from tidegate.adapters.aiogram.fsm_redis import use_redis_storage  # noqa: PLC0415  (only there if it is used)

        return lambda: use_redis_storage(dispatcher, keeper, self._gate.clock, self._busy)

    async def letter(self, method: object) -> dict[str, Any]:
        """The fields of a method that a broadcast is to send. Raises BadInputError."""
        if not isinstance(method, TelegramMethod):
            raise BadInputError(
                f"a letter is text, fields, a method of aiogram, or None: got {type(method).__name__}"
            )
        bot = method.bot or self._bots[0]
        return await fields_of(method, bot, self._gate.clock)

    def _pace(self, session: BaseSession, max_wait: float | None) -> None:
        """Several bots may share a session."""
        found = next((known for known in session.middleware if isinstance(known, PacingMiddleware)), None)
        if found is None:
            # The innermost: what other middlewares do is done once, however often we try.
            session.middleware.register(PacingMiddleware(self._gate, self.ready, self._poll, max_wait))
        elif found.gate is not self._gate:
            raise BadInputError("this bot is attached to another gate: two share no limits, so use one")

    async def ready(self) -> None:
        """Open the gate, if nobody did. Raises ClosedError once its dispatchers have stopped."""
        if self._started:
            return
        async with self._starting:
            if self._stopped and not self._running and not self._gate.is_open:
                raise ClosedError(
                    "the gate was closed, as its dispatcher was: this call came too late and is not made"
                )
            if not self._started:
                await self._gate.start()
                self._started = True

    async def start(self) -> None:
        """Start the dispatchers: updates come to a webhook."""
        started = 0
        try:
            for followed in self._followed:
                await followed.dispatcher.emit_startup(**_workflow(followed))
                started += 1
        except BaseException:
            await self._shut_down(self._followed[:started])
            raise

    async def stop(self) -> None:
        await self._shut_down(self._followed)

    @staticmethod
    async def _shut_down(dispatchers: list[AttachedDispatcher]) -> None:
        for followed in dispatchers:
            try:
                await followed.dispatcher.emit_shutdown(**_workflow(followed))
            finally:
                for bot in followed.bots:
                    await bot.session.close()

    def closed(self) -> None:
        """The gate is; whoever opens it again may start again."""
        self._started, self._stopped, self._elsewhere = False, True, False

    async def deliver(self) -> None:
        """What is put here is sent here, unless another process does that."""
        if self._started or self._elsewhere:
            return
        try:
            await self.ready()
        except NotTheSenderError:
            if not self._gate.is_open:
                raise
            self._elsewhere = True

    async def _poll(
        self, make_request: NextRequestMiddlewareType[Any], bot: Bot, method: TelegramMethod[Any]
    ) -> Any:  # noqa: ANN401  (updates)
        """Into the inbox, if the dispatcher of this bot runs; else it is somebody's own call."""
        running = (one.updates for one in self._followed if one.updates is not None)
        updates = next((found for found in running if found.has(bot)), None)
        if updates is None or not isinstance(method, GetUpdates):
            return await make_request(bot, method)
        return await updates.fetch(make_request, bot, method)

    def _follow(self, followed: AttachedDispatcher) -> None:
        self._followed.append(followed)
        dispatcher = followed.dispatcher
        dispatcher.update.outer_middleware(self._handle)
        dispatcher.workflow_data.setdefault("gate", self._gate)  # a handler may ask for `gate`
        last = Router(name="tidegate")

        async def start(**data: Any) -> None:  # noqa: ANN401  (what handlers may ask for)
            # At the end, so that whatever else says goodbye can still send.
            if last.parent_router is None:
                dispatcher.include_router(last)
            await self._start(followed, data)

        dispatcher.startup.register(start)
        last.startup.register(partial(self._hand_out, followed))
        dispatcher.shutdown.register(partial(self._end_handling, followed))
        # Before whatever else is shut down: handlers need it.
        dispatcher.shutdown.handlers.insert(0, dispatcher.shutdown.handlers.pop())
        last.shutdown.register(partial(self._stop, followed))

    async def _start(self, followed: AttachedDispatcher, data: dict[str, Any]) -> None:
        if followed.is_running:  # a start that failed after ours: aiogram told nobody of its end
            await self._end_handling(followed)
            await self._stop(followed)
        self._running += 1  # a gate that waits to be opened is not closed for good
        try:
            followed.is_running = await self._take_over(followed)
            if followed.is_running and followed.rules is not None:
                followed.throttle = self._gate.throttle(followed.rules)
                self._begin_throttling(followed, followed.throttle)
        finally:
            if not followed.is_running:
                self._running -= 1
        followed.data = data

    async def _hand_out(self, followed: AttachedDispatcher) -> None:
        """After whatever else gets ready: handlers need it."""
        if followed.inbox and followed.is_running:
            await self._open_inbox(followed)

    async def _take_over(self, followed: AttachedDispatcher) -> bool:
        """Where the store has one sender, and it is another process, wait for the end of that.

        False if this one is to end first: aiogram sees that as soon as it has started.
        """
        refusals = await take_over(
            self.ready, self._gate.clock, log, is_wanted=lambda: not followed.is_stopping
        )
        if refusals:
            log.warning("this process has taken over")
        return refusals is not None

    def _begin_throttling(self, followed: AttachedDispatcher, throttle: Throttle) -> None:
        """For what does not come through the inbox, as from a webhook server of aiogram's."""
        followed.throttling = AiogramThrottleMiddleware(throttle, self._gate.tell, is_charged=in_handler)
        # First of all: what the others do, such as look up a conversation, is not done for a flood.
        middlewares = followed.dispatcher.update.outer_middleware
        others = list(middlewares)
        for other in others:
            middlewares.unregister(other)
        middlewares.register(followed.throttling)
        for other in others:
            middlewares.register(other)

    async def _open_inbox(self, followed: AttachedDispatcher) -> None:
        registry, data = self._gate.handler_registry, followed.data
        accept_filter = (
            None if followed.throttle is None else self._gate.throttle_middleware(followed.throttle)
        )
        clock, bots = self._gate.clock, followed.bots
        followed.updates = DispatcherInbox(
            followed.dispatcher, bots, registry, clock, data=data, accept_filter=accept_filter
        )
        try:
            await registry.start()
        except BaseException:
            await followed.updates.stop()
            followed.updates = None
            raise

    async def _end_handling(self, followed: AttachedDispatcher) -> None:
        updates, followed.updates = followed.updates, None
        if updates is not None:
            await updates.stop()
            await self._gate.handler_registry.stop(self._grace)

    async def _stop(self, followed: AttachedDispatcher) -> None:
        if not followed.is_running:  # it never took over
            return
        self._running -= 1
        followed.is_running = False
        throttling, followed.throttling = followed.throttling, None
        if throttling is not None:
            followed.dispatcher.update.outer_middleware.unregister(throttling)
        if self._running:
            return
        try:
            if self._started:
                await self._close_gate()
        finally:  # aiogram has closed them, but before the last handlers ended
            for storage in self._storages:
                await storage.close()

    async def _close_gate(self) -> None:
        await self._gate.end_broadcasts()
        # aiogram does not wait for its handlers: what they are about to say would be lost.
        with suppress(TimeoutError):
            async with self._gate.clock.timeout(self._grace):
                await self._idle.wait()
        async with self._starting:  # whoever starts meanwhile opens it anew
            if self._running:
                return
            self._started, self._stopped = False, True
            await self._gate.stop()

    @contextmanager
    def _busy(self) -> Iterator[None]:
        """Around an update that is handled, or waits for that."""
        self._handling += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._handling -= 1
            if not self._handling:
                self._idle.set()

    async def _handle(
        self,
        handler: Callable[[TelegramObject, dict[str, Any]], Awaitable[Any]],
        event: TelegramObject,
        data: dict[str, Any],
    ) -> Any:  # noqa: ANN401  (the handler's)
        """Around every handler: its replies are known as such, also one that it returns."""
        about: EventContext | None = data.get(EVENT_CONTEXT_KEY)
        bot: Bot = data["bot"]
        who = (about.chat, about.user) if about is not None else ()
        before = begin_reply(BotId(bot.id), [one.id for one in who if one is not None])
        with self._busy():
            result = await handler(event, data)
            if isinstance(result, TelegramMethod):
                # In the answer to a webhook it would travel past every limit.
                await data["dispatcher"].silent_call_request(bot, result)
                result = None
            end_reply(before)  # not after an error: who says sorry is still answering
            return result


def _workflow(followed: AttachedDispatcher) -> dict[str, Any]:
    """What aiogram gives to those who are told that it starts or stops."""
    dispatcher, bots = followed.dispatcher, tuple(followed.bots)
    return {"dispatcher": dispatcher, **dispatcher.workflow_data, "bots": bots, "bot": bots[-1]}


def _api_url(bot: Bot) -> str:
    return bot.session.api.base.removesuffix(_STANDARD_PATH)


def _own_session(bot: Bot) -> Callable[[], Awaitable[Any]] | None:
    """What is queued leaves through the bot's session too, if that is not the usual one: a proxy, say."""
    session = bot.session
    if isinstance(session, AiohttpSession) and (type(session) is not AiohttpSession or session.proxy):
        return session.create_session
    return None
