"""Turns of direct calls. The file knows as much of them as a restart must know."""

import asyncio
import math
from collections import Counter, deque
from contextlib import suppress
from typing import Final

from tidegate.clock import Clock
from tidegate.errors import ClosedError, StoreError
from tidegate.model import (
    Dead,
    Delivered,
    NotSent,
    Outcome,
    Refused,
    Unknown,
    Unreachable,
)
from tidegate.outbox.dispatcher import OutboxDispatcher
from tidegate.outbox.flood_control import limits_of
from tidegate.outbox.lanes import Entry
from tidegate.outbox.port import Turn
from tidegate.outbox.transitions import other_name
from tidegate.pacing.rules import Rules
from tidegate.stores.sqlite import settle_sql
from tidegate.stores.sqlite.claims import Claims
from tidegate.stores.sqlite.file import Counts, StoreFile, Transaction
from tidegate.stores.sqlite.settle_sql import AnsweredCall

NO_ROW: Final = 0
QUARANTINE_AT_MOST: Final = 5.0  # seconds
_NOT_MADE: Final = (NotSent, Unreachable)
_UNWRITTEN: Final = (Delivered, *_NOT_MADE, Unknown)  # not written at once


def quarantine(rules: Rules) -> float:
    """Seconds without a call after a crash. Direct calls that count for longer are written first."""
    return min(QUARANTINE_AT_MOST, max(rules.bot.seconds, rules.private.seconds))


class SqliteTurns:
    def __init__(self, file: StoreFile, dispatcher: OutboxDispatcher, claims: Claims, clock: Clock) -> None:
        self._file = file
        self._dispatcher = dispatcher
        self._schedule = dispatcher.schedule
        self._claims = claims
        self._clock = clock
        self._quarantine = quarantine(self._schedule.rules)
        self._recent: deque[tuple[float, AnsweredCall]] = deque()  # of the last seconds, not in the file
        self._noted: dict[int, int] = {}  # those that are in the file while they are held, by their tokens

    async def hold(self, turn: Turn) -> Turn:
        """A turn was granted: write it before its call is made, if it counts for long."""
        entry = self._dispatcher.held_turn(turn)
        if entry is not None and self._counts_for_long(entry):
            await self._note(turn, entry)
        return turn

    def _counts_for_long(self, entry: Entry) -> bool:
        budget = "paid" if entry.paid else entry.lane.kind
        shared = self._schedule.pool_of(entry.lane.bot, budget).window
        if shared is not None and shared.seconds > self._quarantine:
            return True
        # A burst that a crash has forgotten is made up for: there are none for a while after it.
        return any(
            window.hold_seconds(entry.cost) > self._quarantine
            for window in entry.lane.windows
            if not window.is_burst
        )

    async def _note(self, turn: Turn, entry: Entry) -> None:
        """Write a call before it is made: it counts for longer than the quarantine after a crash."""
        lane = entry.lane
        call = AnsweredCall(math.inf, turn.bot, lane.chat, lane.kind, entry.paid, entry.cost)
        noted = self._file.write(
            lambda tx: settle_sql.record_calls(tx, [call]),
            lambda row: self._noted.update({turn.token: row or NO_ROW}),
        )
        try:
            await asyncio.shield(noted)
        except StoreError:
            self._noted[turn.token] = NO_ROW  # delivery goes on without the disk
        except asyncio.CancelledError:
            noted.add_done_callback(lambda _: self.end(turn, NotSent("cancelled"), 0.0))
            raise

    def _remember(self, call: AnsweredCall, outcome: Outcome, now: float) -> None:
        """Keep a call in memory. It is written when this sender ends; after a crash, the next one waits."""
        if isinstance(outcome, _NOT_MADE):
            return
        if not self._recent:
            self._clock.call_later(QUARANTINE_AT_MOST, self._forget)
        self._recent.append((now, call))  # monotonic time

    def _forget(self) -> None:
        oldest = self._clock.monotonic() - QUARANTINE_AT_MOST
        while self._recent and self._recent[0][0] <= oldest:
            self._recent.popleft()
        if self._recent:
            self._clock.call_later(QUARANTINE_AT_MOST, self._forget)

    def _may_stay_unwritten(self, entry: Entry, outcome: Outcome) -> bool:
        """Return whether a restart that misses a call waits for it; a limit set meanwhile may be longer."""
        return isinstance(outcome, _UNWRITTEN) and (
            isinstance(outcome, _NOT_MADE) or not self._counts_for_long(entry)
        )

    def write_recent(self, tx: Transaction) -> None:
        """This sender ends: write its recent calls and those in flight, so that the next need not wait."""
        now = self._clock.now()
        held = [
            AnsweredCall(now, entry.lane.bot.id, entry.lane.chat, entry.lane.kind, entry.paid, entry.cost)
            for token, entry in self._dispatcher.held_turns()
            if token not in self._noted
        ]
        settle_sql.record_calls(tx, [*(call for _, call in self._recent), *held])

    def end(self, turn: Turn, outcome: Outcome, age: float) -> None:
        """End a turn, without waiting for the disk: a restart that misses the last calls waits anyway."""
        now, wall = self._clock.monotonic(), self._clock.now()
        entry = self._dispatcher.end_turn(turn, outcome, age)
        if entry is None:
            return
        lane, bot = entry.lane, turn.bot
        old, alias = lane.chat, other_name(turn.chat_id, outcome)
        call = AnsweredCall(wall - age, bot, old, lane.kind, entry.paid, entry.cost)
        noted = self._noted.pop(turn.token, None)
        if noted is None and alias is None and self._may_stay_unwritten(entry, outcome):
            self._remember(call, outcome, now)
            self._dispatcher.stir()
            return
        limits = limits_of(self._schedule, entry, now) if isinstance(outcome, Refused) else []
        pending: Counts = Counter({(bot, "refused"): 1} if isinstance(outcome, Refused) else {})

        def step(tx: Transaction) -> None:
            if noted is not None:
                tx.execute("DELETE FROM calls WHERE n = ?", (noted,))
            if not isinstance(outcome, _NOT_MADE):
                settle_sql.record_calls(tx, [call])
            settle_sql.store_limits(tx, limits, wall)
            if alias is not None:
                settle_sql.alias(tx, bot, old, alias)
            tx.counts.update(pending)

        with suppress(ClosedError):  # the call was made, even if it cannot be written
            self._file.write(step, sure=True, pending=pending)
            if isinstance(outcome, Dead) and outcome.whole_chat:
                self._claims.bury(lane, outcome)
            elif alias is not None and isinstance(outcome, Delivered):
                self._dispatcher.alias(lane, alias, now)
        self._dispatcher.stir()
