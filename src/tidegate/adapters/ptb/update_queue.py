"""The queue between an updater and its application, with the inbox in the middle."""

import asyncio
import logging
from typing import Any

from telegram import Update
from telegram.ext._application import _STOP_SIGNAL

from tidegate.adapters.ptb.application_inbox import ApplicationInbox
from tidegate.errors import BadInputError

log = logging.getLogger("tidegate.inbound")


class InboxUpdateQueue(asyncio.Queue[object]):
    """What Telegram sends is held durably; what is got comes from the desk. The rest goes straight on."""

    def __init__(self) -> None:
        super().__init__()
        self.intake: ApplicationInbox | None = None  # of the application, once that is built
        self._fetcher: asyncio.Task[Any] | None = None  # the application's
        self._stopping = False
        self._said: set[str] = set()

    async def put(self, item: object) -> None:
        """Of an update: returns when it is held. The updater moves its offset then, or answers with 200."""
        if self.intake is None:
            await super().put(item)
        elif item is _STOP_SIGNAL:
            await self._stop(self.intake)
        elif isinstance(item, Update) and not _is_made_by_hand(item):
            await self._hold(item, self.intake)
        else:
            self.offer(item)

    def put_nowait(self, item: object) -> None:
        if isinstance(item, Update) and not _is_made_by_hand(item) and self.intake is not None:
            raise BadInputError("an update is written down first, which takes its time: await put(update)")
        super().put_nowait(item)

    def offer(self, item: object) -> None:
        """To the application, past the inbox."""
        super().put_nowait(item)

    async def get(self) -> object:
        """Whoever asks is the application, which runs then."""
        self._fetcher = asyncio.current_task()
        if self.intake is not None and not self._stopping:
            self.intake.serve()
        while True:
            item = await super().get()
            if item is _STOP_SIGNAL:
                self._stopping = False
            if not self._turns_away(item):
                return item
            self.task_done()

    def _turns_away(self, item: object) -> bool:
        """An application that stops warns of what it begins: where warnings are errors, it would fail."""
        return self._stopping and self.intake is not None and self.intake.turn_away(item)

    async def _stop(self, intake: ApplicationInbox) -> None:
        running = [one for one in (self._fetcher,) if one is not None and not one.done()]
        self._stopping = True
        try:
            await intake.close()
        finally:
            self.offer(_STOP_SIGNAL)  # whatever happened: the application waits for it
            if any(fetcher.done() for fetcher in running):  # it has failed meanwhile: nobody takes anything
                self._stopping = False
                self._drop_all()

    def _drop_all(self) -> None:
        while not self.empty():
            self.get_nowait()
            self.task_done()

    async def _hold(self, update: Update, intake: ApplicationInbox) -> None:
        if update.update_id == intake.fetched and len(update.to_dict()) == 1:
            return  # it says how far polling has come: all of that is held
        if not intake.can_hold():
            self._say(
                "updates that come by webhook are not held: with arbitrary_callback_data a button may stand"
                " for any object. Poll for them, or use plain callback_data"
            )
            self.offer(update)
            return
        try:
            fresh = await intake.hold(update)
        except BadInputError as error:
            self._say(f"an update cannot be written down and is handled without being held: {error}")
            self.offer(update)
            return
        if not fresh and update._bot is None:  # noqa: SLF001  (what an updater puts has one)
            self._say(
                "an update that was made by hand is not handled: its update_id was there before, or its"
                " sender is throttled. Give it the update_id 0"
            )

    def _say(self, what: str) -> None:
        """Once."""
        if what not in self._said:
            log.warning(what)
        self._said.add(what)


def _is_made_by_hand(update: Update) -> bool:
    """Telegram counts from 1; so it is somebody's own, and there may be many with this number."""
    return update.update_id <= 0
