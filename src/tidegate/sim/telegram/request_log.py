"""What happened, counted: the report, the order of what was tagged, and a log of the latest calls.

A sender that wants its order and doubles checked ends each text with a tag: `#17`, or `#low:17`
where one chat has several sequences. Numbers of one sequence must arrive rising, each once.
"""

from collections import Counter, deque
from typing import NamedTuple

MOST_DIGITS = 12
LOG_KEPT = 100_000
POLL = "getUpdates"


class LoggedCall(NamedTuple):
    at: float  # seconds since the Unix epoch
    bot: int  # 0 where the token is nobody's
    chat_id: int | str | None  # a number if it is one; else as the caller wrote it, cut
    method: str  # in Telegram's spelling, or "unknown"
    status: int
    message_id: int | None
    text: str


class _Sequence:
    __slots__ = ("highest", "seen")

    def __init__(self) -> None:
        self.highest = -1
        self.seen: set[int] = set()


class TelegramRequestLog:
    """Grows with the number of tagged messages; everything else is bounded. `clear` empties it.

    Rates are about calls other than getUpdates: a poll that waits says nothing about how fast a bot goes.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._calls: Counter[tuple[str, int]] = Counter()  # by method and status
        self.refused_by: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.requests = 0
        self.accepted = 0
        self.out_of_order = 0
        self.doubled = 0
        self.peak_rps = 0
        self.log: deque[LoggedCall] = deque(maxlen=LOG_KEPT)
        self._sequences: dict[tuple[int, int, str], _Sequence] = {}
        self._last_second: deque[float] = deque()
        self._first: float | None = None
        self._last = 0.0

    def refuse(self, scope: str) -> None:
        self.refused_by[scope] += 1

    def record(self, now: float, entry: LoggedCall) -> None:
        """Count an answered call. `now` is monotonic."""
        self._calls[entry.method, entry.status] += 1
        self.log.append(entry)
        if entry.method == POLL:
            return
        self.requests += 1
        if self._first is None:
            self._first = now
        self._last = now
        second = self._last_second
        second.append(now)
        while second[0] + 1 <= now:
            second.popleft()
        self.peak_rps = max(self.peak_rps, len(second))

    def accept(self, bot: int, chat: int, text: str) -> None:
        """Count a message that a bot has put into a chat."""
        self.accepted += 1
        if "#" in text:
            self._follow(bot, chat, text)

    def report(self) -> dict[str, object]:
        """In the vocabulary that all reports share. `seconds`: from the first call to the last."""
        seconds = self._last - self._first if self._first is not None else 0.0
        methods: Counter[str] = Counter()
        statuses: Counter[str] = Counter()
        for (method, status), count in self._calls.items():
            methods[method] += count
            statuses[str(status)] += count
        return {
            "requests": self.requests,
            "accepted": self.accepted,
            "refused": self.refused_by.total(),
            "refused_by": dict(self.refused_by),
            "out_of_order": self.out_of_order,
            "doubled": self.doubled,
            "faults": dict(self.faults),
            "statuses": dict(sorted(statuses.items())),
            "methods": dict(methods.most_common()),
            "avg_rps": round(self.requests / seconds, 2) if seconds > 0 else 0.0,
            "peak_rps": self.peak_rps,
            "seconds": round(seconds, 3),
        }

    def _follow(self, bot: int, chat: int, text: str) -> None:
        tag = text.rpartition("#")[2]
        line, _, digits = tag.rpartition(":")
        if not digits.isdecimal():
            return
        number = int(digits[:MOST_DIGITS])
        key = (bot, chat, line)
        sequence = self._sequences.get(key)
        if sequence is None:
            sequence = self._sequences[key] = _Sequence()
        if number > sequence.highest:
            sequence.highest = number
        elif number in sequence.seen:
            self.doubled += 1
        else:
            self.out_of_order += 1
        sequence.seen.add(number)
