"""The update processor of an application with an inbox, and the handler that marks replies."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final, cast

from telegram import Update
from telegram.ext import BaseHandler, BaseUpdateProcessor

from tidegate.adapters.reply_context import begin_reply
from tidegate.model import BotId, ChatId

REPLY_TRACKER_GROUP: Final = -(2**31)  # before everybody


class ReplyTracker(BaseHandler[Any, Any, None]):
    """Notes whose update is being handled, in the task that handles it.

    It does so when asked whether it would take the update, and says no: handlers, contexts and persistence
    are as without it.
    """

    def __init__(self, bot: BotId) -> None:
        super().__init__(_never_called_back, block=True)
        self._bot = bot

    def check_update(self, update: object) -> None:
        # Also for what is no update: one task handles many, and the one before must be forgotten.
        begin_reply(self._bot, chats_of(update))


def chats_of(update: object) -> Iterator[ChatId]:
    """Where an answer to an update would go, by every name."""
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


async def _never_called_back(_update: object, _context: object) -> None:
    """Never called."""


MAX_CONCURRENT_UPDATES: Final = 1_000_000  # updates at once: the desk says how many, nobody else

HandlerCoroutine = Coroutine[Any, Any, None]  # what handles an update, as the application has made it


class InboxUpdateProcessor(BaseUpdateProcessor):
    """The application's update processor. It carries out nothing that came from the desk: it brings it there.

    So an update is handled in the desk's own task: what that knows of it, its deadline and the place where it
    hangs are those of the handler.
    """

    def __init__(self, offer: Callable[[Update], None]) -> None:
        super().__init__(MAX_CONCURRENT_UPDATES)
        self._offer = offer  # to whoever fetches updates for the application
        self._parcels: dict[int, _PendingUpdate] = {}  # by identity, until it is fetched
        self._stray = asyncio.Lock()
        self.bot = BotId(0)

    async def initialize(self) -> None:
        """Nothing to do."""

    async def shutdown(self) -> None:
        self._parcels.clear()  # nobody fetches them any more

    async def handle(self, update: Update) -> bool:
        """Have the application handle an update, here and now. False if it was turned away."""
        parcel = _PendingUpdate(update)
        self._parcels[id(update)] = parcel
        self._offer(update)
        try:
            work = await parcel.work
            if work is not None:
                begin_reply(self.bot, chats_of(update))
                await work
            return work is not None
        finally:
            parcel.end()

    def turn_away(self, item: object) -> bool:
        """What was offered and is not fetched. False for what did not come from the desk."""
        parcel = self._parcels.pop(id(item), None)
        if parcel is None:
            return False
        parcel.return_unopened()
        return True

    async def do_process_update(self, update: object, coroutine: Awaitable[Any]) -> None:
        work = cast("HandlerCoroutine", coroutine)
        parcel = self._parcels.pop(id(update), None)
        if parcel is not None:
            await parcel.bring(work)
            return
        async with self._stray:  # one at a time, as the library does by itself
            begin_reply(self.bot, chats_of(update))
            await work


class _PendingUpdate:
    def __init__(self, update: Update) -> None:
        self.update = update  # held: as long as this is there, no other has its identity
        # None: turned away
        self.work: asyncio.Future[HandlerCoroutine | None] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()

    async def bring(self, work: HandlerCoroutine) -> None:
        """Returns when it is done, or was given up."""
        if self.work.done():  # the desk has not waited for it
            work.close()
            return
        self.work.set_result(work)
        await self._ended.wait()

    def return_unopened(self) -> None:
        if not self.work.done():
            self.work.set_result(None)

    def end(self) -> None:
        if not self.work.done():
            self.work.cancel()
        elif not self.work.cancelled() and (work := self.work.result()) is not None:
            work.close()  # nothing, unless it was given up before it began
        self._ended.set()
