"""The reasons why a message has not left yet, in words."""

from collections.abc import Iterator
from typing import Final

import msgspec

from tidegate.model import State, Why
from tidegate.outbox.lanes import NEVER, BotLanes, Entry, Lane, Line
from tidegate.outbox.transitions import SUSPECT_CRASHES

MAY_GO: Final = "it may go: a worker has to claim it, others of its bot may be first"
Wait = tuple[str, float]  # what for, and how many seconds


class WaitFacts(msgspec.Struct):
    """The obstacles of a message, as its store knows them. Times are seconds from now."""

    state: State
    until_due: float = 0.0
    retry_in: float = 0.0
    crashes: int = 0
    ahead: int = 0  # in its line
    each: float = 0.0  # seconds that one of those takes at least
    in_flight: bool = False  # another call to its chat
    paused: dict[str, bool] | list[bool] = []  # "bot", "chat"
    closed: dict[str, float] = {}
    away: float = 0.0
    obstacle: str = ""
    full: list[tuple[str, float]] = []  # full limits: whose, and how long; infinite: until an answer comes


def facts_of(entry: Entry, state: State, until_due: float, now: float) -> WaitFacts:
    """The obstacles of an entry of a schedule in memory."""
    lane = entry.lane
    places: dict[str, BotLanes | Lane] = {"bot": lane.bot, "chat": lane}
    own = lane.windows[0]
    return WaitFacts(
        state=state,
        until_due=until_due,
        retry_in=entry.retry_at - now,
        crashes=entry.crashes,
        ahead=_ahead(lane.line(entry.level), entry),
        each=own.seconds / own.count,
        in_flight=lane.in_flight is not None,
        paused={name: place.paused for name, place in places.items()},
        closed={name: place.closed_until - now for name, place in places.items()},
        away=lane.bot.away_until - now,
        obstacle=lane.bot.obstacle,
        full=list(_limits(entry, now)),
    )


def explain(facts: WaitFacts) -> Why:
    """Everything that a message waits for. It is expected after the longest known wait."""
    if facts.state == State.SENDING:
        return Why(facts.state, ("it is being sent",), 0.0)
    if facts.state not in {State.QUEUED, State.RETRY}:
        return Why(facts.state, (), None)
    if facts.until_due > 0:
        return Why(facts.state, (f"its time comes in {facts.until_due:.1f} s",), facts.until_due)
    waits = [*_of_itself(facts), *_closed(facts), *_full(facts)]
    if not waits:
        waits.append((MAY_GO, 0.0))
    longest = max(wait for _, wait in waits)
    return Why(facts.state, tuple(text for text, _ in waits), None if longest == NEVER else longest)


def _of_itself(facts: WaitFacts) -> Iterator[Wait]:
    held_with_its_bot = facts.obstacle and facts.state == State.QUEUED  # then `_closed` says so
    if facts.retry_in > 0 and not held_with_its_bot:
        yield f"the next attempt is in {facts.retry_in:.1f} s", facts.retry_in
    if facts.crashes >= SUSPECT_CRASHES:
        yield f"{facts.crashes} workers died with it: it goes while no other such message is in flight", 0.0
    if facts.ahead:
        yield f"{facts.ahead} before it in its line", facts.ahead * facts.each
    if facts.in_flight:
        yield "another call to its chat is in flight", 0.0


def _closed(facts: WaitFacts) -> Iterator[Wait]:
    for name in ("bot", "chat"):
        if isinstance(facts.paused, dict) and facts.paused.get(name):
            yield f"its {name} is paused", NEVER
        wait = facts.closed.get(name, 0.0)
        if wait > 0:
            yield f"a 429 has closed its {name} for {wait:.1f} s", wait
    if facts.away > 0:
        yield f"its bot cannot send ({facts.obstacle}): it tries again in {facts.away:.1f} s", facts.away
    elif facts.obstacle:
        yield f"its bot cannot send ({facts.obstacle}): one message at a time finds out whether it can", 0.0


def _full(facts: WaitFacts) -> Iterator[Wait]:
    longest: dict[str, float] = {}  # a chat has several limits, of which the slowest counts
    for name, wait in facts.full:
        longest[name] = max(wait, longest.get(name, 0.0))
    for name, wait in longest.items():
        if wait > 0:
            duration = "until an answer comes" if wait == NEVER else f"for {_in_words(wait)}"
            # How long the call in flight takes is not known; it is rarely long.
            yield f"the limit of its {name} is full {duration}", 0.0 if wait == NEVER else wait


def _in_words(wait: float) -> str:
    return f"{wait:.1f} s" if wait >= 0.05 else "a moment"  # noqa: PLR2004  (else it would be 0.0 s)


def _limits(entry: Entry, now: float) -> Iterator[Wait]:
    lane = entry.lane
    if not entry.cost:
        return
    pool = lane.bot.pools.get("paid" if entry.paid else lane.kind)
    for window in lane.limits_of(entry.level):
        yield "chat", window.wait(now, entry.cost)
    if pool is not None and pool.window is not None:
        yield "bot", pool.window.wait(now, entry.cost)


def _ahead(line: Line, entry: Entry) -> int:
    count, other = 0, line.head
    while other is not None and other is not entry:
        count += not other.gone
        other = other.next
    return count if other is entry else 0
