"""The schedule: decides which entry goes next, for the lanes of all bots in one process.

Every step is synchronous and takes `now`, in seconds of a monotonic clock; nothing here waits or does I/O.
The cost of a step does not grow with the number of lines that wait.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from tidegate.events import LimitChange
from tidegate.model import BotId, BotLimits, ChatId, Probe, Rate
from tidegate.outbox.flood_control import RefusalEffect, learn_from_refusal, step_up
from tidegate.outbox.lanes import (
    BLOCKED,
    EMPTY,
    HIGH,
    LOW,
    NEVER,
    NORMAL,
    READY,
    SUSPECT,
    TURN,
    URGENT,
    WAITING,
    BotLanes,
    Entry,
    Lane,
    Line,
    Pool,
    ScheduleTimers,
    TimerKind,
)
from tidegate.outbox.shares import account, join, next_line, rest_until, share_of, spacing
from tidegate.pacing.learned import LearnedLimit
from tidegate.pacing.rules import Family, Rules, chat_kind, own_rules
from tidegate.pacing.window import Window, chat_windows, reshaped_windows

LINE_SKIPS_BEFORE_RESERVATION: Final = 8  # times a line is passed over before slots are reserved for it
RESERVATION_WINDOWS: Final = (
    1.2  # windows for which turns let such a line go first: what cools has cooled by then
)
LANES_SWEPT_PER_STEP: Final = 4  # idle lanes looked at in each step
LANES_SWEPT_WHEN_IDLE: Final = 1_000  # … if nothing may go anyway
SWEEP_WITHIN: Final = 1.0  # seconds after which a lane that can be forgotten is worth a step


class Schedule:
    """One per process. It is not thread-safe."""

    def __init__(self, rules: Rules, *, lease: float = 30.0) -> None:
        self.rules = rules
        self.lease = lease
        self.bots: dict[BotId, BotLanes] = {}
        self.lanes: dict[tuple[BotId, ChatId, str], Lane] = {}
        self.urgent_in_debt = 0
        self.no_bursts_until = 0.0  # after a crash: replies of the last seconds may not be known
        # Told when a learned limit has recovered a step.
        self.on_recovery: Callable[[BotId, ChatId | None, LimitChange], None] | None = None
        self._untouched = chat_windows(
            rules
        )  # of lanes without a call yet, of bots without limits of their own
        self._kinds = ("send", "action", "edit") if rules.edits == "separate" else ("send", "action")
        self._active: deque[Pool] = deque()
        self._timers = ScheduleTimers()
        self._leases: deque[tuple[float, Entry, int]] = deque()
        self._resting: deque[tuple[float, Lane]] = deque()
        self._numbers = itertools.count(1)
        self._turns = 0  # that wait to be granted
        self._asleep: set[Pool] = set()  # pools with lines, whose every slot is in flight
        self._suspects: set[Line] = set()  # lines that wait for the suspect in flight
        self._suspect: Entry | None = None  # the one in flight
        self._offered: Line | None = None  # the one that may be next

    def lane(self, bot: BotId, chat: ChatId, family: Family) -> Lane:
        """The lane of a chat, made if need be."""
        return self.lane_of(bot, chat, self.kind(family))

    def add(self, entry: Entry, now: float, due: float = 0.0) -> None:
        """Put an entry at the end of its line, now or when it is due."""
        if entry.level >= TURN:
            self._turns += 1
        if entry.expires < NEVER:
            self._timers.set(entry.expires, TimerKind.EXPIRE, entry)
        if due > now:
            self._timers.set(due, TimerKind.JOIN, entry)
        else:
            self._join(entry, now)

    def wake(self, now: float) -> tuple[list[Entry], list[Entry]]:
        """Let due timers act. Returns the entries that expired, and those whose lease ran out.

        The latter still hold their slots and their lane: settle them.
        """
        expired: list[Entry] = []
        for kind, what in self._timers.due(now):
            self._wake_one(kind, what, now, expired)
        lost: list[Entry] = []
        leases = self._leases
        while leases and leases[0][0] <= now:
            until, entry, token = leases.popleft()
            if entry.token == token and entry.leased_until == until:  # else it was extended
                entry.leased_until = NEVER  # once, though it may stand here twice
                lost.append(entry)
        self.sweep(now)
        return expired, lost

    def claim(self, now: float, room: int) -> list[Entry]:
        """Grant what may go now: up to `room` messages, and every turn. Call `wake` first."""
        granted: list[Entry] = []
        active, tried = self._active, 0
        while True:
            if room > 0 and self._suspects:  # one on offer may have had to wait
                self._offer_suspect(now)
            if not active or not (room > 0 or (self._turns and tried < len(active))):
                return granted
            pool = active[0]
            entry = self._take(pool, now, messages=room > 0)
            if entry is None:
                if pool.active:  # it has messages only, and there is no room for those
                    active.rotate(-1)
                    tried += 1
                continue
            granted.append(entry)
            tried = 0  # all pools are looked at again: other turns may fit now
            if entry.level >= TURN:
                self._turns -= 1
            else:
                room -= 1
            active.rotate(-1)  # bots take turns

    def grant_at_once(self, turn: Entry, now: float) -> bool:
        """Grant a turn that has no rival, without a line, as most direct calls are granted.

        False if something waits or a limit is in the way: then `add` it.
        """
        lane, pool, cost = turn.lane, self._pool_of(turn), turn.cost
        if lane.closed_until > now or pool.bot.closed_until > now or _has_rival(lane, pool):
            return False
        if turn.level != TURN and now < pool.spaced_until:
            return False
        whole = pool.window
        if whole is not None and not whole.fits(now, cost):
            return False
        for window in self._limits_of(lane, turn.level, now):
            if not window.fits(now, cost):
                return False
        lane.touch()
        for window in self._windows(turn):
            window.held += cost
        turn.token = next(self._numbers)
        join(pool, turn.level)
        account(pool, turn.level, cost, now)
        if lane.kind != "action":
            lane.in_flight = turn
        return True

    @property
    def has_work(self) -> bool:
        """Return whether a step could grant something, whatever the time is."""
        return bool(self._active) or (bool(self._suspects) and self._suspect is None)

    def has_due(self, now: float) -> bool:
        """Return whether a line is ready whose bot is not closed, away or paused. Call `wake` first."""
        return any(
            queue.first() is not None
            for pool in self._active
            if _can_send(pool.bot, now)
            for queue in pool.ready
        )

    def next_at(self, *, room: bool) -> float:
        """The time of the next step that may have something to do; 0 if now, with `room` for messages."""
        if room and (self._active or self._needs_offer()):
            return 0.0
        soonest = self._timers.soonest()
        if self._leases and self._leases[0][0] < soonest:
            soonest = self._leases[0][0]
        if self._resting and self._resting[0][0] + SWEEP_WITHIN < soonest:
            soonest = self._resting[0][0] + SWEEP_WITHIN
        return soonest

    def wait_for(self, bot: BotId, chat: ChatId, family: Family, cost: int, now: float) -> float:
        """Seconds until a call could be made, behind everything that waits for its chat. Takes nothing."""
        kind = self.kind(family)
        lane, owner = self.lanes.get((bot, chat, kind)), self.bots.get(bot)
        wait = 0.0
        if lane:
            ahead = sum(line.count() for line in lane.lines) + (lane.in_flight is not None)
            own = lane.windows[0]
            wait = max(_known(lane.wait(now, cost, TURN), own), ahead * own.seconds / own.count)
        if owner:
            wait = max(wait, owner.closed_until - now)
            shared = self.pool_of(owner, kind).window
            if shared and cost:
                wait = max(wait, _known(shared.wait(now, cost), shared))
        return max(0.0, wait)

    def extend(self, entry: Entry, now: float) -> None:
        """Grant or renew a lease."""
        entry.leased_until = now + self.lease
        self._leases.append((entry.leased_until, entry, entry.token))

    def renew_leases(self, now: float) -> None:
        """The process stood still: its calls may have been answered meanwhile, and no other process sends."""
        leases = [(entry, token) for until, entry, token in self._leases if entry.leased_until == until]
        self._leases.clear()
        for entry, token in leases:
            if entry.token == token:
                self.extend(entry, now)

    def cool(self, entry: Entry, now: float) -> bool:
        """No answer for too long: the slots cool, the entry stays in flight. False if they cool already."""
        if not entry.cost or entry.cooled:
            return False
        entry.cooled = True
        self._answered(entry, now)
        pool = self._pool_of(entry)
        if pool in self._asleep:
            self._activate(pool)
        return True

    def release(self, entry: Entry, at: float, *, sent: bool = True, answered: bool = False) -> None:
        """The call is over, its answer came `at`: slots cool, or are free at once if it was never sent.

        The entry is out of its line; put it back with `again`, or forget it.
        """
        lane = entry.lane
        entry.token, entry.gone = 0, True  # its timers are outdated, unless it comes back
        if lane.in_flight is entry:
            lane.in_flight = None
        if self._suspect is entry:
            self._suspect = None
        if lane.bot.probe is entry:
            lane.bot.probe = None
            self._activate_all(lane.bot)
        if entry.cost and not entry.cooled:
            if sent:
                self._answered(entry, at)
            else:
                self._give_back(entry)
        elif entry.cost and answered:  # after a silence: it may have been counted only now
            for window in self._windows(entry):
                window.take(entry.cost)
            self._answered(entry, at)
        entry.cooled = False
        lane.last_call = at
        pool = self._pool_of(entry)
        if not sent or pool in self._asleep:
            self._activate(pool)

    def settle_lane(self, lane: Lane, now: float) -> None:
        """After `release` (and `again`): the lines of the lane find their places."""
        empty = True
        for line in lane.lines:
            # Actions are unordered: another call may have given back the slot that this one waits for.
            if line.place in {BLOCKED, EMPTY} or (lane.kind == "action" and line.place == WAITING):
                self._place(line, now)
            if line.head is not None:
                empty = False
        if empty:
            self._rest(lane, now)

    def again(self, entry: Entry, at: float = 0.0) -> None:
        """Back to the head of its line, to go at `at`."""
        entry.retry_at, entry.gone = at, False
        while entry.lane.moved_to is not None:  # while it was in flight
            entry.lane = entry.lane.moved_to
        line = entry.lane.line(entry.level)
        line.push_front(entry)
        line.place = BLOCKED  # `settle_lane` places it

    def hold(self, entry: Entry, now: float, wait: float, obstacle: str) -> bool:
        """The bot cannot send: nothing goes for `wait` seconds, then one probe. Returns whether this is news.

        Call it before `release`.
        """
        bot = entry.lane.bot
        began = not bot.obstacle
        if began:
            bot.away_since, bot.probes = now, 0
        elif bot.probe is entry:
            bot.probes += 1
        if began or now + wait > bot.away_until:
            bot.away_until, bot.obstacle = now + wait, obstacle
        return began

    def end_outage(self, bot: BotLanes) -> None:
        """The bot sends again: what waits may go at the full rate."""
        bot.away_until, bot.obstacle, bot.probes, bot.probe = 0.0, "", 0, None
        self._activate_all(bot)

    @staticmethod
    def probe_of(entry: Entry, now: float) -> Probe | None:
        """Return what an entry that was granted finds out, if its bot could not send."""
        bot = entry.lane.bot
        if bot.probe is not entry:
            return None
        return Probe(bot.probes + 1, bot.obstacle, now - bot.away_since)

    def refused(self, entry: Entry, now: float, retry_after: float) -> RefusalEffect:
        """A 429: close the chat or the bot, and cut a limit. Call it before `release`."""
        return learn_from_refusal(entry.lane, self._pool_of(entry), entry.lane.bot.rules, now, retry_after)

    def remove(self, entry: Entry, now: float) -> None:
        """Take a waiting entry out of its line."""
        entry.gone = True
        lane = entry.lane
        line = lane.line(entry.level)
        if line.place != EMPTY and line.head is entry:
            self._unreserve(line, self._pool_of(entry), now)
            self._place(line, now)
        if entry.level >= TURN:
            self._turns -= 1
        if all(line.head is None for line in lane.lines):
            self._rest(lane, now)

    def replace(self, entry: Entry, newer: Entry, now: float) -> None:
        """A newer message takes the place of one that waits in the same line."""
        entry.id, entry.cost, entry.expires = newer.id, newer.cost, newer.expires
        entry.attempts = entry.crashes = 0
        if entry.expires < NEVER:
            self._timers.set(entry.expires, TimerKind.EXPIRE, entry)
        line = entry.lane.line(entry.level)
        if line.place == SUSPECT and line.head is entry:
            self._place(line, now)

    def change_level(self, entries: Iterable[Entry], level: int, now: float) -> list[Entry]:
        """Move messages to other lines of their lanes, which are in order of arrival then.

        Returns the entries that stand for them from now on. One that is not due yet, or in flight, joins the
        other line later, or returns to it.
        """
        moved, coming = list[Entry](), dict[Line, list[Entry]]()
        for entry in entries:
            if entry.level == level or entry.token or not entry.seq:
                entry.level = level
                moved.append(entry)
                continue
            newer = msgspec.structs.replace(entry, level=level, next=None)  # the other stays in its chain
            self.remove(entry, now)
            if newer.expires < NEVER:
                self._timers.set(newer.expires, TimerKind.EXPIRE, newer)
            coming.setdefault(newer.lane.line(level), []).append(newer)
            moved.append(newer)
        for line, its in coming.items():
            self._merge(line, its, now)
        return moved

    def _merge(self, line: Line, coming: list[Entry], now: float) -> None:
        first = line.first()
        entries = sorted([*line.entries(), *coming], key=lambda entry: entry.seq)
        line.head = line.tail = None
        for entry in entries:
            entry.next = None
            line.append(entry)
        if line.head is not first:
            if first is not None:
                self._unreserve(line, self._pool_of(first), now)
            self._place(line, now)

    def move(self, lane: Lane, chat: ChatId, now: float) -> None:
        """The chat has another id: entries of this lane move there, in order of arrival.

        It is still the same chat: cooling slots, closures and pauses move along.
        """
        if chat == lane.chat:
            return
        self.lanes.pop((lane.bot.id, lane.chat, lane.kind), None)
        target = lane.moved_to = self.lane_of(lane.bot.id, chat, lane.kind)
        target.paused = target.paused or lane.paused
        target.closed_until = max(target.closed_until, lane.closed_until)
        target.touch()
        # A private chat has one window more. It does not migrate, but a broken server may say so.
        for ours, theirs in zip(lane.windows, target.windows, strict=False):
            theirs.cooling, theirs.cooled = sorted([*theirs.cooling, *ours.cooling]), 0
        for line in lane.lines:
            into, coming = target.line(line.level), [*line.entries()]
            entries = [*coming, *into.entries()]
            if coming:
                entries.sort(key=lambda entry: entry.seq)
            line.head = line.tail = into.head = into.tail = None
            for entry in entries:
                entry.next = None
                entry.lane = target
                into.append(entry)
            line.place = EMPTY
            if into.place != BLOCKED:
                self._place(into, now)
        if all(line.head is None for line in target.lines):
            self._rest(target, now)

    def close(self) -> None:
        """Break the reference cycles, so that its memory is freed."""
        for lane in self.lanes.values():
            lane.part()

    def learned(self, *, chats: bool = True) -> dict[tuple[BotId, ChatId | None], Rate]:
        """The limits that 429s have cut: of a bot (None), or of one of its chats.

        Each has several, of sends and of chat actions, say: the tightest of those that were cut.
        """
        cut: list[tuple[tuple[BotId, ChatId | None], LearnedLimit]] = [
            ((bot.id, None), pool.learned)
            for bot in self.bots.values()
            for pool in bot.pools.values()
            if pool.learned is not None
        ]
        if chats:
            lanes = self.lanes.values()
            cut += [((lane.bot.id, lane.chat), lane.learned) for lane in lanes if lane.learned is not None]
        found: dict[tuple[BotId, ChatId | None], Rate] = {}
        for place, learned in cut:
            rate = learned.rate
            before = found.get(place, rate)
            found[place] = rate if rate.count * before.seconds <= before.count * rate.seconds else before
        return found

    def closures(self, now: float, *, chats: bool = True) -> list[tuple[BotId, ChatId | None, float, str]]:
        """Closed bots (None) and chats: for how many seconds, and why a bot cannot send."""
        found: list[tuple[BotId, ChatId | None, float, str]] = [
            (bot.id, None, bot.closed_until - now, bot.obstacle) for bot in self.bots.values()
        ]
        if chats:
            found += [(lane.bot.id, lane.chat, lane.closed_until - now, "") for lane in self.lanes.values()]
        return [place for place in found if place[2] > 0 or place[3]]

    def open(self, bot: BotId, chat: ChatId | None, now: float) -> None:
        """End the closures of a bot and its chats, or of one chat; the wait of an outage, too."""
        owner = self.bot(bot)
        if chat is None:
            owner.closed_until, owner.away_until = 0.0, 0.0
        for lane in [lane for lane in self.lanes.values() if lane.bot is owner and chat in {None, lane.chat}]:
            lane.closed_until = 0.0
            for line in lane.lines:
                if line.place == WAITING:
                    self._place(line, now)
        self._activate_all(owner)

    def waiting_in(self, lane: Lane) -> list[Entry]:
        """Every entry that waits in a lane, except turns."""
        return [entry for line in lane.lines if line.level < TURN for entry in line.entries()]

    def pause(self, bot: BotId, chat: ChatId | None, *, paused: bool, now: float) -> None:
        """Pause or resume the messages of a bot or of one of its chats. Turns are not paused."""
        owner = self.bot(bot)
        if chat is None:
            owner.paused = paused  # `_take` looks at it: there may be a million lines
            if not paused:
                self._activate_all(owner)
            return
        for lane in [self.lane_of(bot, chat, kind) for kind in self._kinds]:
            lane.paused = paused
            for line in lane.lines:
                if line.place != EMPTY:
                    self._place(line, now)
            if not paused:
                self._rest(lane, now)

    @property
    def own_limits(self) -> dict[BotId, BotLimits]:
        """The bots that have limits of their own."""
        return {bot.id: bot.own for bot in self.bots.values() if bot.own}

    @property
    def longest(self) -> float:
        """The seconds of the longest window of any bot."""
        return max(self.rules.longest, *(bot.rules.longest for bot in self.bots.values()), 0.0)

    @property
    def longest_replies(self) -> float:
        """The seconds of the longest window of replies of any bot; 0 if there is none."""
        all_rules = (self.rules, *(bot.rules for bot in self.bots.values()))
        return max(rules.replies.seconds if rules.replies is not None else 0.0 for rules in all_rules)

    def set_limits(self, bot: BotId, own: BotLimits, now: float) -> None:
        """Give a bot limits of its own, which hold at once for what was sent lately and for what waits."""
        owner = self.bot(bot)
        if own == owner.own:
            return
        owner.own, owner.rules = own, own_rules(self.rules, own)
        empty = chat_windows(owner.rules)
        owner.untouched = {
            kind: reshaped_windows(owner.untouched[kind], windows, now) for kind, windows in empty.items()
        }
        for budget, pool in owner.pools.items():
            if pool.window is not None and budget != "paid":
                _reshape_pool(pool, pool.window, owner.rules.bot, now)
        for lane in [lane for lane in self.lanes.values() if lane.bot is owner]:
            self._reshape_lane(lane, empty[chat_kind(lane.kind, lane.chat)], now)
        self._activate_all(owner)

    def restore_limits(self, bot: BotId, own: BotLimits, full_until: Mapping[str, float]) -> None:
        """Restore the limits of a bot before any of its calls, and the windows that a change has filled."""
        owner = self.bot(bot)
        owner.own, owner.rules = own, own_rules(self.rules, own)
        owner.untouched = chat_windows(owner.rules)
        for kind, windows in owner.untouched.items():
            for window in windows if kind in full_until else ():
                window.fill(full_until[kind])
        if "bot" in full_until:
            for budget in self._kinds:
                if (shared := self.pool_of(owner, budget).window) is not None:
                    shared.fill(full_until["bot"])

    def _reshape_lane(self, lane: Lane, empty: tuple[Window, ...], now: float) -> None:
        if lane.shared:
            lane.windows = lane.bot.untouched[chat_kind(lane.kind, lane.chat)]
        else:
            learned = lane.learned
            memory = lane.windows[0].seconds
            if learned is not None:
                memory = min(memory, learned.rule.seconds)
            lane.windows = reshaped_windows(lane.windows, empty, now, memory)
            if learned is not None:
                lane.learned = learned.rebased(empty[0].rate, is_burst=empty[0].is_burst)
                if lane.learned is not None:
                    lane.windows[0].resize(lane.learned.rate)
        longest = max(window.seconds for window in lane.windows)
        lane.reserved_until = min(lane.reserved_until, now + RESERVATION_WINDOWS * longest)
        for line in lane.lines:
            if line.place == WAITING:
                self._place(line, now)

    def lane_of(self, bot: BotId, chat: ChatId, kind: str) -> Lane:
        lane = self.lanes.get((bot, chat, kind))
        if lane is None:
            owner = self.bot(bot)
            windows = owner.untouched[chat_kind(kind, chat)]
            pool = self.pool_of(owner, kind)
            lane = self.lanes[bot, chat, kind] = Lane(owner, chat, kind, pool, windows)
        return lane

    def kind(self, family: Family) -> str:
        return self.rules.kind(family)

    def bot(self, bot: BotId) -> BotLanes:
        """The lanes of a bot, made if need be."""
        owner = self.bots.get(bot)
        if owner is None:
            owner = self.bots[bot] = BotLanes(bot, self.rules, self._untouched)
        return owner

    def pool_of(self, bot: BotLanes, budget: str) -> Pool:
        pool = bot.pools.get(budget)
        if pool is None:
            rate: Rate | None = bot.rules.bot
            if budget == "paid":
                rate = bot.rules.paid
            elif budget == "action":
                rate = None
            pool = bot.pools[budget] = Pool(bot, Window.of(rate) if rate else None)
        return pool

    def _pool_of(self, entry: Entry) -> Pool:
        return self.pool_of(entry.lane.bot, "paid") if entry.paid else entry.lane.pool

    def _windows(self, entry: Entry) -> tuple[Window, ...]:
        whole = self._pool_of(entry).window
        return (whole, *entry.lane.windows) if whole else entry.lane.windows

    def _answered(self, entry: Entry, at: float) -> None:
        for window in self._windows(entry):
            window.answered(at, entry.cost)

    def _give_back(self, entry: Entry) -> None:
        for window in self._windows(entry):
            window.give_back(entry.cost)
        pool = self._pool_of(entry)
        if share_of(entry.level) in {NORMAL, LOW}:
            pool.spaced_until -= spacing(pool, entry.cost)

    def _join(self, entry: Entry, now: float) -> None:
        lane = entry.lane
        # While it was not due, its lane may have been forgotten, or have moved, even twice.
        while lane.moved_to is not None:
            lane = lane.moved_to
        entry.lane = self.lanes.setdefault((lane.bot.id, lane.chat, lane.kind), lane)
        entry.seq = next(self._numbers)
        line = entry.lane.line(entry.level)
        line.append(entry)
        if line.place == EMPTY:
            self._place(line, now)

    def _wake_one(self, kind: TimerKind, what: Line | Pool | Entry, now: float, expired: list[Entry]) -> None:
        if isinstance(what, Line):
            self._place(what, now)
        elif isinstance(what, Pool):
            self._activate(what)
        elif kind is TimerKind.JOIN:
            self._join(what, now)
        elif what.token == 0:
            self.remove(what, now)
            expired.append(what)

    def _place(self, line: Line, now: float) -> None:
        """Place a line: ready, waiting until a known time, or blocked by its own lane."""
        entry, lane = line.first(), line.lane
        if entry is None:
            line.place, line.passed = EMPTY, 0
            return
        held = lane.paused and line.level < TURN
        if held:
            self._unreserve(line, self._pool_of(entry), now)
        if held or lane.in_flight is not None or not self._unbarred(lane, line):
            line.place = BLOCKED
            return
        until = max(entry.retry_at, lane.closed_until)
        if self._stands_back(lane, line):
            until = max(until, lane.reserved_until)
        if entry.cost and line.level != URGENT:
            until = max(until, now + self._lane_wait(lane, line, entry, now))
        if until == NEVER:
            line.place = BLOCKED
        elif until > now:
            line.place, line.wake_at = WAITING, until
            self._timers.set(until, TimerKind.LINE, line)
        else:
            self._ready(line, entry, now)

    def _tell_limit(self, bot: BotId, chat: ChatId | None, change: LimitChange | None) -> None:
        if change is not None and self.on_recovery is not None:
            self.on_recovery(bot, chat, change)

    def _lane_wait(self, lane: Lane, line: Line, entry: Entry, now: float) -> float:
        if lane.learned is not None:
            self._tell_limit(lane.bot.id, lane.chat, step_up(lane, lane.windows[0], now))
        wait = max([window.wait(now, entry.cost) for window in self._limits_of(lane, line.level, now)])
        if wait > 0 and entry.cost > 1 and entry.retry_at <= now:
            # Cheaper calls of this chat take each slot as it gets free; after a while they must wait.
            line.passed += 1
            ran_out = lane.reserved is line and lane.reserved_until <= now  # before it was claimed
            if line.passed >= LINE_SKIPS_BEFORE_RESERVATION and (lane.reserved is None or ran_out):
                lane.reserved = line
                longest = max(window.seconds for window in lane.windows)
                lane.reserved_until = now + RESERVATION_WINDOWS * longest
        return wait

    @staticmethod
    def _unbarred(lane: Lane, line: Line) -> bool:
        """Return whether no other line of the lane has reserved slots. Urgent lines and turns ignore that."""
        return lane.reserved is None or lane.reserved is line or line.level >= URGENT

    @staticmethod
    def _stands_back(lane: Lane, line: Line) -> bool:
        """Return whether a turn lets a line with reserved slots go first, for a bounded time."""
        reserved = lane.reserved is not None and lane.reserved is not line
        return line.level >= TURN and reserved and not lane.bot.paused

    def _unreserve(self, line: Line, pool: Pool, now: float) -> None:
        """It no longer waits for reserved slots: the lines that let it go first may go."""
        line.passed = 0
        if pool.reserved is line:
            pool.reserved = None
            self._activate(pool)
        if line.lane.reserved is line:
            line.lane.reserved = None
            for other in line.lane.lines:
                if other is not line and other.place in {BLOCKED, WAITING}:
                    self._place(other, now)

    def _ready(self, line: Line, entry: Entry, now: float) -> None:
        if entry.is_suspect:
            line.place = SUSPECT
            self._suspects.add(line)
        else:
            self._make_ready(line, entry, now)

    def _make_ready(self, line: Line, entry: Entry, now: float) -> None:
        pool = self._pool_of(entry)
        join(pool, line.level)  # before it counts as ready itself
        line.place = READY
        pool.ready[line.level].push(entry.seq, line)
        if pool.wake_at <= now or line.level == HIGH or line.level >= URGENT:
            self._activate(pool)

    def _needs_offer(self) -> bool:
        """Return whether a suspect could be made ready: none is in flight, and none is ready."""
        on_offer = self._offered is not None and _is_on_offer(self._offered)
        return bool(self._suspects) and self._suspect is None and not on_offer

    def _offer_suspect(self, now: float) -> None:
        """Make the suspect with the fewest crashes ready if none is in flight: a crash counts against one.

        One whose bot cannot send now does not keep those of other bots waiting.
        """
        offered = self._offered
        if self._suspect is not None:
            return
        if offered is not None and _is_on_offer(offered) and _can_send(offered.lane.bot, now):
            return
        while (line := self._next_suspect()) is not None:
            assert line.head is not None  # noqa: S101  (a held line has a head)
            self._make_ready(line, line.head, now)
            if _can_send(line.lane.bot, now):
                self._offered = line
                return

    def _next_suspect(self) -> Line | None:
        self._suspects = {line for line in self._suspects if line.place == SUSPECT}  # others have moved on
        line = min(self._suspects, key=_crashes_and_age, default=None)
        self._suspects.discard(line)
        return line

    def _activate(self, pool: Pool) -> None:
        self._asleep.discard(pool)
        pool.wake_at = 0.0
        if not pool.active:
            pool.active = True
            self._active.append(pool)

    def _activate_all(self, bot: BotLanes) -> None:
        for pool in bot.pools.values():
            self._activate(pool)

    def _sleep(self, pool: Pool, until: float) -> None:
        """Take a pool out of the round until a time; until an answer if that is never, a new line if 0."""
        self._active.popleft()  # only the first pool is ever put to sleep
        pool.active, pool.wake_at = False, until
        if until == NEVER:
            self._asleep.add(pool)
        elif until:
            self._timers.set(until, TimerKind.POOL, pool)

    def _take(self, pool: Pool, now: float, *, messages: bool) -> Entry | None:
        """Grant the next entry of a pool. If there is none it sleeps, unless only room is missing."""
        bot, window = pool.bot, pool.window
        if bot.closed_until > now:
            self._sleep(pool, bot.closed_until)
            return None
        if pool.learned is not None and window is not None:
            self._tell_limit(bot.id, None, step_up(pool, window, now))
        held_until = _held_until(bot, now)
        willing = messages and not held_until and not bot.paused
        while True:
            line = next_line(pool, now, messages=willing)
            if line is None:
                rest = rest_until(pool, now) or held_until
                if messages or rest:  # else it stays in the round until there is room for messages
                    self._sleep(pool, rest)
                return None
            entry, lane = line.head, line.lane
            assert entry is not None  # noqa: S101  (a ready line has a head)
            if lane.in_flight is not None or not self._may(lane, line, entry, now):
                self._place(line, now)
                continue
            limited = entry.cost and line.level != URGENT
            if window is not None and limited and not window.fits(now, entry.cost):
                if window.free(now) <= 0:
                    self._sleep(pool, now + window.wait(now))
                    return None
                if not self._pass_over(pool, line, entry, now):
                    return None
                continue
            self._grant(pool, line, entry, now)
            return entry

    def _may(self, lane: Lane, line: Line, entry: Entry, now: float) -> bool:
        """Return whether the line may still go, as it could when it became ready."""
        if lane.paused and line.level < TURN:
            return False
        if entry.is_suspect and self._suspect is not None:
            return False
        if lane.closed_until > now or not self._unbarred(lane, line):
            return False
        if self._stands_back(lane, line) and lane.reserved_until > now:
            return False
        if entry.cost and line.level != URGENT:
            for window in self._limits_of(lane, line.level, now):
                if not window.fits(now, entry.cost):
                    return False
        return True

    def _limits_of(self, lane: Lane, level: int, now: float) -> tuple[Window, ...]:
        return lane.limits_of(level) if now >= self.no_bursts_until else lane.windows

    def _pass_over(self, pool: Pool, line: Line, entry: Entry, now: float) -> bool:
        """Let others go where this entry does not fit, a few times; then reserve slots for it."""
        assert pool.window is not None  # noqa: S101  (without one, everything fits)
        line.passed += 1
        wait = min(pool.window.wait(now, entry.cost), pool.window.seconds)
        if line.passed >= LINE_SKIPS_BEFORE_RESERVATION:
            pool.reserved = line
            self._sleep(pool, now + wait)
            return False
        line.place, line.wake_at = WAITING, now + wait
        self._timers.set(line.wake_at, TimerKind.LINE, line)
        return True

    def _grant(self, pool: Pool, line: Line, entry: Entry, now: float) -> None:
        lane, cost = line.lane, entry.cost
        line.pop()
        line.passed = 0
        self._use_reservation(pool, line)
        if cost:
            self._hold_slots(entry, now)
        entry.token = next(self._numbers)
        if entry.is_suspect:
            self._suspect = entry
        if line.level < TURN:  # a turn lasts as long as its owner lives
            self.extend(entry, now)
            if lane.bot.obstacle:
                lane.bot.probe = entry
        account(pool, line.level, cost, now)
        if lane.kind == "action":  # unordered: several may be in flight
            self._place(line, now)
        else:
            lane.in_flight = entry
            line.place = BLOCKED

    def _hold_slots(self, entry: Entry, now: float) -> None:
        entry.lane.touch()
        windows, cost = self._windows(entry), entry.cost
        if entry.level == URGENT and not all(window.fits(now, cost) for window in windows):
            self.urgent_in_debt += 1
        for window in windows:
            window.take(cost)

    @staticmethod
    def _use_reservation(pool: Pool, line: Line) -> None:
        lane = line.lane
        if lane.reserved is line:
            lane.reserved = None
            for other in lane.lines:
                if other.place == WAITING and other.level >= TURN:
                    other.place = BLOCKED  # it let this one go first: `settle_lane` places it
        if pool.reserved is line:
            pool.reserved = None

    def _rest(self, lane: Lane, now: float) -> None:
        """Note that a lane may be forgotten later: it has nothing to do."""
        if not lane.resting:
            lane.resting = True
            longest = max([window.seconds for window in lane.windows])
            self._resting.append((now + longest, lane))

    def sweep(self, now: float) -> None:
        resting = self._resting
        for _ in range(LANES_SWEPT_PER_STEP if self._active else LANES_SWEPT_WHEN_IDLE):
            if not resting or resting[0][0] > now:
                return
            _, lane = resting.popleft()
            lane.resting = False
            if lane.idle(now):
                key = (lane.bot.id, lane.chat, lane.kind)
                if self.lanes.get(key) is lane:
                    del self.lanes[key]
                lane.part()
            elif all(line.head is None for line in lane.lines) and lane.in_flight is None:
                self._rest(lane, now)


def _reshape_pool(pool: Pool, window: Window, rule: Rate, now: float) -> None:
    learned, memory = pool.learned, window.seconds
    if learned is not None:
        memory = min(memory, learned.rule.seconds)
        pool.learned = learned.rebased(rule)
    window.reshape(rule, now, memory=memory)
    if pool.learned is not None:
        window.resize(pool.learned.rate)
    pool.spaced_until = min(pool.spaced_until, now + spacing(pool, 1))


def _can_send(bot: BotLanes, now: float) -> bool:
    return bot.closed_until <= now and not _held_until(bot, now) and not bot.paused


def _is_on_offer(line: Line) -> bool:
    return line.place == READY and line.lane.in_flight is None


def _crashes_and_age(line: Line) -> tuple[int, int]:
    assert line.head is not None  # noqa: S101  (a held line has a head)
    return line.head.crashes, line.head.seq


def _held_until(bot: BotLanes, now: float) -> float:
    """When messages of a bot that cannot send may be tried: NEVER: after the probe in flight; 0: now."""
    if not bot.obstacle:
        return 0.0
    if bot.away_until > now:
        return bot.away_until
    return 0.0 if bot.probe is None else NEVER


def _has_rival(lane: Lane, pool: Pool) -> bool:
    """Return whether something waits or is in flight that a turn must not overtake."""
    if lane.in_flight is not None or pool.reserved is not None:
        return True
    if pool.learned is not None or lane.learned is not None:  # only `_take` lets them recover
        return True
    for line in lane.lines:
        if line.head is not None:
            return True
    for queue in pool.ready:  # noqa: SIM110  (any() would call each of them)
        if queue.fresh or queue.returned:
            return True
    return False


def _known(wait: float, window: Window) -> float:
    """Estimate a wait that ends with an answer: the answer comes soon, and then the slot cools."""
    return window.seconds if wait == NEVER else wait
