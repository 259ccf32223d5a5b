"""Updates of one python-telegram-bot application through the inbox."""

import asyncio
import logging
from typing import Final

import msgspec
from telegram import Bot, Update
from telegram.ext import ExtBot

from tidegate.adapters.port import Gate
from tidegate.adapters.ptb.update_processor import InboxUpdateProcessor
from tidegate.errors import ClosedError, StoreError
from tidegate.inbound.handler_registry import AcceptFilter, HandlerRegistry
from tidegate.inbound.inbox import ClaimedItem, bot_source
from tidegate.inbound.long_polling import FetchUpdates, LongPoller
from tidegate.inbound.throttle_rules import ThrottleRules
from tidegate.inbound.updates import Json, parse_update
from tidegate.leader_lease import LeaderLease
from tidegate.model import BotId

log = logging.getLogger("tidegate.inbound")

STORE_RETRY_INTERVAL: Final = 1.0  # seconds until a store that takes nothing is tried again
LEADER_CHECK_INTERVAL: Final = 1.0  # seconds between two looks at whether this process still leads
HANDLER_ATTEMPTS: Final = 2  # one may come while the application stops: it goes back


class ApplicationInbox:
    """Holds updates while the gate is open; hands them out between `serve` and `close`.

    Of several processes one hands out, the one that leads: what an application remembers of a conversation is
    in its own memory. The others hold what comes to them, and wait to take over.
    """

    def __init__(
        self,
        gate: Gate,
        bot: Bot,
        number: BotId,
        handover: InboxUpdateProcessor,
        *,
        grace: float,
        throttle: ThrottleRules | bool,
    ) -> None:
        self._gate = gate
        self._bot = bot
        self._number = number
        self._handover = handover
        self._grace = grace
        self._throttle = throttle
        self._post: _OpenInbox | None = None  # while it is open
        self._opening = asyncio.Lock()
        self._serving: asyncio.Task[None] | None = None
        self.has_polled = False
        self.fetched = -1  # the last update that came by polling

    def serve(self) -> None:
        """The application takes updates from now on."""
        if self._serving is None:
            self._serving = asyncio.create_task(self._lead(), name="tidegate: leads an application")
            self._serving.add_done_callback(_log_failure)

    async def hold(self, update: Update) -> bool:
        """Durable when this returns, however long that takes. False if it was there before, or is throttled.

        Raises BadInputError for what cannot be written down.
        """
        arrival = parse_update(self._number, update.to_json().encode())
        said = False
        while True:
            post = await self._open()
            try:
                (fresh,) = await post.registry.accept([arrival])
            except StoreError as error:
                if not said:
                    log.warning("an update of bot %s cannot be held, trying again: %s", self._number, error)
                said = True
                await self._gate.clock.sleep(STORE_RETRY_INTERVAL)
            else:
                return fresh

    def can_hold(self) -> bool:
        """Whether its updates can be written down: buttons may stand for objects in memory."""
        return not (isinstance(self._bot, ExtBot) and self._bot.callback_data_cache is not None)

    async def poll(self, fetch: FetchUpdates) -> None:
        """Once: lead, have room, fetch, hold."""
        self.has_polled = True
        post = await self._open()
        await post.leadership.hold()
        await post.poller.poll(fetch)

    def turn_away(self, item: object) -> bool:
        """The application does not take it, for it stops: it waits for the next start. False if not ours."""
        return self._handover.turn_away(item)

    async def close(self) -> None:
        """Hand out no more. Handlers have their grace; what they did not end goes back."""
        async with self._opening:
            await self._end_serving()
            if self._post is not None:
                await self._post.poller.stop()
                await self._post.leadership.give_up()
                self._post.registry.remove_source(bot_source(self._number))
                await self._leave(self._post.registry)
                self._post = None

    def _accept_filter(self) -> AcceptFilter | None:
        if self._throttle is False:
            return None
        rules = self._throttle if isinstance(self._throttle, ThrottleRules) else None
        return self._gate.throttle_middleware(self._gate.throttle(rules))

    async def _leave(self, registry: HandlerRegistry) -> None:
        try:
            await registry.finish(bot_source(self._number), self._grace)  # others of the gate may go on
            await registry.stop(self._grace)
        except StoreError as error:  # what it holds is handled again, as after a crash
            log.warning("updates of bot %s could not be put back: %s", self._number, error)

    async def _end_serving(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
            self._serving = None

    async def _open(self) -> "_OpenInbox":
        """As long as it takes: nothing is fetched or answered meanwhile, and Telegram keeps it."""
        said = False
        while True:
            try:
                return await self._opened()
            except StoreError as error:
                if not said:
                    log.warning("updates of bot %s wait at Telegram: %s", self._number, error)
                said = True
                await self._gate.clock.sleep(STORE_RETRY_INTERVAL)

    async def _opened(self) -> "_OpenInbox":
        async with self._opening:
            if self._post is None:
                if not self._gate.is_open:
                    raise ClosedError("the application is shut down: no more updates are taken")
                post = _OpenInbox(self._gate, self._number)
                await post.registry.start()
                post.registry.add_source(bot_source(self._number), self._accept_filter())
                self._post = post
            return self._post

    async def _lead(self) -> None:
        post = await self._open()
        while True:
            await post.leadership.hold()
            post.registry.register(bot_source(self._number), self._handle, attempts=HANDLER_ATTEMPTS)
            try:
                while post.leadership.is_ours:
                    await self._gate.clock.sleep(LEADER_CHECK_INTERVAL)
            finally:
                post.registry.unregister(bot_source(self._number))

    async def _handle(self, held: ClaimedItem) -> None:
        post = self._post
        if post is None:
            raise ClosedError("it came while the application stopped")
        raw = msgspec.json.decode(held.item.body, type=Json)
        update = Update.de_json(raw, self._bot)
        if isinstance(self._bot, ExtBot):
            self._bot.insert_callback_data(update)
        if await self._handover.handle(update):
            return
        # It has not begun, so that is no attempt. Nobody here claims it again before the desk has ended this.
        post.registry.unregister(held.item.source)
        await post.registry.inbox.release(held)


class _OpenInbox:
    """What an intake has of a gate that is open."""

    def __init__(self, gate: Gate, bot: BotId) -> None:
        self.registry: HandlerRegistry = gate.handler_registry
        self.poller = LongPoller(bot, self.registry, gate.clock)
        self.leadership = LeaderLease(self.registry.inbox.leases, gate.clock, bot_source(bot), log=log)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.critical("updates are held, but not handled", exc_info=task.exception())
