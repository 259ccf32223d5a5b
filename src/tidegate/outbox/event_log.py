"""The log of the outbox: each refusal, closure, learned limit, death and outage is a line, in every store.

The process that settles a call writes it. Many of one kind are grouped: the first few as they are, then one
line every ten seconds with their number. docs/reference/log-lines.md lists them.
"""

import asyncio
import logging
from collections import Counter
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.events import (
    Ended,
    EventStream,
    LimitChanged,
    LimitsSet,
    OutageBegan,
    OutageEnded,
    RefusalHeard,
)
from tidegate.model import Rate, State
from tidegate.outbox.transitions import UNREADABLE

log = logging.getLogger("tidegate.outbox")

LINES_OF_A_KIND: Final = 5  # then they are grouped
GROUPED_FOR: Final = 10.0  # seconds
NAMES_COUNTED: Final = 100  # bots or reasons in one group, the rest together
NAMES_SHOWN: Final = 5
LONGEST_DESCRIPTION: Final = 200
# The recipient's own doing, which nobody here can mend.
_USUAL_DEATHS: Final = frozenset(("blocked", "deactivated", "kicked"))


class _Group(msgspec.Struct):
    """The events of one kind in the present interval."""

    until: float  # monotonic
    lines: int = 0
    held: Counter[str] = msgspec.field(default_factory=Counter)  # not logged yet
    level: int = logging.INFO
    timer: asyncio.TimerHandle | None = None


class EventLog:
    """A subscriber to the events of one gate. Its memory is bounded: a few names for each kind of event."""

    def __init__(self, events: EventStream, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, _Group] = {}
        events.subscribe(RefusalHeard, self._refused)
        events.subscribe(LimitChanged, self._limit_changed)
        events.subscribe(LimitsSet, self._limits_set)
        events.subscribe(Ended, self._ended)
        events.subscribe(OutageBegan, self._outage)
        events.subscribe(OutageEnded, self._outage_end)

    def close(self) -> None:
        """Log what is still held."""
        for kind, group in self._groups.items():
            if group.timer is not None:
                group.timer.cancel()
            self._tell_group(kind, group)
        self._groups.clear()

    def _refused(self, event: RefusalHeard) -> None:
        if event.closes == "nothing":
            text = f"bot {event.bot}:… was refused: {event.call} may be made again in {event.retry_after:g} s"
        else:
            is_bot = event.closes == "bot"
            closed = "the whole bot, as several chats were refused," if is_bot else "this chat"
            closed = f"{closed} is closed for {event.retry_after:g} s"
            text = f"bot {event.bot}:… was refused in chat {event.chat_id}: {closed}"
        self._add("429", logging.WARNING, f"bot {event.bot}:…", text)

    def _limit_changed(self, event: LimitChanged) -> None:
        change, name = event.change, f"bot {event.bot}:…"
        place = name if event.chat_id is None else f"chat {event.chat_id} of {name}"
        if change.restored:
            self._add("limit restored", logging.INFO, name, f"{place} may send {_words(change.rule)} again")
            return
        text = f"{place} may send {_words(change.after)}, not {_words(change.before)}"
        nominal = f" (nominal: {_words(change.rule)})"
        if change.is_cut:
            self._add("limit cut", logging.WARNING, name, f"{text}, after a 429{nominal}")
        else:
            self._add("limit raised", logging.INFO, name, f"{text}, after a time without a 429{nominal}")

    def _limits_set(self, event: LimitsSet) -> None:
        name, names = f"bot {event.bot}:…", {"bot": "in all", "private": "in a chat", "group": "in a group"}
        given = [f"{_words(rate)} {names[what]}" for what, rate in event.limits.set_ones.items()]
        before = [f"{_words(rate)} {names[what]}" for what, rate in event.before.set_ones.items()]
        text = f"{name} may send {', '.join(given) or 'what the settings allow, again'}"
        if before:
            text = f"{text} (before: {', '.join(before)})"
        self._add("limits set", logging.INFO, name, text)

    def _ended(self, event: Ended) -> None:
        record = event.record
        state, message = record.state, record.message
        if state is State.DELIVERED or state is State.CANCELLED or state is State.REPLACED:
            return
        if record.reason == UNREADABLE:
            return  # it is logged with its bytes where it was found
        reason = record.reason or state.value
        level = logging.INFO if reason in _USUAL_DEATHS or state is State.EXPIRED else logging.WARNING
        text = f"message {message.id} ({message.method}) to chat {message.chat_id} of bot {message.bot}:…"
        if state is not State.EXPIRED:
            text += f": {reason}"
        if record.description:
            text += f" ({_one_line(record.description)})"
        self._add(state.value, level, reason, text)

    def _outage(self, event: OutageBegan) -> None:
        text = f"bot {event.bot}:… cannot send ({event.obstacle}): {event.waiting} messages wait"
        text = f"{text}, and one tries again at growing intervals"
        self._add("outage", logging.WARNING, f"bot {event.bot}:…", text)

    def _outage_end(self, event: OutageEnded) -> None:
        text = f"bot {event.bot}:… sends again after {event.lasted:.0f} s; {event.waiting} messages waited"
        self._add("outage over", logging.WARNING, f"bot {event.bot}:…", text)

    def _add(self, kind: str, level: int, name: str, text: str) -> None:
        now, group = self._clock.monotonic(), self._groups.get(kind)
        if group is None or (now >= group.until and not group.held):
            group = self._groups[kind] = _Group(now + GROUPED_FOR)
        if group.lines < LINES_OF_A_KIND and not group.held:
            group.lines += 1
            log.log(level, "%s: %s", kind, text)
            return
        group.level = max(group.level, level)
        group.held[name if name in group.held or len(group.held) < NAMES_COUNTED else "others"] += 1
        if group.timer is None:
            group.timer = self._clock.call_later(group.until - now, lambda: self._on_time(kind, group))

    def _on_time(self, kind: str, group: _Group) -> None:
        self._tell_group(kind, group)
        group.held.clear()
        group.level, group.timer = logging.INFO, None
        group.lines, group.until = LINES_OF_A_KIND, self._clock.monotonic() + GROUPED_FOR

    @staticmethod
    def _tell_group(kind: str, group: _Group) -> None:
        if not group.held:
            return
        parts = [f"{name} {count}" for name, count in group.held.most_common(NAMES_SHOWN)]
        if len(group.held) > NAMES_SHOWN:
            parts.append("…")
        total = group.held.total()
        log.log(group.level, "%s: %d more in %g s: %s", kind, total, GROUPED_FOR, ", ".join(parts))


def _words(rate: Rate) -> str:
    return f"{rate.count} in {rate.seconds:g} s"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_DESCRIPTION else f"{line[:LONGEST_DESCRIPTION]}…"
