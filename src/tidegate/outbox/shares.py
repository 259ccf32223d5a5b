"""Fair shares within a pool: priorities share by weight; within one, the earliest first message goes first.

Stride scheduling: each grant moves its priority on by the inverse of its weight, and the one that is least
far goes next. A priority that was idle gets no credit for it.
"""

from typing import Final

from tidegate.outbox.lanes import (
    HIGH,
    LOW,
    NEVER,
    NORMAL,
    READY,
    STRIDES,
    TURN,
    URGENT,
    Line,
    Pool,
    ReadyQueue,
)

# Seconds that spaced calls may be behind, after slow answers, and catch up; beyond that, the spacing starts
# anew. In the simulation (30/1, 5-40 ms each way, 5 replies a second): 99.6 % of the rate, where 0.02 s give
# 99.0 %; replies take 158 ms at p99, where 0.5 s give 181 ms.
SLACK: Final = 0.3


def next_line(pool: Pool, now: float, *, messages: bool) -> Line | None:
    """The next line. Without room for `messages`, only turns count."""
    ready = pool.ready
    if messages:
        if ready[URGENT] and (line := ready[URGENT].first()):
            return line
        if pool.reserved is not None:
            if pool.reserved.place == READY and pool.reserved.head is not None:
                return pool.reserved
            pool.reserved = None
    if now < pool.spaced_until and not _has_high(ready):
        return None
    best, lowest = None, NEVER
    for level in (HIGH, NORMAL, LOW):
        line = _first(ready, level, messages=messages)
        if line is not None and pool.passes[level] < lowest:
            best, lowest = line, pool.passes[level]
    return best


def rest_until(pool: Pool, now: float) -> float:
    """For a pool without a next line: the end of its gap if lines wait for that, 0 if none does."""
    ready = pool.ready
    if now >= pool.spaced_until or _has_high(ready):
        return 0.0
    spaced = any(_first(ready, level, messages=True) for level in (NORMAL, LOW))
    return pool.spaced_until if spaced else 0.0


def _has_high(ready: tuple[ReadyQueue, ...]) -> bool:
    """Return whether a high line is ready. Gaps are left for high ones to come; otherwise weights decide."""
    return _first(ready, HIGH, messages=True) is not None


def _first(ready: tuple[ReadyQueue, ...], level: int, *, messages: bool) -> Line | None:
    turns = ready[TURN + level]
    turn = turns.first() if turns else None
    if not messages or not ready[level]:
        return turn
    return _earlier(ready[level].first(), turn)


def join(pool: Pool, level: int) -> None:
    """A line becomes ready at a level that had none: it starts where the other levels are."""
    # Lines that are not ready any more may still stand in the queue: `first` drops them.
    if level != URGENT and pool.ready[level].first() is None:
        shared = share_of(level)
        pool.passes[shared] = max(pool.passes[shared], pool.served)


def account(pool: Pool, level: int, cost: int, now: float) -> None:
    """Account for a grant: its priority has had its share, and spaced calls keep their distance."""
    if level == URGENT:
        return
    level = share_of(level)
    pool.served = pool.passes[level]
    pool.passes[level] += STRIDES[level] * (cost or 1)
    if level != HIGH:
        # A saturated window would fire all its calls at once; spaced ones leave gaps for replies.
        started = pool.spaced_until if pool.spaced_until > now - SLACK else now
        pool.spaced_until = started + spacing(pool, cost)


def share_of(level: int) -> int:
    """The priority whose weight a line of this level has."""
    return level - TURN if level >= TURN else level


def spacing(pool: Pool, cost: int) -> float:
    """Seconds between a call of this cost and the next that is spaced."""
    return cost * pool.window.seconds / pool.window.count if pool.window is not None else 0.0


def _earlier(one: Line | None, other: Line | None) -> Line | None:
    if one is None or other is None:
        return one or other
    assert one.head is not None  # noqa: S101  (a ready line has a head)
    assert other.head is not None  # noqa: S101
    return one if one.head.seq < other.head.seq else other
