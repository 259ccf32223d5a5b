"""Incidents: a blocked loop, something slow, growing memory, a spike of errors. Reported in one line each.

Any part of Tidegate notes what it measures; who listens, such as Sentry, is decided elsewhere. Repeated
incidents of one group are counted, and logged once a minute at most.
"""

import asyncio
import logging
import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

import msgspec

from tidegate.call_stack import StackReading, read_stack, task_frames, thread_frames
from tidegate.clock import Clock
from tidegate.failure import scrub
from tidegate.handler_run import HandlerRun, current_run, running

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
LONGEST_STATEMENT: Final = 200  # characters
SHORTEST_LOOK: Final = 0.1  # seconds between two looks at a handler that waits for the gate
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


class SlowCalls:
    """Notes what took longer than its threshold, in seconds; 0 switches one off.

    Callers measure what they do, and leave out what they wait for by intention, such as a turn of a limiter.
    """

    def __init__(
        self,
        incidents: IncidentLog,
        clock: Clock,
        *,
        handler: float = 0.0,
        http: float = 0.0,
        sql: float = 0.0,
        transaction: float = 0.0,
    ) -> None:
        self._incidents = incidents
        self._clock = clock
        self._handler = handler or math.inf
        self._http = http or math.inf
        self._sql = sql or math.inf
        self._transaction = transaction or math.inf

    def is_slow_http(self, seconds: float) -> bool:
        return seconds >= self._http

    def note_http(self, api: str, call: str, seconds: float, *, path: str = "") -> None:
        """A request that was on the wire for so long. Those of one API and call are one group."""
        if not self.is_slow_http(seconds):
            return
        text = f"slow HTTP: {api} {call} {path}".rstrip() + f" took {seconds:.1f} s"
        self._note("slow_http", text, f"slow_http {api} {call}", seconds)

    def note_sql(self, statement: Callable[[], str], seconds: float) -> None:
        """A statement that has run for so long. Its text must hold no values."""
        if seconds < self._sql:
            return
        sql = " ".join(statement().split())[:LONGEST_STATEMENT]
        self._note("slow_sql", f"slow SQL: {seconds:.1f} s: {sql}", f"slow_sql {sql}", seconds)

    def note_transaction(self, stack: Callable[[], StackReading], seconds: float) -> None:
        """A transaction that was open for so long."""
        if seconds < self._transaction:
            return
        found = stack()
        text = f"slow transaction: open for {seconds:.1f} s {found.where}"
        self._note("slow_transaction", text, f"slow_transaction {found.place}", seconds, found)

    @contextmanager
    def handler(self, run: HandlerRun) -> Iterator[None]:
        """Watch the handler that the current task runs within. Its waits for the gate do not count."""
        if self._handler == math.inf:
            yield
            return
        watch = _HandlerWatch(self._clock, run, self._handler)
        try:
            yield
        finally:
            watch.end()
            if watch.stack is not None:
                self._note_handler(watch.stack, run.own_seconds())

    @contextmanager
    def outer_handler(self) -> Iterator[None]:
        """Watch what a bot library runs, unless it is part of a handler that is watched already."""
        if self._handler == math.inf or current_run() is not None:
            yield
            return
        run = HandlerRun()
        with running(run), self.handler(run):
            yield

    def _note_handler(self, stack: StackReading, seconds: float) -> None:
        name = stack.handler or stack.outer or "of an update"
        chat = f", chat {stack.chat}" if stack.chat is not None else ""
        text = f"slow handler: {name} took {seconds:.1f} s{chat}, it waited {stack.where}"
        self._note("slow_handler", text, f"slow_handler {name}", seconds, stack)

    def _note(
        self,
        kind: IncidentKind,
        text: str,
        group: str,
        seconds: float,
        stack: StackReading = StackReading(),  # noqa: B008  (frozen)
    ) -> None:
        self._incidents.note(
            Incident(
                kind=kind,
                text=text,
                group=group,
                seconds=seconds,
                place=stack.place,
                handler=stack.handler,
                chat=stack.chat,
                stack=stack.lines,
            )
        )


class _HandlerWatch:
    """Looks once where a handler waits that runs for longer than it should."""

    def __init__(self, clock: Clock, run: HandlerRun, limit: float) -> None:
        self._clock, self._run, self._limit = clock, run, limit
        self._task = asyncio.current_task()
        self._timer = clock.call_later(limit, self._look)
        self.stack: StackReading | None = None  # once it was too slow

    def end(self) -> None:
        self._timer.cancel()
        if self.stack is None and self._run.own_seconds() >= self._limit:  # it blocked: no timer could run
            self.stack = read_stack(thread_frames(sys._getframe(1)))  # noqa: SLF001
        self._task = None

    def _look(self) -> None:
        left = self._limit - self._run.own_seconds()
        if left > 0:
            self._timer = self._clock.call_later(max(left, SHORTEST_LOOK), self._look)
        elif self._task is not None:
            self.stack = read_stack(task_frames(self._task))
