"""Updates of one python-telegram-bot application through the inbox."""

import asyncio
import logging
from typing import Final

from telegram import Bot, Update
from telegram.ext import ExtBot

from tidegate.adapters.port import Gate
from tidegate.adapters.ptb.update_processor import InboxUpdateProcessor
from tidegate.errors import ClosedError, StoreError
from tidegate.inbound.handler_registry import HandlerRegistry
from tidegate.inbound.inbox import ClaimedItem, bot_source
from tidegate.inbound.long_polling import FetchUpdates, InboxSink, LongPoller
from tidegate.inbound.throttle import ThrottleRules
from tidegate.inbound.updates import Order, decode_update, parse_update
from tidegate.model import BotId
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.inbound")

STORE_RETRY_INTERVAL: Final = 1.0  # seconds
LEADER_CHECK_INTERVAL: Final = 1.0  # seconds
HANDLER_ATTEMPTS: Final = 2  # the first may end because the application stops


class ApplicationInbox:
    """Stores updates while the gate is open; dispatches them between `serve` and `close`.

    Of several processes only the leader dispatches, since an application keeps conversations in its memory.
    The others store what comes to them, and wait to take over.
    """

    def __init__(
        self,
        gate: Gate,
        bot: Bot,
        bot_id: BotId,
        processor: InboxUpdateProcessor,
        *,
        grace: float,
        throttle: ThrottleRules | bool,
        order: Order,
    ) -> None:
        self._gate = gate
        self._bot = bot
        self._bot_id = bot_id
        self._source = bot_source(bot_id)
        self._processor = processor
        self._grace = grace
        self._throttle = throttle
        self._order = order
        self._open: _OpenInbox | None = None  # while the gate is open
        self._open_lock = asyncio.Lock()
        self._dispatching = BackgroundTasks()
        self._is_serving = False
        self.has_polled = False
        self.last_polled = -1  # the id of the last update that came by polling

    def serve(self) -> None:
        """Dispatch updates: the application takes them from now on."""
        if not self._is_serving:
            self._is_serving = True
            task = self._dispatching.start(self._dispatch(), "leads an application", awaited=True)
            task.add_done_callback(_log_failure)

    async def store(self, update: Update) -> bool:
        """Store an update, however long that takes. Return False if it is known already, or throttled.

        Raises BadInputError for an update that cannot be stored.
        """
        item = parse_update(self._bot_id, update.to_json().encode(), self._order)
        warned = False
        while True:
            inbox = await self._opened()
            try:
                (fresh,) = await inbox.registry.accept([item])
            except StoreError as error:
                if not warned:
                    log.warning("an update of bot %s cannot be stored, trying again: %s", self._bot_id, error)
                warned = True
                await self._gate.clock.sleep(STORE_RETRY_INTERVAL)
            else:
                return fresh

    def can_store(self) -> bool:
        """Return whether its updates can be stored: buttons may stand for objects in memory."""
        return not (isinstance(self._bot, ExtBot) and self._bot.callback_data_cache is not None)

    async def poll(self, fetch: FetchUpdates) -> None:
        """Poll once: become the leader, wait for room, fetch, store."""
        self.has_polled = True
        inbox = await self._opened()
        await inbox.poller.lease.hold()
        await inbox.poller.poll(fetch)

    def reject(self, item: object) -> bool:
        """Let an update wait for the next start of the application. Return False if it is not the inbox's."""
        return self._processor.reject(item)

    async def close(self) -> None:
        """Stop dispatching. Handlers have `grace` seconds; updates that they did not finish go back."""
        async with self._open_lock:
            await self._dispatching.stop()
            self._is_serving = False
            if (inbox := self._open) is None:
                return
            await inbox.poller.stop()
            inbox.registry.remove_source(self._source)
            try:
                await inbox.registry.finish(self._source, self._grace)  # other applications of the gate go on
                await inbox.registry.stop(self._grace)
            except StoreError as error:  # they are handled again, as after a crash
                log.warning("updates of bot %s could not be put back: %s", self._bot_id, error)
            self._open = None

    async def _opened(self) -> "_OpenInbox":
        """Wait for the store as long as it takes: Telegram keeps the updates meanwhile."""
        warned = False
        while True:
            try:
                async with self._open_lock:
                    if self._open is None:
                        self._open = await self._start()
                    return self._open
            except StoreError as error:
                if not warned:
                    log.warning("updates of bot %s wait at Telegram: %s", self._bot_id, error)
                warned = True
                await self._gate.clock.sleep(STORE_RETRY_INTERVAL)

    async def _start(self) -> "_OpenInbox":
        if not self._gate.is_open:
            raise ClosedError("the application is shut down: no more updates are taken")
        inbox = _OpenInbox(self._gate, self._bot_id)
        await inbox.registry.start()
        accept_filter = None
        if self._throttle is not False:
            rules = self._throttle if isinstance(self._throttle, ThrottleRules) else None
            accept_filter = self._gate.throttle_middleware(self._gate.throttle(rules))
        inbox.registry.add_source(self._source, accept_filter, self._order)
        return inbox

    async def _dispatch(self) -> None:
        inbox = await self._opened()
        while True:
            await inbox.poller.lease.hold()
            inbox.registry.register(self._source, self._handle, attempts=HANDLER_ATTEMPTS)
            try:
                while inbox.poller.lease.is_ours:
                    await self._gate.clock.sleep(LEADER_CHECK_INTERVAL)
            finally:
                inbox.registry.unregister(self._source)

    async def _handle(self, claimed: ClaimedItem) -> None:
        inbox = self._open
        if inbox is None:
            raise ClosedError("the update came while the application stopped")
        update = Update.de_json(decode_update(claimed.item.body), self._bot)
        if isinstance(self._bot, ExtBot):
            self._bot.insert_callback_data(update)
        if await self._processor.handle(update):
            return
        # It has not begun, so no attempt is counted. This process stops serving, so as not to claim it again.
        inbox.registry.unregister(self._source)
        await inbox.registry.inbox.release(claimed)


class _OpenInbox:
    """The parts of an open gate that an application's inbox uses."""

    def __init__(self, gate: Gate, bot: BotId) -> None:
        self.registry: HandlerRegistry = gate.handler_registry
        self.poller = LongPoller(bot, InboxSink(bot, self.registry), gate.clock)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.critical("updates are stored, but not handled", exc_info=task.exception())
