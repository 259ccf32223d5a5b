"""The update processor of an application with an inbox, and the handler that marks replies."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final, cast

from telegram import Update
from telegram.ext import BaseHandler, BaseUpdateProcessor

from tidegate.adapters.call_context import begin_reply
from tidegate.events import EventStream, UpdateReceived
from tidegate.model import BotId, ChatId

MAX_CONCURRENT_UPDATES: Final = 1_000_000  # no bound: the dispatcher of the inbox has one
REPLY_TRACKER_GROUP: Final = -(2**31)  # before all others

HandlerCoroutine = Coroutine[Any, Any, None]  # the application's handling of one update


class InboxUpdateProcessor(BaseUpdateProcessor):
    """The application's update processor. It hands the handling of an update to the inbox's dispatcher.

    So an update is handled in the dispatcher's own task, with its context variables, its deadline and its
    report of where a handler hangs.
    """

    def __init__(self, offer: Callable[[Update], None]) -> None:
        super().__init__(MAX_CONCURRENT_UPDATES)
        self._offer = offer  # puts an update into the queue that the application reads
        self._pending: dict[int, _PendingUpdate] = {}  # by identity, until the application takes it
        self._other_updates = asyncio.Lock()
        self.bot = BotId(0)

    async def initialize(self) -> None:
        """Nothing to do."""

    async def shutdown(self) -> None:
        self._pending.clear()  # the application takes no more

    async def handle(self, update: Update) -> bool:
        """Let the application handle an update in this task. Return False if it was rejected."""
        pending = _PendingUpdate(update)
        self._pending[id(update)] = pending
        self._offer(update)
        try:
            handling = await pending.handling
            if handling is not None:
                begin_reply(self.bot, chats_of(update))
                await handling
            return handling is not None
        finally:
            pending.end()

    def reject(self, item: object) -> bool:
        """Reject an update that the application will not take. Return False if it is not the inbox's."""
        pending = self._pending.pop(id(item), None)
        if pending is None:
            return False
        pending.reject()
        return True

    async def do_process_update(self, update: object, coroutine: Awaitable[Any]) -> None:
        handling = cast("HandlerCoroutine", coroutine)
        pending = self._pending.pop(id(update), None)
        if pending is not None:
            await pending.hand_over(handling)
            return
        async with self._other_updates:  # one at a time, as the library does by itself
            begin_reply(self.bot, chats_of(update))
            await handling


class _PendingUpdate:
    def __init__(self, update: Update) -> None:
        self.update = update  # referenced, so that no other object gets its identity
        # None: rejected
        self.handling: asyncio.Future[HandlerCoroutine | None] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()

    async def hand_over(self, handling: HandlerCoroutine) -> None:
        """Return when the update was handled, or given up."""
        if self.handling.done():  # the dispatcher no longer waits for it
            handling.close()
            return
        self.handling.set_result(handling)
        await self._ended.wait()

    def reject(self) -> None:
        if not self.handling.done():
            self.handling.set_result(None)

    def end(self) -> None:
        if not self.handling.done():
            self.handling.cancel()
        elif not self.handling.cancelled() and (handling := self.handling.result()) is not None:
            handling.close()  # has an effect only if it was given up before it began
        self._ended.set()


class ReplyTracker(BaseHandler[Any, Any, None]):
    """Marks the chats whose update is being handled, in the task that handles it, and publishes the update.

    It does so when it is asked whether it takes the update, and does not take it: handlers, contexts and
    persistence are as without it.
    """

    def __init__(self, bot: BotId, events: EventStream) -> None:
        super().__init__(never_called, block=True)
        self._bot = bot
        self._events = events

    def check_update(self, update: object) -> None:
        # Also for an object that is no update: one task handles many, and the one before must be unmarked.
        begin_reply(self._bot, chats_of(update))
        if isinstance(update, Update) and self._events.has(UpdateReceived):
            self._events.publish(UpdateReceived(self._bot, update.to_dict))


async def never_called(_update: object, _context: object) -> None:
    """The callback of a handler that takes no update."""


def chats_of(update: object) -> Iterator[ChatId]:
    """Yield every id and name of the chats to which a reply to an update would go."""
    if not isinstance(update, Update):
        return
    if (user := update.effective_user) is not None:
        yield from _names(user.id, None)
    if (chat := update.effective_chat) is not None:
        yield from _names(chat.id, chat.username)
    if (request := update.chat_join_request) is not None:
        yield from _names(request.user_chat_id, None)


def _names(chat: int, username: str | None) -> Iterator[ChatId]:
    yield chat
    yield str(chat)
    if username:
        yield f"@{username}"
