"""An outbox as simple as it can be: plain dicts and lists, every step looks at everything.

It does not decide who goes next; it knows who may, and what each step makes of every message.
"""

from collections import Counter
from typing import Final

import msgspec

from tidegate.model import (
    MAX_ATTEMPTS,
    BotId,
    ChatId,
    Dead,
    Delivered,
    Message,
    Migrated,
    NotSent,
    Outcome,
    Priority,
    Refused,
    Retry,
    State,
    TicketId,
    Unknown,
)

WAITING: Final = frozenset({State.QUEUED, State.RETRY})
CRASHES_ALLOWED: Final = 5
SUSPECT_CRASHES: Final = 2
Lane = tuple[BotId, ChatId]
LineKey = tuple[BotId, ChatId, Priority]


class Modelled:
    """One message."""

    def __init__(self, message: Message, now: float) -> None:
        self.message = message
        self.since = max(now, message.not_before or 0.0)  # from then on it may go
        self.state = State.QUEUED
        self.attempts = self.crashes = 0
        self.number = 0  # in order of joining its line; 0 until it is due
        self.retry_at = 0.0
        self.lease_ends = 0.0
        self.lane: Lane | None = None  # while it is being sent
        self.cooled = False


class Model:
    """All of them. `now` is wall-clock time throughout."""

    def __init__(self, lease: float, window: float) -> None:
        self.lease, self.window = lease, window
        self.messages: dict[TicketId, Modelled] = {}
        self.lines: dict[LineKey, list[Modelled]] = {}
        self.scheduled: list[Modelled] = []
        self.aliases: dict[Lane, ChatId] = {}
        self.paused: set[BotId | Lane] = set()
        self.closed: dict[BotId | Lane, float] = {}
        self.refusals: list[tuple[float, Lane]] = []
        self.in_flight: dict[Lane, object] = {}
        self.dedup: dict[tuple[BotId, str], tuple[TicketId, float]] = {}
        self.coalesce: dict[tuple[BotId, ChatId, str], Modelled] = {}
        self.counts: Counter[str] = Counter()
        self.refused_by_bot: Counter[BotId] = Counter()
        self._joined = 0

    def boundaries(self) -> list[float]:
        """Instants at which something changes by itself."""
        times = [one.message.not_before for one in self.scheduled]
        times += [one.message.expires_at for one in self.messages.values() if one.state in WAITING]
        times += [one.lease_ends for one in self.messages.values() if one.state == State.SENDING]
        return [time for time in times if time is not None]

    def wake(self, now: float) -> None:
        for one in list(self.messages.values()):
            if one.state == State.SENDING and one.lease_ends <= now:
                self._crash(one, now)
        for one in sorted(self.scheduled, key=lambda one: one.message.not_before or 0):
            if (one.message.not_before or 0) <= now and not _late(one, one.message.not_before or 0):
                self.scheduled.remove(one)
                self._join(one)
        for one in list(self.messages.values()):
            if one.state in WAITING and _late(one, now):
                self._leave(one)
                self._end(one, State.EXPIRED)

    def _crash(self, one: Modelled, now: float) -> None:
        self._land(one)
        one.crashes += 1
        if one.crashes >= CRASHES_ALLOWED or one.message.on_unknown == "park":
            self._end(one, State.PARKED)
        else:
            self._back(one, State.QUEUED, now)

    def put(self, message: Message, now: float) -> TicketId:
        """Returns the ticket it gets."""
        if message.dedup_key is not None:
            key = (message.bot, message.dedup_key)
            first, until = self.dedup.get(key, (message.id, 0.0))
            if now < until:
                return first
            self.dedup[key] = (message.id, now + message.dedup_for)
        new = self.messages[message.id] = Modelled(message, now)
        scheduled = message.not_before is not None and message.not_before > now
        if not self._replace(new, scheduled=scheduled):
            if scheduled:
                self.scheduled.append(new)
            else:
                self._join(new)
        if message.coalesce_key is not None:
            self.coalesce[message.bot, message.chat_id, message.coalesce_key] = new
        return message.id

    def _replace(self, new: Modelled, *, scheduled: bool) -> bool:
        message = new.message
        old = self.coalesce.get((message.bot, message.chat_id, message.coalesce_key or ""))
        if old is None or old.state not in WAITING:
            return False
        in_place = old.number > 0 and not scheduled and self.line_of(old) == self.line_of(new)
        if in_place:
            line = self.lines[self.line_of(old)]
            line[line.index(old)] = new
            new.number, new.retry_at = old.number, old.retry_at
        else:
            self._leave(old)
        self._end(old, State.REPLACED)
        return in_place

    def may_go(self, ticket: TicketId, now: float) -> str:
        """Why it may not go now, as far as pacing apart; empty if it may."""
        one = self.messages[ticket]
        lane = self.lane_of(one.message.bot, one.message.chat_id)
        line = self.lines.get(self.line_of(one), [])
        reasons = {
            f"it is {one.state}": one.state not in WAITING,
            "it is not the first in its line": not line or line[0] is not one,
            "its next try is later": one.retry_at > now,
            "its chat or bot is paused": lane in self.paused or lane[0] in self.paused,
            "another suspect is in flight": one.crashes >= SUSPECT_CRASHES and self.suspect_in_flight(),
        }
        return ", ".join([why for why, holds in reasons.items() if holds]) or self.lane_may_go(lane, now)

    def suspect_in_flight(self) -> bool:
        sending = [one for one in self.messages.values() if one.state == State.SENDING]
        return any(one.crashes >= SUSPECT_CRASHES for one in sending)

    def lane_may_go(self, lane: Lane, now: float) -> str:
        if lane in self.in_flight:
            return "another call to its chat is in flight"
        return "it is closed" if max(self.closed.get(lane, 0), self.closed.get(lane[0], 0)) > now else ""

    def claim(self, ticket: TicketId, now: float) -> None:
        one = self.messages[ticket]
        one.lane = self.lane_of(one.message.bot, one.message.chat_id)
        self._leave(one)
        one.state, one.lease_ends, one.cooled = State.SENDING, now + self.lease, False
        self.in_flight[one.lane] = one

    def settle(self, ticket: TicketId, outcome: Outcome, now: float) -> None:
        one = self.messages[ticket]
        lane = one.lane
        assert lane is not None
        self._land(one)
        match outcome:
            case Delivered():
                one.attempts += 1
                self._end(one, State.DELIVERED)
            case Dead(whole_chat=whole_chat):
                one.attempts += 1
                self._end(one, State.DEAD)
                if whole_chat:
                    self.bury(lane)
            case Retry(delay=delay) | Unknown(delay=delay):
                self._again(one, outcome, now, delay)
            case Refused(retry_after=retry_after):
                self.refused(lane, now, retry_after)
                self._back(one, State.QUEUED, now)
            case Migrated(chat_id=chat):
                self._back(one, State.QUEUED, now)
                self.migrated(lane, chat)
            case NotSent():
                self._back(one, State.QUEUED, now)

    def _again(self, one: Modelled, outcome: Outcome, now: float, delay: float) -> None:
        one.attempts += 1
        if isinstance(outcome, Unknown) and one.message.on_unknown == "park":
            self._end(one, State.PARKED)
        elif one.attempts >= (one.message.max_attempts or MAX_ATTEMPTS):
            self._end(one, State.PARKED if isinstance(outcome, Unknown) else State.DEAD)
        else:
            self._back(one, State.RETRY, now, now + delay)

    def refused(self, lane: Lane, now: float, retry_after: float) -> None:
        self.refused_by_bot[lane[0]] += 1
        self.closed[lane] = max(self.closed.get(lane, 0), now + retry_after)
        self.refusals = [(at, one) for at, one in self.refusals if now - at < self.window]
        if any(one != lane and one[0] == lane[0] for _, one in self.refusals):
            self.closed[lane[0]] = max(self.closed.get(lane[0], 0), now + retry_after)
        self.refusals.append((now, lane))

    def migrated(self, lane: Lane, chat: ChatId) -> None:
        target = self.lane_of(lane[0], chat)
        if target == lane:
            return
        waiting = {priority: self.lines.pop((*lane, priority), []) for priority in Priority}
        self.aliases[lane] = chat
        for priority, ours in waiting.items():
            theirs = self.lines.setdefault((*target, priority), [])
            theirs[:] = sorted([*ours, *theirs], key=lambda one: one.number) if ours else theirs
        if lane in self.paused:
            self.paused.add(target)
        self.closed[target] = max(self.closed.get(lane, 0), self.closed.get(target, 0))

    def cancel(self, ticket: TicketId) -> bool:
        one = self.messages.get(ticket)
        if one is None or one.state not in WAITING:
            return False
        self._leave(one)
        self._end(one, State.CANCELLED)
        return True

    def reprioritize(self, ticket: TicketId, priority: Priority) -> bool:
        one = self.messages.get(ticket)
        if one is None or one.state not in WAITING:
            return False
        changed = msgspec.structs.replace(one.message, priority=priority)
        if one in self.scheduled or one.message.priority == priority:
            one.message = changed
            return True
        self._leave(one)
        one.message = changed
        line = self.lines.setdefault(self.line_of(one), [])
        line.append(one)
        line.sort(key=lambda other: other.number)
        return True

    def replay(self, ticket: TicketId, now: float) -> None:
        one = self.messages[ticket]
        one.since = now
        one.state, one.attempts, one.crashes, one.retry_at = State.QUEUED, 0, 0, 0.0
        self._join(one)

    def drop(self, ticket: TicketId) -> None:
        message = self.messages.pop(ticket).message
        key = (message.bot, message.dedup_key or "")
        if self.dedup.get(key, ("", 0))[0] == ticket:
            del self.dedup[key]

    def letters(self) -> list[TicketId]:
        dead = (State.DEAD, State.PARKED)
        return [ticket for ticket, one in self.messages.items() if one.state in dead]

    def stats(self) -> Counter[str]:
        of_bots = sum((self.stats_of(bot) for bot in self.bots()), Counter[str]())
        return self.counts + of_bots

    def stats_of(self, bot: BotId) -> Counter[str]:
        theirs = [one for one in self.messages.values() if one.message.bot == bot]
        counts = Counter(
            str(one.message.priority if one.state == State.QUEUED else one.state) for one in theirs
        )
        return counts + Counter({"refused": self.refused_by_bot[bot]})

    def bots(self) -> set[BotId]:
        return {one.message.bot for one in self.messages.values()} | set(self.refused_by_bot)

    def oldest_at(self, now: float, bot: BotId | None = None) -> float | None:
        waiting = [
            one.since
            for one in self.messages.values()
            if one.state in WAITING and one.since <= now and bot in {None, one.message.bot}
        ]
        return min(waiting, default=None)

    def lane_of(self, bot: BotId, chat: ChatId) -> Lane:
        while (bot, chat) in self.aliases:
            chat = self.aliases[bot, chat]
        return bot, chat

    def line_of(self, one: Modelled) -> LineKey:
        return (*self.lane_of(one.message.bot, one.message.chat_id), one.message.priority)

    def _join(self, one: Modelled) -> None:
        self._joined += 1
        one.number = self._joined
        self.lines.setdefault(self.line_of(one), []).append(one)

    def _leave(self, one: Modelled) -> None:
        if one in self.scheduled:
            self.scheduled.remove(one)
        else:
            self.lines[self.line_of(one)].remove(one)

    def _land(self, one: Modelled) -> None:
        assert one.lane is not None
        del self.in_flight[one.lane]
        one.lane = None

    def _back(self, one: Modelled, state: State, now: float, at: float = 0.0) -> None:
        if _late(one, now):
            self._end(one, State.EXPIRED)
            return
        one.state, one.retry_at = state, at
        self.lines.setdefault(self.line_of(one), []).insert(0, one)

    def _end(self, one: Modelled, state: State) -> None:
        one.state = state
        message = one.message
        key = (message.bot, message.chat_id, message.coalesce_key or "")
        if self.coalesce.get(key) is one:
            del self.coalesce[key]

    def bury(self, lane: Lane) -> None:
        for priority in Priority:
            for one in self.lines.pop((*lane, priority), []):
                self._end(one, State.DEAD)


def _late(one: Modelled, now: float) -> bool:
    return one.message.expires_at is not None and one.message.expires_at <= now
