"""Counts of the calls that arrived, the order of tagged messages, and a log of the latest calls.

A sender whose order and duplicates are to be checked ends each text with a tag: `#17`, or `#low:17`
if one chat has several sequences. Numbers of one sequence must rise, each once.
"""

from collections import Counter, deque
from typing import NamedTuple

from tidegate.sim.sliding_window import RequestRate

MOST_DIGITS = 12
LOG_KEPT = 100_000
POLL = "getUpdates"


class LoggedCall(NamedTuple):
    at: float  # seconds since the Unix epoch
    bot: int  # 0 for an unknown token
    chat_id: int | str | None  # a number if possible; else as the caller wrote it, cut
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

    Rates leave out getUpdates: a poll that waits says nothing about the speed of a bot.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._calls: Counter[tuple[str, int]] = Counter()  # by method and status
        self.refused_by: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._rate = RequestRate()  # without getUpdates
        self.accepted = 0
        self.out_of_order = 0
        self.doubled = 0
        self.log: deque[LoggedCall] = deque(maxlen=LOG_KEPT)
        self._sequences: dict[tuple[int, int, str], _Sequence] = {}

    def refuse(self, scope: str) -> None:
        self.refused_by[scope] += 1

    def record(self, now: float, entry: LoggedCall) -> None:
        """Count an answered call. `now` is monotonic."""
        self._calls[entry.method, entry.status] += 1
        self.log.append(entry)
        if entry.method != POLL:
            self._rate.add(now)

    def accept(self, bot: int, chat: int, text: str) -> None:
        """Count a message that a bot posted to a chat, and check its tag."""
        self.accepted += 1
        if "#" in text:
            self._check_order(bot, chat, text)

    def report(self) -> dict[str, object]:
        """Return the counts in the vocabulary of all reports. `seconds`: from the first call to the last."""
        methods: Counter[str] = Counter()
        statuses: Counter[str] = Counter()
        for (method, status), count in self._calls.items():
            methods[method] += count
            statuses[str(status)] += count
        return {
            "requests": self._rate.requests,
            "accepted": self.accepted,
            "refused": self.refused_by.total(),
            "refused_by": dict(self.refused_by),
            "out_of_order": self.out_of_order,
            "doubled": self.doubled,
            "faults": dict(self.faults),
            "statuses": dict(sorted(statuses.items())),
            "methods": dict(methods.most_common()),
            **self._rate.report(),
        }

    def _check_order(self, bot: int, chat: int, text: str) -> None:
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
