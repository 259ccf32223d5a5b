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
    """Stores updates of Telegram in the inbox, and returns those that its dispatcher offers.

    Other objects, and updates that were made by hand, go straight to the application.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inbox: ApplicationInbox | None = None  # of the application, once that is built
        self._reader: asyncio.Task[Any] | None = None  # the application's
        self._stopping = False
        self._warned: set[str] = set()

    async def put(self, item: object) -> None:
        """Return when an update is stored: then the updater moves its offset, or answers with 200."""
        if self.inbox is None:
            await super().put(item)
        elif item is _STOP_SIGNAL:
            await self._stop(self.inbox)
        elif isinstance(item, Update) and not _is_made_by_hand(item):
            await self._store(item, self.inbox)
        else:
            self.offer(item)

    def put_nowait(self, item: object) -> None:
        if isinstance(item, Update) and not _is_made_by_hand(item) and self.inbox is not None:
            raise BadInputError("an update is stored first, which takes time: use `await put(update)`")
        super().put_nowait(item)

    def offer(self, item: object) -> None:
        """Put an item for the application, past the inbox."""
        super().put_nowait(item)

    async def get(self) -> object:
        """Return the next item. Only the application asks, and only while it runs."""
        self._reader = asyncio.current_task()
        if self.inbox is not None and not self._stopping:
            self.inbox.serve()
        while True:
            item = await super().get()
            if item is _STOP_SIGNAL:
                self._stopping = False
            # An application that stops warns of updates that it begins, and fails where warnings are errors.
            if not (self._stopping and self.inbox is not None and self.inbox.reject(item)):
                return item
            self.task_done()

    async def _stop(self, inbox: ApplicationInbox) -> None:
        running = [one for one in (self._reader,) if one is not None and not one.done()]
        self._stopping = True
        try:
            await inbox.close()
        finally:
            self.offer(_STOP_SIGNAL)  # in any case: the application waits for it
            if any(reader.done() for reader in running):  # it has failed meanwhile: nobody reads any more
                self._stopping = False
                self._drop_all()

    def _drop_all(self) -> None:
        while not self.empty():
            self.get_nowait()
            self.task_done()

    async def _store(self, update: Update, inbox: ApplicationInbox) -> None:
        if update.update_id == inbox.last_polled and len(update.to_dict()) == 1:
            return  # made by the polling request, which has stored all updates up to this id
        if not inbox.can_store():
            self._warn_once(
                "updates that come by webhook are not stored: with arbitrary_callback_data a button may stand"
                " for any object. Poll for them, or use plain callback_data"
            )
            self.offer(update)
            return
        try:
            fresh = await inbox.store(update)
        except BadInputError as error:
            self._warn_once(f"an update cannot be stored, and is handled without being stored: {error}")
            self.offer(update)
            return
        if not fresh and update._bot is None:  # noqa: SLF001  (an update of the updater has one)
            self._warn_once(
                "an update that was made by hand is not handled: its update_id is known already, or its"
                " sender is throttled. Give it the update_id 0"
            )

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            log.warning(text)
        self._warned.add(text)


def _is_made_by_hand(update: Update) -> bool:
    """Telegram counts from 1. Several updates that were made by hand may have the same id."""
    return update.update_id <= 0
