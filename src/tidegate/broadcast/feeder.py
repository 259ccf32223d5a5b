"""Reads the audience and puts its letters into the outbox, as fast as the line has places."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from tidegate.broadcast.audience import Audience, each, row_of
from tidegate.broadcast.message import MessageWriter, check_first
from tidegate.broadcast.tracker import STORE_RETRY_SECONDS, BroadcastMessage, MessageTracker, Tally
from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreError, TidegateError
from tidegate.model import ChatId
from tidegate.outbox.tickets import LiveTicket

log = logging.getLogger("tidegate.broadcast")

Put = Callable[[Sequence[Mapping[str, Any]]], Awaitable[list[LiveTicket]]]
BATCH: Final = 100  # messages put in one step, at most
LONGEST_CHAT: Final = 40  # characters, of one that is no chat


class _End(NamedTuple):
    """The audience has no more rows, or raised."""

    error: Exception | None


class Feeder:
    """Letters go by many in one step, as many rows as there are; a slow audience is not waited for."""

    def __init__(
        self,
        name: str,
        audience: Audience,
        letters: MessageWriter,
        *,
        put: Put,
        line: MessageTracker,
        tally: Tally,
        clock: Clock,
        ahead: int,
        remember: float,
    ) -> None:
        self._name = name
        self._audience = audience
        self._letters = letters
        self._put = put
        self._line = line
        self._tally = tally
        self._clock = clock
        self._remember = remember
        self._batch = max(1, min(BATCH, ahead // 3))  # so that some still wait while others are put
        self._rows: asyncio.Queue[object] = asyncio.Queue(self._batch)
        self._end: _End | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._closed = False
        self._putting = asyncio.Lock()
        self.begun = asyncio.Event()  # a row was found fit
        self.trouble: str | None = None
        line.put_again = self._put_again

    @property
    def is_paused(self) -> bool:
        return not self._open.is_set()

    async def run(self) -> None:
        """Until the audience ends. Raises what it raises, and what is not the fault of single rows."""
        reading = asyncio.create_task(self._read(), name=f"tidegate: audience of {self._name}")
        try:
            while rows := await self._take():
                await self._feed(rows)
            self._tally.check_rows(all_read=True)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def pause(self) -> None:
        """Nothing is put after this has returned."""
        self._open.clear()
        async with self._putting:
            pass

    def resume(self) -> None:
        self._open.set()

    async def close(self) -> None:
        """As pause, for good. What is being put is in the line when this has returned."""
        self._closed = True
        async with self._putting:
            self._open.set()  # whoever waits there need not any longer

    # --- rows ---

    async def _read(self) -> None:
        try:
            async with aclosing(each(self._audience)) as rows:
                async for row in rows:
                    await self._rows.put(row)
        except Exception as error:  # noqa: BLE001  (it is told where the rows before it were put)
            await self._rows.put(_End(error))
        else:
            await self._rows.put(_End(None))

    async def _take(self) -> list[object]:
        """One row at least, and what else is there; the first ones alone, until one is found fit."""
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
        await self._line.room(len(rows))
        await self._stop_if_hopeless()
        await self._open.wait()  # letters are written when they are about to go
        letters = [letter for row in rows if (letter := await self._letter(row)) is not None]
        await self._enter(letters)
        self._tally.check_rows(all_read=False)
        if self._tally.found_one:
            self.begun.set()

    async def _letter(self, one: object) -> BroadcastMessage | None:
        number = self._tally.read()
        try:
            row = row_of(one)
        except BadInputError as error:
            self._tally.bad(number, None, error)
            return None
        if number == 1:
            check_first(row, self._letters.needed)
        try:
            fields = await self._letters.write(row)
        except Exception as error:  # noqa: BLE001  (a function's: this row is not sent, the others are)
            self._tally.bad(number, _shown(row.get("chat_id")), error)
            return None
        if fields is None:
            self._tally.skip()
            return None
        return BroadcastMessage(number, row, fields)

    # --- letters ---

    async def _enter(self, letters: list[BroadcastMessage]) -> None:
        if not letters:
            return
        try:
            tickets = await self._put_when_open(letters)
        except BadInputError as error:
            if len(letters) > 1:  # nothing of it was stored: find out which
                for letter in letters:
                    await self._enter([letter])
            else:
                self._tally.bad(letters[0].number, letters[0].chat_id, error)
            return
        for letter, ticket in zip(letters, tickets, strict=False):  # none, once it is closed
            self._line.enter(letter, ticket)

    async def _put_again(self, letter: BroadcastMessage) -> LiveTicket | None:
        try:
            tickets = await self._put_when_open([letter])
        except BadInputError:  # its deadline has passed meanwhile, or its bot was removed
            return None
        return tickets[0] if tickets else None

    async def _put_when_open(self, letters: Sequence[BroadcastMessage]) -> list[LiveTicket]:
        """In one step, after a pause if there is one; none if it was closed meanwhile."""
        while True:
            await self._open.wait()
            async with self._putting:
                if self._closed:
                    return []
                if self._open.is_set():
                    tickets = await self._try_to_put(letters)
                    if tickets is not None:
                        return tickets
            if self.trouble is not None:
                await self._clock.sleep(STORE_RETRY_SECONDS)

    async def _try_to_put(self, letters: Sequence[BroadcastMessage]) -> list[LiveTicket] | None:
        """None if the store cannot take them now."""
        shared = {"dedup_for": self._remember}
        prefix = f"broadcast:{self._name}:"
        items = [{**letter.fields, **shared, "dedup_key": f"{prefix}{letter.key}"} for letter in letters]
        try:
            tickets = await self._put(items)
        except StoreError as error:
            if self.trouble is None:
                log.warning("broadcast %s waits, and is tried again: %s", self._name, error)
            self.trouble = str(error)
            return None
        self.trouble = None
        return tickets

    async def _stop_if_hopeless(self) -> None:
        try:
            self._tally.check_messages()
        except TidegateError:
            await self.close()
            await self._line.take_back()
            raise


def _shown(chat_id: object) -> ChatId | None:
    if isinstance(chat_id, str):
        return chat_id[:LONGEST_CHAT]
    return chat_id if isinstance(chat_id, int) else None
