"""Why a message has not left yet, in words."""

from collections.abc import Iterator

from tidegate.model import State, Why
from tidegate.outbox.lanes import NEVER, Entry, Line

Wait = tuple[str, float]  # what for, and how many seconds


def explain(entry: Entry, state: State, until_due: float, now: float) -> Why:
    """Each thing it waits for; the longest known wait is when it should go."""
    if state == State.SENDING:
        return Why(state, ("it is being sent",), 0.0)
    if state not in {State.QUEUED, State.RETRY}:
        return Why(state, (), None)
    if until_due > 0:
        return Why(state, (f"its time comes in {until_due:.1f} s",), until_due)
    waits = [*_of_itself(entry, now), *_closed(entry, now), *_limits(entry, now)]
    if not waits:
        waits.append(("it may go: a worker has to claim it, others of its bot may be first", 0.0))
    longest = max(wait for _, wait in waits)
    return Why(state, tuple(text for text, _ in waits), None if longest == NEVER else longest)


def _of_itself(entry: Entry, now: float) -> Iterator[Wait]:
    lane = entry.lane
    if entry.retry_at > now:
        yield f"the next attempt is in {entry.retry_at - now:.1f} s", entry.retry_at - now
    ahead = _ahead(lane.line(entry.level), entry)
    if ahead:
        yield f"{ahead} before it in its line", ahead * lane.windows[0].seconds / lane.windows[0].count
    if lane.in_flight is not None:
        yield "another call to its chat is in flight", 0.0


def _closed(entry: Entry, now: float) -> Iterator[Wait]:
    lane = entry.lane
    for name, place in (("bot", lane.bot), ("chat", lane)):
        if place.paused:
            yield f"its {name} is paused", NEVER
        if place.closed_until > now:
            wait = place.closed_until - now
            yield f"a 429 has closed its {name} for {wait:.1f} s", wait
    if lane.bot.away_until > now:
        wait = lane.bot.away_until - now
        yield f"its bot cannot send ({lane.bot.obstacle}): it tries again in {wait:.1f} s", wait


def _limits(entry: Entry, now: float) -> Iterator[Wait]:
    lane = entry.lane
    if not entry.cost:
        return
    pool = lane.bot.pools.get("paid" if entry.paid else lane.kind)
    limits = [("chat", window) for window in lane.windows]
    if pool is not None and pool.window is not None:
        limits.append(("bot", pool.window))
    for name, window in limits:
        wait = window.wait(now, entry.cost)
        if wait > 0:
            duration = "until an answer comes" if wait == NEVER else f"for {wait:.1f} s"
            # How long the last call takes is not known; it is rarely long.
            yield f"the limit of its {name} is full {duration}", 0.0 if wait == NEVER else wait


def _ahead(line: Line, entry: Entry) -> int:
    count, other = 0, line.head
    while other is not None and other is not entry:
        count += not other.gone
        other = other.next
    return count if other is entry else 0
