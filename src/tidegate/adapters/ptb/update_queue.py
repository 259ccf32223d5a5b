"""The queue between an updater and its application, with the inbox in the middle."""

import asyncio
import logging

from telegram import Update
from telegram.ext._application import _STOP_SIGNAL

from tidegate.adapters.ptb.intake import Intake
from tidegate.errors import BadInputError

log = logging.getLogger("tidegate.inbound")


class UpdateQueue(asyncio.Queue[object]):
    """What is put is held durably; what is got comes from the desk. Anything but updates goes straight on."""

    def __init__(self) -> None:
        super().__init__()
        self.intake: Intake | None = None  # of the application, once that is built
        self._stopping = self._said = False

    async def put(self, item: object) -> None:
        """Of an update: returns when it is held. The updater moves its offset then, or answers with 200."""
        if self.intake is None:
            await super().put(item)
        elif isinstance(item, Update):
            await self._hold(item, self.intake)
        elif item is _STOP_SIGNAL:
            self._stopping = True
            try:
                await self.intake.close()
            finally:
                self.offer(item)  # whatever happened: the application waits for it
        else:
            self.offer(item)

    def put_nowait(self, item: object) -> None:
        if isinstance(item, Update) and self.intake is not None:
            raise BadInputError("an update is written down first, which takes its time: await put(update)")
        super().put_nowait(item)

    def offer(self, item: object) -> None:
        """To the application, past the inbox."""
        super().put_nowait(item)

    async def get(self) -> object:
        """Whoever asks is the application, which runs then."""
        if self.intake is not None and not self._stopping:
            self.intake.serve()
        item = await super().get()
        if item is _STOP_SIGNAL:
            self._stopping = False
        return item

    async def _hold(self, update: Update, intake: Intake) -> None:
        if update.update_id == intake.fetched:  # it says how far polling has come: all of that is held
            return
        if intake.can_hold():
            await intake.hold(update)
            return
        if not self._said:
            log.warning(
                "updates that come by webhook are not held: with arbitrary_callback_data a button may stand"
                " for any object. Poll for them, or use plain callback_data"
            )
        self._said = True
        self.offer(update)
