"""From the desk to the application: who holds an update handles it, the application says how."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, cast

from telegram import Update
from telegram.ext import BaseUpdateProcessor

from tidegate.adapters.handling import handling
from tidegate.adapters.ptb.following import chats_of
from tidegate.model import BotId

WIDE: Final = 1_000_000  # updates at once: the desk says how many, nobody else

Work = Coroutine[Any, Any, None]  # what handles an update, as the application has made it


class Handover(BaseUpdateProcessor):
    """The application's update processor. It carries out nothing that came from the desk: it brings it there.

    So an update is handled in the desk's own task: what that knows of it, its deadline and the place where it
    hangs are those of the handler.
    """

    def __init__(self, offer: Callable[[Update], None]) -> None:
        super().__init__(WIDE)
        self._offer = offer  # to whoever fetches updates for the application
        self._parcels: dict[int, _Parcel] = {}  # by identity, until it is fetched
        self._stray = asyncio.Lock()
        self.bot = BotId(0)

    async def initialize(self) -> None:
        """Nothing to do."""

    async def shutdown(self) -> None:
        self._parcels.clear()  # nobody fetches them any more

    async def handle(self, update: Update) -> bool:
        """Have the application handle an update, here and now. False if it was turned away."""
        parcel = _Parcel(update)
        self._parcels[id(update)] = parcel
        self._offer(update)
        try:
            work = await parcel.work
            if work is not None:
                handling(self.bot, chats_of(update))
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
        work = cast("Work", coroutine)
        parcel = self._parcels.pop(id(update), None)
        if parcel is not None:
            await parcel.bring(work)
            return
        async with self._stray:  # one at a time, as the library does by itself
            handling(self.bot, chats_of(update))
            await work


class _Parcel:
    def __init__(self, update: Update) -> None:
        self.update = update  # held: as long as this is there, no other has its identity
        # None: turned away
        self.work: asyncio.Future[Work | None] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()

    async def bring(self, work: Work) -> None:
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
