"""The structures of the schedule: entries, lines, lanes, pools and timers. They hold ids, never messages."""

import heapq
import itertools
from collections import deque
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

import msgspec

from tidegate.model import BotId, BotLimits, ChatId
from tidegate.outbox.transitions import SUSPECT_CRASHES
from tidegate.pacing.learned import LearnedLimit
from tidegate.pacing.rules import ChatKind, Rules
from tidegate.pacing.window import Window

# The lines of a lane. Urgent goes before all; turns, from TURN on, share the weights of messages.
HIGH, NORMAL, LOW, URGENT, TURN, NORMAL_TURN, LOW_TURN = range(7)
REPLIES: Final = (HIGH, TURN)
WEIGHTS: Final = {HIGH: 16, NORMAL: 4, LOW: 1}
STRIDES: Final = {level: 1 / weight for level, weight in WEIGHTS.items()}
NEVER: Final = float("inf")

# Where a line is. BLOCKED: its lane is in flight or paused, and will look after it. SUSPECT: it could be
# ready, but its first message is a suspect, and those go one at a time.
EMPTY, READY, WAITING, BLOCKED, SUSPECT = range(5)


# There may be millions of these: the garbage collector does not look at them. Reference cycles (a lane and
# its lines) are broken when a lane is forgotten.


class Entry(msgspec.Struct, gc=False, eq=False):
    """One message in the schedule, or one turn."""

    id: str | int
    lane: "Lane"
    level: int
    cost: int
    seq: int = 0  # order of arrival
    next: "Entry | None" = None
    token: int = 0  # changes with each claim; 0 while it waits
    attempts: int = 0
    crashes: int = 0
    retry_at: float = 0.0
    retrying: bool = False  # it waits for its next try, and is counted so
    leased_until: float = 0.0
    expires: float = NEVER
    paid: bool = False
    cooled: bool = False  # its slots cool already, without an answer
    gone: bool = False  # it has ended, and is skipped when its line reaches it

    @property
    def is_suspect(self) -> bool:
        """Return whether so many workers died with it that it may be the cause."""
        return self.crashes >= SUSPECT_CRASHES


class Line(msgspec.Struct, gc=False, eq=False):
    """Entries in order, as a chain: a deque would cost 600 bytes for the one message most lines have."""

    lane: "Lane"
    level: int
    head: Entry | None = None
    tail: Entry | None = None
    place: int = EMPTY
    wake_at: float = 0.0
    passed: int = 0  # times it did not go for lack of room

    def __lt__(self, other: "Line") -> bool:
        return False  # a line may be in a heap twice with the same number, in any order

    def append(self, entry: Entry) -> None:
        if self.tail is None:
            self.head = entry
        else:
            self.tail.next = entry
        self.tail = entry

    def push_front(self, entry: Entry) -> None:
        entry.next = self.head
        self.head = entry
        if self.tail is None:
            self.tail = entry

    def pop(self) -> None:
        assert self.head is not None  # noqa: S101  (the caller has just looked at it)
        following = self.head.next
        self.head.next = None
        self.head = following
        if following is None:
            self.tail = None

    def entries(self) -> Iterator[Entry]:
        """The waiting entries in order."""
        entry = self.head
        while entry is not None:
            if not entry.gone:
                yield entry
            entry = entry.next

    def count(self) -> int:
        return sum(1 for _ in self.entries())

    def first(self) -> Entry | None:
        """The head, after entries that are gone have been dropped."""
        while self.head is not None and self.head.gone:
            self.pop()
        return self.head


class Lane(msgspec.Struct, gc=False, eq=False):
    """One chat of one bot: its windows, its lines, and the one call that may be in flight."""

    bot: "BotLanes"
    chat: ChatId
    kind: str
    pool: "Pool"  # of its calls, unless they are paid for
    # Shared by all lanes without a call yet, until `touch`. Where replies may burst, their window is the
    # first and the average of the chat the second: replies do not have to fit into that.
    windows: tuple[Window, ...]
    shared: bool = True  # a million users who wait for a first message need no windows of their own
    lines: list[Line] = []
    in_flight: Entry | None = None
    closed_until: float = 0.0
    paused: bool = False
    learned: LearnedLimit | None = None
    reserved: Line | None = None  # passed over too often: the other lines wait for it
    reserved_until: float = 0.0  # until then turns wait for it, too; it may never be claimed
    last_call: float = -NEVER
    resting: bool = False  # it is on the list of lanes that may be forgotten
    moved_to: "Lane | None" = None

    def part(self) -> None:
        """Break the reference cycle of a lane that is forgotten."""
        self.lines.clear()

    def touch(self) -> None:
        """Give it windows of its own."""
        if self.shared:
            self.windows = tuple([window.copy() for window in self.windows])
            self.shared = False

    @property
    def bursts(self) -> bool:
        """Return whether replies may exceed the average for a moment."""
        return self.windows[0].is_burst

    def limits_of(self, level: int) -> tuple[Window, ...]:
        """The windows that a call of this level has to fit into. It takes slots in all of them."""
        windows = self.windows
        return windows[:1] if windows[0].is_burst and level in REPLIES else windows

    def line(self, level: int) -> Line:
        for line in self.lines:
            if line.level == level:
                return line
        line = Line(self, level)
        self.lines.append(line)
        return line

    def wait(self, now: float, cost: int, level: int) -> float:
        """Seconds until the chat's own limits and closure let a call of this cost pass."""
        wait = self.closed_until - now
        for window in self.limits_of(level):
            if cost and not window.fits(now, cost):
                wait = max(wait, window.wait(now, cost))
        return wait

    def idle(self, now: float) -> bool:
        """Return whether it can be forgotten: nothing waits, is in flight, or has to be remembered."""
        return (
            self.in_flight is None
            and not self.paused
            and self.closed_until <= now
            and all(line.head is None for line in self.lines)
            and all(window.idle(now) for window in self.windows)
            and (self.learned is None or self.learned.stale(now))
        )


class ReadyQueue:
    """Lines that may go, by arrival of their first message.

    Lines that become ready as messages arrive come in order and stand in a deque; only lines that return
    from waiting need the heap. So a claim stays as cheap with a million lines as with ten.
    """

    __slots__ = ("fresh", "returned")

    def __init__(self) -> None:
        self.fresh: deque[tuple[int, Line]] = deque()
        self.returned: list[tuple[int, Line]] = []

    def push(self, seq: int, line: Line) -> None:
        if not self.fresh or seq > self.fresh[-1][0]:
            self.fresh.append((seq, line))
        else:
            heapq.heappush(self.returned, (seq, line))

    def __bool__(self) -> bool:
        return bool(self.fresh or self.returned)

    def first(self) -> Line | None:
        """The next line. Lines that have changed since they were pushed are dropped on the way."""
        fresh, returned = self.fresh, self.returned
        while fresh and not _valid(fresh[0]):
            fresh.popleft()
        while returned and not _valid(returned[0]):
            heapq.heappop(returned)
        if returned and (not fresh or returned[0][0] < fresh[0][0]):
            return returned[0][1]
        return fresh[0][1] if fresh else None


def _valid(item: tuple[int, Line]) -> bool:
    seq, line = item
    return line.place == READY and line.head is not None and line.head.seq == seq


class Pool(msgspec.Struct, eq=False):
    """The window (None: no limit) and the ready lines that the lanes of a bot share for one budget."""

    bot: "BotLanes"
    window: Window | None
    ready: tuple[ReadyQueue, ...] = msgspec.field(
        default_factory=lambda: tuple(ReadyQueue() for _ in range(LOW_TURN + 1))
    )
    # Stride scheduling: the priority that is least served by weight goes next.
    passes: list[float] = msgspec.field(default_factory=lambda: [0.0] * len(WEIGHTS))
    learned: LearnedLimit | None = None
    served: float = 0.0  # the pass of the latest one
    spaced_until: float = -NEVER
    reserved: Line | None = None
    active: bool = False
    wake_at: float = 0.0


class BotLanes(msgspec.Struct, eq=False):
    """One bot: its pools by budget, and what closes all of them."""

    id: BotId
    rules: Rules = Rules()
    untouched: dict[ChatKind, tuple[Window, ...]] = {}  # the windows of lanes without a call yet
    own: BotLimits = BotLimits()  # that an operator has set; `rules` has them
    pools: dict[str, Pool] = {}
    closed_until: float = 0.0  # by a 429
    # An outage: it cannot send. Messages wait until then, and go one at a time until one shows that it can.
    away_until: float = 0.0
    away_since: float = 0.0
    obstacle: str = ""  # why it cannot; empty if it can
    probes: int = 0  # that failed in this outage
    probe: Entry | None = None  # the one that is in flight
    paused: bool = False
    refused: dict[ChatId, float] = {}  # chats that drew a 429 within the last window, and when


class TimerKind(Enum):
    """The kinds of timers."""

    LINE = auto()  # a line may go
    POOL = auto()  # a pool may have a slot
    JOIN = auto()  # an entry is due
    EXPIRE = auto()  # an entry's deadline passes


class ScheduleTimers:
    """The times at which a schedule has something to do. Outdated timers stay and are dropped when due."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, TimerKind, Line | Pool | Entry]] = []
        self._numbers = itertools.count()
        self._compact_at = 1_000

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, at: float, kind: TimerKind, what: Line | Pool | Entry) -> None:
        if len(self._heap) >= self._compact_at:
            self._compact()
        heapq.heappush(self._heap, (at, next(self._numbers), kind, what))

    def due(self, now: float) -> Iterator[tuple[TimerKind, Line | Pool | Entry]]:
        """Timers that are due and not outdated, in order. More may be set meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)
            if _is_current(*timer):
                yield timer[2], timer[3]

    def soonest(self) -> float:
        return self._heap[0][0] if self._heap else NEVER

    def _compact(self) -> None:
        """Drop outdated timers. Done at twice the remaining size, which keeps it cheap on average."""
        self._heap = [timer for timer in self._heap if _is_current(*timer)]
        heapq.heapify(self._heap)
        self._compact_at = max(1_000, 2 * len(self._heap))


def _is_current(at: float, _: int, kind: TimerKind, what: Line | Pool | Entry) -> bool:
    if isinstance(what, Line):
        return what.place == WAITING and what.wake_at == at
    if isinstance(what, Pool):
        return what.wake_at == at
    return not what.gone and (kind is TimerKind.JOIN or what.expires == at)
