"""Who goes next: the lanes of all bots in one process, without messages, disk or network.

Every step is synchronous and takes `now`, in seconds of a monotonic clock; nothing here waits. The cost of
a step does not grow with the number of lines that wait.
"""

import heapq
import itertools
from collections import deque
from typing import Final

from tidegate.model import BotId, ChatId, Rate
from tidegate.outbox.flood import learn_from_refusal, step_up
from tidegate.outbox.lanes import (
    BLOCKED,
    EMPTY,
    HIGH,
    LOW,
    NEVER,
    NORMAL,
    READY,
    STRIDES,
    TURN,
    URGENT,
    WAITING,
    BotLanes,
    Entry,
    Lane,
    Line,
    Pool,
)
from tidegate.pacing.rules import Family, Rules
from tidegate.pacing.window import Window

PATIENCE: Final = 8  # times a line is passed over before slots are reserved for it
SLACK: Final = 0.003  # seconds a timer may be late without the spacing starting anew
SWEEP: Final = 4  # idle lanes looked at in each step

LINE, POOL, JOIN, EXPIRE = range(4)  # what a timer wakes


class Schedule:
    """One process holds one; whoever calls it must be the only caller at a time."""

    def __init__(self, rules: Rules, *, lease: float = 30.0) -> None:
        self.rules = rules
        self.lease = lease
        self.bots: dict[BotId, BotLanes] = {}
        self.lanes: dict[tuple[BotId, ChatId, str], Lane] = {}
        self.urgent_in_debt = 0
        self._active: deque[Pool] = deque()
        self._timers: list[tuple[float, int, int, Line | Pool | Entry]] = []
        self._leases: deque[tuple[float, Entry, int]] = deque()
        self._resting: deque[tuple[float, Lane]] = deque()
        self._numbers = itertools.count(1)
        self._turns = 0  # that wait to be granted
        self._asleep: set[Pool] = set()  # pools with lines, whose every slot is in flight

    # --- what comes in ---

    def lane(self, bot: BotId, chat: ChatId, family: Family) -> Lane:
        """The lane of a chat, made if need be."""
        return self._lane(bot, chat, self._kind(family))

    def add(self, entry: Entry, now: float, due: float = 0.0) -> None:
        """Put an entry at the end of its line, now or when it is due."""
        if entry.level == TURN:
            self._turns += 1
        if entry.expires < NEVER:
            self._at(entry.expires, EXPIRE, entry)
        if due > now:
            self._at(due, JOIN, entry)
        else:
            self._join(entry, now)

    # --- who may go ---

    def wake(self, now: float) -> tuple[list[Entry], list[Entry]]:
        """Let due timers act. Returns the entries that expired, and those whose lease ran out.

        The latter still hold their slots and their lane: settle them.
        """
        expired: list[Entry] = []
        timers = self._timers
        while timers and timers[0][0] <= now:
            at, _, kind, what = heapq.heappop(timers)
            self._wake_one(at, kind, what, now, expired)
        lost: list[Entry] = []
        leases = self._leases
        while leases and leases[0][0] <= now:
            _, entry, token = leases.popleft()
            if entry.token == token:
                lost.append(entry)
        self._sweep(now)
        return expired, lost

    def claim(self, now: float, room: int) -> list[Entry]:
        """Grant what may go now: up to `room` messages, and every turn. `wake` comes first."""
        granted: list[Entry] = []
        active, tried = self._active, 0
        while active and (room > 0 or (self._turns and tried < len(active))):
            pool = active[0]
            entry = self._take(pool, now, messages=room > 0)
            if entry is None:
                if pool.active:  # it has messages only, and there is no room for those
                    active.rotate(-1)
                    tried += 1
                continue
            granted.append(entry)
            if entry.level == TURN:
                self._turns -= 1
            else:
                room -= 1
            active.rotate(-1)  # bots take turns
        return granted

    def next_at(self) -> float:
        """When the next step may have something to do; 0 if it has now."""
        if self._active:
            return 0.0
        soonest = self._timers[0][0] if self._timers else NEVER
        return min(soonest, self._leases[0][0]) if self._leases else soonest

    def wait_for(self, bot: BotId, chat: ChatId, family: Family, cost: int, now: float) -> float:
        """Seconds until a call could be made if nothing else came. Takes nothing."""
        lane = self.lanes.get((bot, chat, self._kind(family)))
        owner = self.bots.get(bot)
        wait = lane.wait(now, cost) if lane else 0.0
        if lane and lane.in_flight is not None:
            wait = NEVER
        if owner:
            wait = max(wait, owner.closed_until - now)
            window = self._pool(owner, lane.kind if lane else "send").window
            if window and cost:
                wait = max(wait, window.wait(now, cost))
        return max(0.0, wait)

    # --- how it ended ---

    def extend(self, entry: Entry, now: float) -> None:
        """Renew a lease."""
        self._leases.append((now + self.lease, entry, entry.token))

    def cool(self, entry: Entry, now: float) -> None:
        """No answer for too long: the slots cool from now on, the entry stays in flight."""
        if entry.cost and not entry.cooled:
            entry.cooled = True
            self._answered(entry, now)

    def release(self, entry: Entry, at: float, *, sent: bool = True) -> None:
        """The call is over, its answer came `at`: slots cool, or are free at once if it was never sent.

        The entry is out of its line; put it back with `again`, or forget it.
        """
        lane = entry.lane
        entry.token = 0
        if lane.in_flight is entry:
            lane.in_flight = None
        if entry.cost and not entry.cooled:
            if sent:
                self._answered(entry, at)
            else:
                for window in self._windows(entry):
                    window.give_back(entry.cost)
        entry.cooled = False
        lane.last_call = at
        pool = self._pool_of(entry)
        if pool in self._asleep or not sent:
            self._activate(pool)

    def settle_lane(self, lane: Lane, now: float) -> None:
        """After `release` (and `again`): the lines of the lane find their places."""
        for line in lane.lines:
            if line.place in {BLOCKED, EMPTY}:
                self._place(line, now)
        if all(line.head is None for line in lane.lines):
            self._rest(lane, now)

    def again(self, entry: Entry, at: float = 0.0) -> None:
        """Back to the head of its line, to go at `at`."""
        entry.retry_at = at
        line = entry.lane.line(entry.level)
        line.push_front(entry)
        line.place = BLOCKED  # `settle_lane` places it

    def refused(self, entry: Entry, now: float, retry_after: float) -> None:
        """A 429: close what it tells to close, and learn. Comes before `release`."""
        learn_from_refusal(entry.lane, self._pool_of(entry), self.rules, now, retry_after)

    def remove(self, entry: Entry, now: float) -> None:
        """Take a waiting entry out of its line."""
        entry.gone = True
        line = entry.lane.line(entry.level)
        if line.place != EMPTY and line.head is entry:
            self._place(line, now)
        if entry.level == TURN:
            self._turns -= 1

    def move(self, lane: Lane, chat: ChatId, now: float) -> None:
        """The chat has another id: what waits in this lane waits there, in order of arrival."""
        self.lanes.pop((lane.bot.id, lane.chat, lane.kind), None)
        lane.moved_to = chat
        target = self._lane(lane.bot.id, chat, lane.kind)
        for line in lane.lines:
            into = target.line(line.level)
            entries = sorted([*_chain(line), *_chain(into)], key=lambda entry: entry.seq)
            line.head = line.tail = into.head = into.tail = None
            for entry in entries:
                entry.next = None
                entry.lane = target
                into.append(entry)
            line.place = EMPTY
            if into.place != BLOCKED:
                self._place(into, now)

    def waiting_in(self, lane: Lane) -> list[Entry]:
        """Everything that waits in a lane, turns apart."""
        return [entry for line in lane.lines if line.level != TURN for entry in _chain(line)]

    # --- operators ---

    def pause(self, bot: BotId, chat: ChatId | None, *, paused: bool, now: float) -> None:
        """Hold or let go what is queued for a bot or one of its chats. Turns are not held."""
        owner = self.bots.get(bot) or self._add_bot(bot)
        if chat is None:
            owner.paused = paused
            lanes = [lane for lane in self.lanes.values() if lane.bot is owner]
        else:
            lanes = [self.lane(bot, chat, "send")]
            lanes[0].paused = paused
        for lane in lanes:
            for line in lane.lines:
                if line.place != EMPTY:
                    self._place(line, now)
            if not paused:
                self._rest(lane, now)

    # --- inside ---

    def _lane(self, bot: BotId, chat: ChatId, kind: str) -> Lane:
        lane = self.lanes.get((bot, chat, kind))
        if lane is None:
            owner = self.bots.get(bot) or self._add_bot(bot)
            rates = self.rules.actions if kind == "action" else (self.rules.chat(chat),)
            lane = self.lanes[bot, chat, kind] = Lane(owner, chat, kind, tuple(map(Window, rates)))
        return lane

    def _kind(self, family: Family) -> str:
        """Which lane of a chat a call belongs to. What is free of limits keeps its order among sends."""
        if family == "action":
            return "action"
        return "edit" if family == "edit" and self.rules.edits == "separate" else "send"

    def _add_bot(self, bot: BotId) -> BotLanes:
        owner = self.bots[bot] = BotLanes(bot)
        return owner

    def _pool(self, bot: BotLanes, budget: str) -> Pool:
        pool = bot.pools.get(budget)
        if pool is None:
            rate: Rate | None = self.rules.bot
            if budget == "paid":
                rate = self.rules.paid
            elif budget == "action":
                rate = None
            pool = bot.pools[budget] = Pool(bot, Window(rate) if rate else None)
        return pool

    def _pool_of(self, entry: Entry) -> Pool:
        return self._pool(entry.lane.bot, "paid" if entry.paid else entry.lane.kind)

    def _windows(self, entry: Entry) -> tuple[Window, ...]:
        whole = self._pool_of(entry).window
        return (whole, *entry.lane.windows) if whole else entry.lane.windows

    def _answered(self, entry: Entry, at: float) -> None:
        for window in self._windows(entry):
            window.answered(at, entry.cost)

    def _at(self, time: float, kind: int, what: Line | Pool | Entry) -> None:
        heapq.heappush(self._timers, (time, next(self._numbers), kind, what))

    def _join(self, entry: Entry, now: float) -> None:
        lane = entry.lane
        key = (lane.bot.id, lane.moved_to or lane.chat, lane.kind)
        # While it was not due, its lane may have been forgotten, or have moved.
        entry.lane = self.lanes.setdefault(key, lane) if lane.moved_to is None else self._lane(*key)
        entry.seq = next(self._numbers)
        line = entry.lane.line(entry.level)
        line.append(entry)
        if line.place == EMPTY:
            self._place(line, now)

    def _wake_one(self, at: float, kind: int, what: object, now: float, expired: list[Entry]) -> None:
        if kind == LINE and isinstance(what, Line):
            if what.place == WAITING and what.wake_at == at:
                self._place(what, now)
        elif kind == POOL and isinstance(what, Pool):
            if what.wake_at == at:
                self._activate(what)
        elif isinstance(what, Entry) and not what.gone:
            if kind == JOIN:
                self._join(what, now)
            elif what.token == 0:
                self.remove(what, now)
                expired.append(what)

    def _place(self, line: Line, now: float) -> None:
        """Find out whether a line may go: ready, waiting until a known time, or blocked by its own lane."""
        entry, lane = line.first(), line.lane
        if entry is None:
            line.place, line.passed = EMPTY, 0
            if lane.reserved is line:
                lane.reserved = None
            return
        held = (lane.paused or lane.bot.paused) and line.level != TURN
        if held or lane.in_flight is not None or lane.reserved not in {None, line}:
            line.place = BLOCKED
            return
        until = max(entry.retry_at, lane.closed_until)
        if entry.cost and line.level != URGENT:
            until = max(until, now + self._lane_wait(lane, line, entry, now))
        if until == NEVER:
            line.place = BLOCKED
        elif until > now:
            line.place, line.wake_at = WAITING, until
            self._at(until, LINE, line)
        else:
            self._ready(line, entry, now)

    def _lane_wait(self, lane: Lane, line: Line, entry: Entry, now: float) -> float:
        if lane.learned is not None:
            step_up(lane, lane.windows[0], now)
        wait = max(window.wait(now, entry.cost) for window in lane.windows)
        if wait > 0 and entry.cost > 1:
            # Cheaper ones of this chat take each slot as it gets free; after a while they must not.
            line.passed += 1
            if line.passed >= PATIENCE:
                lane.reserved = line
        return wait

    def _ready(self, line: Line, entry: Entry, now: float) -> None:
        line.place = READY
        pool = self._pool_of(entry)
        level = HIGH if line.level == TURN else line.level
        queue = pool.ready[line.level]
        if level != URGENT and not queue:
            # Who was away gets no credit for it.
            pool.passes[level] = max(pool.passes[level], pool.served)
        queue.push(entry.seq, line)
        if pool.wake_at <= now or level in {HIGH, URGENT}:
            self._activate(pool)

    def _activate(self, pool: Pool) -> None:
        self._asleep.discard(pool)
        pool.wake_at = 0.0
        if not pool.active:
            pool.active = True
            self._active.append(pool)

    def _sleep(self, pool: Pool, until: float) -> None:
        """Out of the round: until then; until an answer comes if that is never; until a line if it is 0."""
        self._active.popleft()  # only the pool in turn is put to sleep
        pool.active, pool.wake_at = False, until
        if until == NEVER:
            self._asleep.add(pool)
        elif until:
            self._at(until, POOL, pool)

    def _take(self, pool: Pool, now: float, *, messages: bool) -> Entry | None:
        """Grant the next entry of a pool. If there is none now, it sleeps, unless only room is lacking."""
        bot, window = pool.bot, pool.window
        if bot.closed_until > now:
            self._sleep(pool, bot.closed_until)
            return None
        if pool.learned is not None and window is not None:
            step_up(pool, window, now)
        while True:
            line = self._choose(pool, now, messages=messages)
            if line is None:
                return None
            entry, lane = line.head, line.lane
            assert entry is not None  # noqa: S101  (a ready line has a head)
            if lane.in_flight is not None or not self._may(lane, line, entry, now):
                self._place(line, now)
                continue
            if window is not None and line.level != URGENT and not window.fits(now, entry.cost):
                if window.free(now) <= 0:
                    self._sleep(pool, now + window.wait(now))
                    return None
                if not self._pass_over(pool, line, entry, now):
                    return None
                continue
            self._grant(pool, line, entry, now)
            return entry

    @staticmethod
    def _may(lane: Lane, line: Line, entry: Entry, now: float) -> bool:
        """Whether what was true when the line became ready still is."""
        if (lane.paused or lane.bot.paused) and line.level != TURN:
            return False
        if lane.closed_until > now or lane.reserved not in {None, line}:
            return False
        return not entry.cost or line.level == URGENT or all(w.fits(now, entry.cost) for w in lane.windows)

    def _choose(self, pool: Pool, now: float, *, messages: bool) -> Line | None:
        """The line to go next; None puts the pool to sleep, unless only room for messages is lacking."""
        ready = pool.ready
        if messages and ready[URGENT] and (line := ready[URGENT].first()):
            return line
        if pool.reserved is not None:
            if pool.reserved.place == READY and pool.reserved.head is not None:
                return pool.reserved
            pool.reserved = None
        turn = ready[TURN].first() if ready[TURN] else None
        if not messages:
            return turn  # the pool stays in the round: there may be room for messages soon
        best = _earlier(ready[HIGH].first() if ready[HIGH] else None, turn)
        lowest = pool.passes[HIGH] if best is not None else NEVER
        spaced = False
        for level in (NORMAL, LOW):
            line = ready[level].first() if ready[level] else None
            if line is None:
                continue
            if now < pool.spaced_until:
                spaced = True
            elif pool.passes[level] < lowest:
                best, lowest = line, pool.passes[level]
        if best is None:
            self._sleep(pool, pool.spaced_until if spaced else 0.0)
        return best

    def _pass_over(self, pool: Pool, line: Line, entry: Entry, now: float) -> bool:
        """Others may go where this one does not fit, a few times; then slots are kept for it."""
        assert pool.window is not None  # noqa: S101  (without one, everything fits)
        line.passed += 1
        wait = min(pool.window.wait(now, entry.cost), pool.window.seconds)
        if line.passed >= PATIENCE:
            pool.reserved = line
            self._sleep(pool, now + wait)
            return False
        line.place, line.wake_at = WAITING, now + wait
        self._at(line.wake_at, LINE, line)
        return True

    def _grant(self, pool: Pool, line: Line, entry: Entry, now: float) -> None:
        lane, window, cost = line.lane, pool.window, entry.cost
        line.pop()
        line.passed = 0
        if lane.reserved is line:
            lane.reserved = None
        if pool.reserved is line:
            pool.reserved = None
        if cost:
            if line.level == URGENT and window is not None and not window.fits(now, cost):
                self.urgent_in_debt += 1
            if window is not None:
                window.take(cost)
            for own in lane.windows:
                own.take(cost)
        entry.token = next(self._numbers)
        if line.level != TURN:  # a turn lasts as long as its owner lives
            self._leases.append((now + self.lease, entry, entry.token))
        if line.level != URGENT:
            self._account(pool, line.level, cost, now)
        if lane.kind == "action":  # unordered: several may be in flight
            self._place(line, now)
        else:
            lane.in_flight = entry
            line.place = BLOCKED

    @staticmethod
    def _account(pool: Pool, level: int, cost: int, now: float) -> None:
        level = HIGH if level == TURN else level
        pool.served = pool.passes[level]
        pool.passes[level] += STRIDES[level] * max(1, cost)
        if level != HIGH and pool.window is not None:
            # A saturated window would fire all its calls at once; spaced ones leave gaps for replies.
            started = pool.spaced_until if pool.spaced_until > now - SLACK else now
            pool.spaced_until = started + cost * pool.window.seconds / pool.window.count

    def _rest(self, lane: Lane, now: float) -> None:
        """Remember to forget a lane that has nothing to do."""
        self._resting.append((now + max(window.seconds for window in lane.windows), lane))

    def _sweep(self, now: float) -> None:
        resting = self._resting
        for _ in range(SWEEP):
            if not resting or resting[0][0] > now:
                return
            _, lane = resting.popleft()
            if lane.idle(now):
                key = (lane.bot.id, lane.chat, lane.kind)
                if self.lanes.get(key) is lane:
                    del self.lanes[key]
            elif all(line.head is None for line in lane.lines) and lane.in_flight is None:
                self._rest(lane, now)


def _earlier(one: Line | None, other: Line | None) -> Line | None:
    if one is None or other is None:
        return one or other
    assert one.head is not None  # noqa: S101  (a ready line has a head)
    assert other.head is not None  # noqa: S101
    return one if one.head.seq < other.head.seq else other


def _chain(line: Line) -> list[Entry]:
    entries, entry = [], line.head
    while entry is not None:
        if not entry.gone:
            entries.append(entry)
        entry = entry.next
    return entries
