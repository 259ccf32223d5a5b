"""Incidents: a blocked loop, something slow, growing memory, a spike of errors. Reported in one line each.

Any part of Tidegate notes what it measures; who listens, such as Sentry, is decided elsewhere. Repeated
incidents of one group are counted, and logged once a minute at most.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from tidegate.clock import Clock
from tidegate.failure import scrub

log = logging.getLogger("tidegate")

IncidentKind = Literal[
    "loop_blocked",
    "slow_handler",
    "slow_http",
    "slow_sql",
    "slow_transaction",
    "memory_growth",
    "error_spike",
]
REPEAT_AFTER: Final = 60.0  # seconds between two lines of one group
MAX_GROUPS: Final = 200  # groups that are remembered; then the one that was reported longest ago is dropped


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One incident, without secrets. `group` is what it is counted under: its kind and its place."""

    kind: IncidentKind
    text: str  # for a person, in one line
    group: str
    seconds: float | None = None  # how long it took
    place: str | None = None  # file:line
    handler: str | None = None
    chat: int | None = None  # for the local log: it is sent to nobody
    stack: tuple[str, ...] = ()  # "file:line function", the innermost last
    count: int = 1  # of its group since it was last reported, this one included
    longest: float | None = None  # seconds, of these


class _Group(msgspec.Struct):
    reported_at: float  # monotonic
    count: int = 0
    longest: float = 0.0


IncidentListener = Callable[[Incident], None]


class IncidentLog:
    """Logs incidents and tells its listeners. May be called from any thread; a listener that fails is logged.

    The first of a group is reported at once, later ones together, at most once in REPEAT_AFTER seconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._groups: dict[str, _Group] = {}  # the one that was reported longest ago first
        self._listeners: list[IncidentListener] = []
        self.counts: dict[IncidentKind, int] = {}  # all that were noted

    def subscribe(self, listener: IncidentListener) -> None:
        """Call `listener` with each reported incident, in the thread that noted it. It must not block."""
        self._listeners.append(listener)

    def note(self, incident: Incident) -> None:
        """Count an incident, and report it unless its group was reported a moment ago."""
        with self._lock:
            self.counts[incident.kind] = self.counts.get(incident.kind, 0) + 1
            due = self._due(incident)
        if due is None:
            return
        repeated = "" if due.count == 1 else f" ({due.count} times since the last line"
        longest = f", {due.longest:.1f} s at most)" if repeated and due.longest else ")" if repeated else ""
        log.warning("%s", scrub(f"{due.text}{repeated}{longest}"))
        for listener in self._listeners:
            try:
                listener(due)
            except Exception:
                log.exception("a listener of incidents has failed")

    def _due(self, incident: Incident) -> Incident | None:
        """Return the incident to report now, with the counts of its group; None if it is too early."""
        now = self._clock.monotonic()
        group = self._groups.get(incident.group)
        is_early = group is not None and now - group.reported_at < REPEAT_AFTER
        if group is None:
            group = self._groups[incident.group] = _Group(now)
        group.count += 1
        group.longest = max(group.longest, incident.seconds or 0.0)
        if is_early:
            return None
        del self._groups[incident.group]
        self._groups[incident.group] = _Group(now)
        while len(self._groups) > MAX_GROUPS:
            del self._groups[next(iter(self._groups))]
        return msgspec.structs.replace(incident, count=group.count, longest=group.longest or None)
