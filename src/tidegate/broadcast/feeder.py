"""Reads the audience and puts its messages into the outbox, as fast as the tracker has room for them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from tidegate.broadcast.audience import Audience, each, row_of
from tidegate.broadcast.message import BroadcastMessage, MessageWriter, check_first, dedup_prefix
from tidegate.broadcast.tracker import STORE_RETRY_SECONDS, MessageTracker, Tally
from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreError, TidegateError
from tidegate.model import ChatId
from tidegate.outbox.tickets import LiveTicket
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.broadcast")

Put = Callable[[Sequence[Mapping[str, Any]]], Awaitable[list[LiveTicket]]]
BATCH: Final = 100  # messages put in one step, at most
UNTRACKED_BATCH: Final = 500  # likewise, if nobody waits for single messages
LONGEST_CHAT: Final = 40  # characters shown of a value that is not a chat


class _End(NamedTuple):
    """The audience has no more rows, or raised."""

    error: Exception | None


class Feeder:
    """Puts messages in batches of the rows that are there; it does not wait for a slow audience.

    Without `writer`, the audience consists of BroadcastMessages.
    """

    def __init__(
        self,
        name: str,
        audience: Audience,
        writer: MessageWriter | None,
        *,
        put: Put,
        tracker: MessageTracker,
        tally: Tally,
        clock: Clock,
        ahead: int | None,
        remember: float,
    ) -> None:
        self._name = name
        self._audience = audience
        self._writer = writer
        self._put = put
        self._tracker = tracker
        self._tally = tally
        self._clock = clock
        self._remember = remember
        self._waits_for_store = ahead is not None
        # A third of what may wait, so that some still wait while others are put.
        self._batch = UNTRACKED_BATCH if ahead is None else max(1, min(BATCH, ahead // 3))
        self._rows: asyncio.Queue[object] = asyncio.Queue(self._batch)
        self._end: _End | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._closed = False
        self._putting = asyncio.Lock()
        self.begun = asyncio.Event()  # a row could be sent
        self.trouble: str | None = None  # why the store takes no messages now
        tracker.put_again = self._put_again

    @property
    def is_paused(self) -> bool:
        return not self._open.is_set()

    async def run(self) -> None:
        """Put messages until the audience ends. Raises its error, and errors that concern all rows."""
        tasks = BackgroundTasks()
        tasks.start(self._read(), f"audience of {self._name}")
        try:
            while rows := await self._take():
                await self._feed(rows)
            self._tally.check_rows(all_read=True)
        finally:
            await tasks.stop()

    async def pause(self) -> None:
        """Nothing is put after this has returned."""
        self._open.clear()
        async with self._putting:
            pass

    def resume(self) -> None:
        self._open.set()

    async def close(self) -> None:
        """Pause for good. Messages that are being put are tracked when this returns."""
        self._closed = True
        async with self._putting:
            self._open.set()  # wakes those who wait for the end of a pause

    async def _read(self) -> None:
        try:
            async with aclosing(each(self._audience)) as rows:
                async for row in rows:
                    await self._rows.put(row)
        except Exception as error:  # noqa: BLE001  (raised after the rows before it were put)
            await self._rows.put(_End(error))
        else:
            await self._rows.put(_End(None))

    async def _take(self) -> list[object]:
        """Wait for a row, and take those that are there; one at a time until one could be sent."""
        rows: list[object] = []
        most = self._batch if self.begun.is_set() else 1
        while self._end is None and len(rows) < most and not (rows and self._rows.empty()):
            row = await self._rows.get()
            if isinstance(row, _End):
                self._end = row
            else:
                rows.append(row)
        if not rows and self._end is not None and self._end.error is not None:
            raise self._end.error
        return rows

    async def _feed(self, rows: list[object]) -> None:
        await self._tracker.room(len(rows))
        await self._stop_if_hopeless()
        await self._open.wait()  # messages are written just before they are put
        await self._enter([message for row in rows if (message := await self._write(row)) is not None])
        self._tally.check_rows(all_read=False)
        if self._tally.found_one:
            self.begun.set()

    async def _write(self, one: object) -> BroadcastMessage | None:
        number = self._tally.read()
        if isinstance(one, BroadcastMessage) or self._writer is None:
            return one  # type: ignore[return-value]  # of an audience of messages
        try:
            row = row_of(one)
        except BadInputError as error:
            self._tally.bad(number, None, error)
            return None
        if number == 1:
            check_first(row, self._writer.needed)
        try:
            fields = await self._writer.write(row)
        except Exception as error:  # noqa: BLE001  (a user's function: only this row is not sent)
            self._tally.bad(number, _shown(row.get("chat_id")), error)
            return None
        if fields is None:
            self._tally.skip()
            return None
        return BroadcastMessage(number, row, fields)

    async def _enter(self, messages: list[BroadcastMessage]) -> None:
        if not messages:
            return
        try:
            tickets = await self._put_when_open(messages)
        except BadInputError as error:
            if len(messages) > 1:  # none was stored: find out which one is bad
                for message in messages:
                    await self._enter([message])
            else:
                self._tally.bad(messages[0].number, messages[0].chat_id, error)
            return
        for message, ticket in zip(messages, tickets, strict=False):  # no tickets once it is closed
            self._tracker.enter(message, ticket)

    async def _put_again(self, message: BroadcastMessage) -> LiveTicket | None:
        try:
            tickets = await self._put_when_open([message])
        except BadInputError:  # its deadline has passed meanwhile, or its bot was removed
            return None
        return tickets[0] if tickets else None

    async def _put_when_open(self, messages: Sequence[BroadcastMessage]) -> list[LiveTicket]:
        """Put them in one step, after a pause if there is one. Return nothing if it was closed meanwhile."""
        while True:
            await self._open.wait()
            async with self._putting:
                if self._closed:
                    return []
                if self._open.is_set():
                    tickets = await self._try_to_put(messages)
                    if tickets is not None:
                        return tickets
            if self.trouble is not None:
                await self._clock.sleep(STORE_RETRY_SECONDS)

    async def _try_to_put(self, messages: Sequence[BroadcastMessage]) -> list[LiveTicket] | None:
        """Return None if the store cannot take them now."""
        prefix = dedup_prefix(self._name)
        items = [
            {**message.fields, "dedup_for": self._remember, "dedup_key": f"{prefix}{message.key}"}
            for message in messages
        ]
        try:
            tickets = await self._put(items)
        except StoreError as error:
            if not self._waits_for_store:
                raise
            if self.trouble is None:
                log.warning("broadcast %s waits for the store and tries again: %s", self._name, error)
            self.trouble = str(error)
            return None
        self.trouble = None
        return tickets

    async def _stop_if_hopeless(self) -> None:
        try:
            self._tally.check_messages()
        except TidegateError:
            await self.close()
            await self._tracker.take_back()
            raise


def _shown(chat_id: object) -> ChatId | None:
    if isinstance(chat_id, str):
        return chat_id[:LONGEST_CHAT]
    return chat_id if isinstance(chat_id, int) else None
