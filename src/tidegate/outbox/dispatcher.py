"""Serves the tasks that wait for messages, for a turn, or for messages to be settled.

It knows entries, not messages: the store that owns it keeps those.
"""

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from tidegate.clock import Clock
from tidegate.errors import ClosedError
from tidegate.events import EventStream, LimitChange, LimitChanged, OutageBegan, OutageEnded, RefusalHeard
from tidegate.model import (
    BotId,
    ChatId,
    Delivered,
    Migrated,
    NotSent,
    Outcome,
    Priority,
    Record,
    Refused,
    TicketId,
    Unknown,
    Unreachable,
    shows_that_bot_sends,
)
from tidegate.outbox.lanes import LOW_TURN, NEVER, NORMAL_TURN, TURN, Entry, Lane
from tidegate.outbox.port import Turn
from tidegate.outbox.schedule import Schedule
from tidegate.outbox.transitions import outage_in
from tidegate.pacing.rules import Family

ALIASES_KEPT: Final = 10_000
CLOSED_WHILE_WAITING: Final = "the store was closed while this waited"
TURN_LEVELS: Final = {Priority.HIGH: TURN, Priority.NORMAL: NORMAL_TURN, Priority.LOW: LOW_TURN}  # of turns
FROZEN_AFTER: Final = 2.0  # seconds that a timer is late in a process that stood still
SHORTEST_SLEEP: Final = 0.0005  # seconds; uvloop spins on less


class OutboxDispatcher:
    """`settle_woken` is given the entries that expired and those whose lease ran out, before each step.

    `watched` says whether other tasks than claimers and turns wait for time to pass; `waiting` counts the
    messages of a bot that have not ended, for the log.
    """

    def __init__(
        self,
        schedule: Schedule,
        clock: Clock,
        events: EventStream,
        *,
        settle_woken: Callable[[list[Entry], list[Entry], float], None],
        watched: Callable[[], bool],
        waiting: Callable[[BotId], int] = lambda _: 0,
    ) -> None:
        self.schedule = schedule
        self.events = events
        schedule.on_recovery = self._tell_limit
        self.refused: Counter[BotId] = Counter()
        self.uncertain = 0
        self._clock = clock
        self._settle_woken = settle_woken
        self._watched = watched
        self._waiting = waiting
        self._claimers: deque[tuple[int, asyncio.Future[list[Entry]]]] = deque()
        self._turns: dict[str | int, asyncio.Future[int]] = {}
        self._held_turns: dict[int, Entry] = {}
        self._turn_ids = itertools.count(1)
        self._aliases: dict[tuple[BotId, ChatId], ChatId] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.refuse(lambda: ClosedError(CLOSED_WHILE_WAITING))
        self.schedule.close()

    def refuse(self, error: Callable[[], Exception]) -> None:
        """Fail every task that waits for messages or for a turn."""
        for claimer in (future for _, future in self._claimers if not future.done()):
            claimer.set_exception(error())
        for turn in (future for future in self._turns.values() if not future.done()):
            turn.set_exception(error())

    def wake(self, now: float) -> None:
        """Let due timers act."""
        if self._timer is not None and now > self._timer_at + FROZEN_AFTER:
            # The answers of the calls in flight lie in their sockets: a late settlement counts.
            self.schedule.renew_leases(now)
        self._settle_woken(*self.schedule.wake(now), now)

    def stir(self) -> None:
        """Something changed: take a step if a task waits for one."""
        if not (self._claimers or self._turns or self._watched()):
            self.schedule.sweep(self._clock.monotonic())  # as no step will
        elif self.schedule.has_work:
            self._step()
        else:
            self.arm()

    def arm(self) -> None:
        """Set the timer of the next step, if a task waits for one. It may come too early."""
        at = NEVER
        if self._claimers or self._turns or self._watched():
            at = self.schedule.next_at(room=bool(self._claimers))
        if self._timer is not None:
            if self._timer_at <= at:
                return  # a timer for each call would cost more than a step for nothing now and then
            self._timer.cancel()
            self._timer = None
        if at < NEVER:
            now = self._clock.monotonic()
            self._timer_at = max(at, now + SHORTEST_SLEEP)
            self._timer = self._clock.call_later(self._timer_at - now, self._on_time)

    def _on_time(self) -> None:
        self.wake(self._clock.monotonic())  # while it is known for when the timer was set
        self._timer = None
        if self.schedule.has_work:
            self._step()
        else:
            self.arm()

    def _step(self) -> None:
        """Grant what may go to the tasks that wait, then sleep until there may be more."""
        while self._claimers and self._claimers[0][1].done():
            self._claimers.popleft()
        if self._claimers:
            room, future = self._claimers[0]
            entries = self._grant(room)
            if entries:
                self._claimers.popleft()
                future.set_result(entries)
        else:
            self._grant(0)
        self.arm()

    def _grant(self, room: int) -> list[Entry]:
        now = self._clock.monotonic()
        self.wake(now)
        entries = []
        for entry in self.schedule.claim(now, room):
            if entry.level >= TURN:
                self._give_turn(entry, now)
            else:
                entries.append(entry)
        return entries

    async def claim(self, room: int) -> list[Entry]:
        """Wait for up to `room` entries that may go. Cancelling it gives back what it was granted."""
        if not self._claimers:
            entries = self._grant(room)
            if entries:
                if self._turns or self._watched():
                    self.arm()  # these leases are timers for them, too
                return entries
        future: asyncio.Future[list[Entry]] = asyncio.get_running_loop().create_future()
        waiting = (room, future)
        self._claimers.append(waiting)
        self.arm()
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled() and future.exception() is None:  # it was granted in the same instant
                self.give_back(future.result())
            raise
        finally:
            if waiting in self._claimers:
                self._claimers.remove(waiting)

    def may_claim(self) -> bool:
        now = self._clock.monotonic()
        self.wake(now)
        return self.schedule.has_due(now)

    def give_back(self, entries: list[Entry]) -> None:
        """Entries that were not sent return to the heads of their lines, and their slots are free."""
        now = self._clock.monotonic()
        for entry in entries:
            self.schedule.release(entry, now, sent=False)
            self.schedule.again(entry)
            self.schedule.settle_lane(entry.lane, now)
        self.stir()

    def heard(self, entry: Entry, outcome: Outcome, now: float) -> None:
        """Apply an outcome to closures, limits and outages. Call it before `release`."""
        owner = entry.lane.bot
        if isinstance(outcome, Refused):
            self.refused[owner.id] += 1
            self._apply_refusal(entry, now, outcome.retry_after)
        if owner.obstacle and shows_that_bot_sends(outcome):
            lasted = now - owner.away_since
            self.schedule.end_outage(owner)
            self.events.publish(OutageEnded(owner.id, lasted, self._waiting(owner.id)))
        elif (held := outage_in(outcome)) is not None:
            wait, obstacle = held
            if self.schedule.hold(entry, now, wait, obstacle):
                self.events.publish(OutageBegan(owner.id, obstacle, self._waiting(owner.id)))

    def _apply_refusal(self, entry: Entry, now: float, retry_after: float) -> None:
        bot, chat = entry.lane.bot.id, entry.lane.chat
        effect = self.schedule.refused(entry, now, retry_after)
        self.events.publish(RefusalHeard(bot, retry_after, "bot" if effect.closes_bot else "chat", chat))
        if effect.cut is not None:
            self._tell_limit(bot, None if effect.cuts_bot else chat, effect.cut)

    def _tell_limit(self, bot: BotId, chat: ChatId | None, change: LimitChange) -> None:
        self.events.publish(LimitChanged(bot, chat, change))

    def release(self, entry: Entry, outcome: Outcome, at: float) -> None:
        """A call is over and was answered `at`: its slots cool, or are free if it was not sent."""
        sent = not isinstance(outcome, NotSent | Unreachable)
        self.schedule.release(entry, at, sent=sent, answered=sent and not isinstance(outcome, Unknown))

    def cool(self, entry: Entry | None) -> None:
        if entry is not None and self.schedule.cool(entry, self._clock.monotonic()):
            self.uncertain += 1

    async def turn(
        self,
        bot: BotId,
        chat_id: ChatId,
        family: Family,
        cost: int,
        priority: Priority,
        *,
        paid: bool,
        max_wait: float | None,
    ) -> Turn:
        lane = self.schedule.lane(bot, self.chat(bot, chat_id), family)
        entry = Entry(0, lane, TURN_LEVELS[priority], cost, paid=paid)
        if self.schedule.grant_at_once(entry, self._clock.monotonic()):
            self._held_turns[entry.token] = entry
            return Turn(bot, chat_id, entry.token)
        entry.id = f"turn {next(self._turn_ids)}"
        async with self._clock.timeout(max_wait):
            return Turn(bot, chat_id, await self._token_for(entry))

    async def _token_for(self, entry: Entry) -> int:
        """Wait in line. Cancelling it gives back what it was granted."""
        granted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._turns[entry.id] = granted
        self.schedule.add(entry, self._clock.monotonic())
        self._step()
        try:
            return await granted
        except asyncio.CancelledError:
            if not granted.cancelled() and granted.exception() is None:
                turn = Turn(entry.lane.bot.id, entry.lane.chat, granted.result())
                self.end_turn(turn, NotSent("cancelled"), 0.0)
            elif self._turns.pop(entry.id, None) is not None:  # else it is given back already
                self.schedule.remove(entry, self._clock.monotonic())
            self.stir()
            raise
        finally:
            self._turns.pop(entry.id, None)

    def end_turn(self, turn: Turn, outcome: Outcome, age: float) -> Entry | None:
        """End a turn; returns its entry, or None if it had ended already. Call `stir` after it."""
        entry = self._held_turns.pop(turn.token, None)
        if entry is None:
            return None
        now, lane = self._clock.monotonic(), entry.lane
        if isinstance(outcome, Delivered) and not lane.bot.obstacle:  # nearly always
            self.schedule.release(entry, now - age, answered=True)
        else:
            self.heard(entry, outcome, now)
            self.release(entry, outcome, now - age)
            if isinstance(outcome, Migrated):
                self.alias(lane, outcome.chat_id, now)
        self.schedule.settle_lane(lane, now)
        return entry

    def held_turn(self, turn: Turn) -> Entry | None:
        return self._held_turns.get(turn.token)

    def held_turns(self) -> list[tuple[int, Entry]]:
        return list(self._held_turns.items())

    def _give_turn(self, entry: Entry, now: float) -> None:
        granted = self._turns.pop(entry.id)
        if granted.done():  # cancelled in this instant
            self.schedule.release(entry, now, sent=False)
            self.schedule.settle_lane(entry.lane, now)
            return
        self._held_turns[entry.token] = entry
        granted.set_result(entry.token)

    def chat(self, bot: BotId, chat: ChatId) -> ChatId:
        """The present id of a chat, which may have been given as a name, and have migrated since."""
        while (bot, chat) in self._aliases:
            chat = self._aliases[bot, chat]
        return chat

    def remember_alias(self, bot: BotId, old: ChatId, chat: ChatId) -> None:
        """Store an alias that was learned earlier, while no lane exists yet."""
        self._aliases[bot, old] = chat

    def alias(self, lane: Lane, chat: ChatId, now: float) -> None:
        """The chat of this lane has another id: the lane moves there, and later entries follow."""
        bot, old, chat = lane.bot.id, lane.chat, self.chat(lane.bot.id, chat)
        if chat == old:
            return  # it is there already
        self._aliases[bot, old] = chat
        if len(self._aliases) > ALIASES_KEPT:
            del self._aliases[next(iter(self._aliases))]
        # Lanes of other kinds find out by themselves: one that has a call in flight must not move.
        self.schedule.move(lane, chat, now)


class SettledWaiters:
    """Futures of callers that wait for one message to be settled, or for all.

    `left` counts the messages of a bot, or of all bots (None), that are not settled.
    """

    def __init__(self, left: Callable[[BotId | None], int]) -> None:
        self._left = left
        self._waiting: dict[TicketId, list[asyncio.Future[Record]]] = {}
        self._drainers: list[tuple[BotId | None, asyncio.Future[None]]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting or self._drainers)

    @property
    def tickets(self) -> list[TicketId]:
        return list(self._waiting)

    def end_of(self, ticket: TicketId) -> asyncio.Future[Record]:
        future: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(ticket, []).append(future)
        future.add_done_callback(lambda future: self._forget(ticket, future))
        return future

    def end_of_all(self, bot: BotId | None) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._drainers.append((bot, future))
        self._tell_drainers()
        return future

    def ended(self, ticket: TicketId, record: Callable[[], Record]) -> None:
        """`record` is called only if a caller waits for it."""
        for future in self._waiting.pop(ticket, ()):
            if not future.done():
                future.set_result(record())
        self.changed()

    def lost(self, ticket: TicketId, error: Exception) -> None:
        """Fail those who wait: how the message ended will never be known."""
        for future in self._waiting.pop(ticket, ()):
            if not future.done():
                future.set_exception(error)

    def changed(self) -> None:
        """Some have ended. Look once this step is complete, as the end of one may be the start of another."""
        if self._drainers:
            asyncio.get_running_loop().call_soon(self._tell_drainers)

    def close(self) -> None:
        for ticket in self.tickets:
            self.lost(ticket, ClosedError(CLOSED_WHILE_WAITING))
        for _, future in self._drainers:
            if not future.done():
                future.set_exception(ClosedError(CLOSED_WHILE_WAITING))

    def _forget(self, ticket: TicketId, future: asyncio.Future[Record]) -> None:
        waiting = self._waiting.get(ticket, [])
        if future in waiting:
            waiting.remove(future)
            if not waiting:
                del self._waiting[ticket]

    def _tell_drainers(self) -> None:
        for bot, future in self._drainers:
            if not future.done() and not self._left(bot):
                future.set_result(None)
        self._drainers = [(bot, future) for bot, future in self._drainers if not future.done()]
