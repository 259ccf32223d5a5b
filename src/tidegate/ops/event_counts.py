"""Counts the events of a gate for Prometheus.

A handler adds to plain numbers, which takes about half a microsecond. `flush` adds these to the metrics of
prometheus_client, which takes a microsecond or two each: too much for every message.
"""

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import prometheus_client as prometheus

from tidegate import events
from tidegate.clock import Clock
from tidegate.model import (
    BotId,
    Dead,
    Delivered,
    Migrated,
    NotSent,
    Outcome,
    Refused,
    Retry,
    State,
    Unknown,
    Unreachable,
)
from tidegate.ops import metric_families as of
from tidegate.outbox.call_counts import SERVER_ERROR
from tidegate.pacing.rules import family_of

MOST_VALUES: Final = 200  # of a label
# Reasons of deaths for which somebody has to do something, and which are counted from 0 on.
DEATHS: Final = ("attempts", "bad_input", "bad_request", "forbidden", "not_found", "unauthorized")
OTHER: Final = "other"  # the value of all further ones
MOST_CELLS: Final = 10_000
MOST_CLOSURES: Final = 10_000  # of chats, that are remembered
OUTCOMES: Final[dict[type[Outcome], str]] = {
    Delivered: "delivered",
    Refused: "refused",
    Retry: "retried",
    Unknown: "unknown",
    Migrated: "migrated",
    Dead: "dead",
    NotSent: "not_sent",
    Unreachable: "unreachable",
}

_WITHDRAWN: Final = frozenset((State.CANCELLED.value, State.REPLACED.value))

Labels = tuple[str, ...]
SendKey = tuple[BotId, str, str, type[Outcome]]  # bot, kind, method, outcome
EndKey = tuple[BotId, str, str]  # bot, state, priority


class BoundedLabels:
    """The values of a label: names as they are, up to MOST_VALUES; all further ones are one value.

    `begin` is called with each new value.
    """

    def __init__(self, begin: Callable[[str], object] = lambda _: None) -> None:
        self._begin = begin
        self._known: dict[object, str] = {}

    def values(self) -> list[str]:
        return list(self._known.values())

    def __call__(self, name: object) -> str:
        known = self._known.get(name)
        if known is not None:
            return known
        if len(self._known) >= MOST_VALUES:
            return OTHER
        value = self._known[name] = str(name)
        self._begin(value)
        return value


class BufferedCounter:
    """A counter family. What is added is in the metric after `flush`."""

    def __init__(self, family: of.Family, registry: prometheus.CollectorRegistry) -> None:
        self._metric = prometheus.Counter(family.name, family.help, family.labels, registry=registry)
        self._pending: dict[Labels, float] = {}

    def add(self, labels: Labels, amount: float = 1.0) -> None:
        self._pending[labels] = self._pending.get(labels, 0.0) + amount

    def flush(self) -> None:
        pending, self._pending = self._pending, {}
        for labels, amount in pending.items():
            (self._metric.labels(*labels) if labels else self._metric).inc(amount)


class BufferedHistogram:
    """A histogram family. What was observed is in the metric after `flush`."""

    def __init__(self, family: of.Family, registry: prometheus.CollectorRegistry) -> None:
        self._metric = prometheus.Histogram(
            family.name, family.help, family.labels, registry=registry, buckets=family.buckets
        )
        self._bounds = family.buckets
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, labels: Labels, value: float) -> None:
        self.add(labels, bisect_left(self._bounds, value), 1, value)

    def add(self, labels: Labels, bucket: int, amount: int, total: float) -> None:
        """Add observations of one bucket, whose sum is `total`."""
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(self._bounds) + 1)
        counts[bucket] += amount
        self._sums[labels] = self._sums.get(labels, 0.0) + total

    def add_cell(self, labels: Labels, cell: "Cell") -> None:
        self.add(labels, 0, 0, cell.total)
        self._counts[labels] = [old + new for old, new in zip(self._counts[labels], cell.counts, strict=True)]

    def flush(self) -> None:
        counts_of, self._counts = self._counts, {}
        sums, self._sums = self._sums, {}
        for labels, counts in counts_of.items():
            metric = self._metric.labels(*labels) if labels else self._metric
            # Its method `observe` takes one value at a time.
            metric._sum.inc(sums[labels])  # noqa: SLF001  (`observe` adds one value at a time)
            for bucket, amount in enumerate(counts):
                if amount:
                    metric._buckets[bucket].inc(amount)  # noqa: SLF001  (likewise)


K = TypeVar("K")


class Cells(Generic[K]):
    """Observations by a key that is at hand, without the labels that are made of it: for the hot handlers."""

    def __init__(self, bounds: tuple[float, ...], on_full: Callable[[], object]) -> None:
        self._bounds = bounds
        self._on_full = on_full
        self._cells: dict[K, Cell] = {}

    def observe(self, key: K, value: float) -> None:
        cell = self._cells.get(key)
        if cell is None:
            if len(self._cells) >= MOST_CELLS:
                self._on_full()
            cell = self._cells[key] = Cell(len(self._bounds) + 1)
        cell.counts[bisect_left(self._bounds, value)] += 1
        cell.total += value

    def take(self) -> "dict[K, Cell]":
        """Return what was observed, and begin anew."""
        taken, self._cells = self._cells, {}
        return taken


class Cell:
    __slots__ = ("counts", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.total = 0.0


class EventCounts:
    """Subscribes to a stream of events. Labels name bots, pollers and jobs, never chats or users."""

    def __init__(self, registry: prometheus.CollectorRegistry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._all: list[BufferedCounter | BufferedHistogram] = []
        self._accepted, self._ended, self._dead = (
            self.counter(of.ACCEPTED),
            self.counter(of.ENDED),
            self.counter(of.DEAD),
        )
        self._queue_time = self.histogram(of.QUEUE_TIME)
        self._sends, self._durations = self.counter(of.SENDS), self.histogram(of.CALL_DURATION)
        self._turn_waits, self._given_up = self.histogram(of.TURN_WAIT), self.counter(of.GIVEN_UP)
        self._refusals, self._server_errors = self.counter(of.REFUSALS), self.counter(of.SERVER_ERRORS)
        self._outages, self._limit_changes = self.counter(of.OUTAGES), self.counter(of.LIMIT_CHANGES)
        self._updates = self.counter(of.UPDATES)
        self._cycles, self._cycle_times = self.counter(of.POLL_CYCLES), self.histogram(of.POLL_DURATION)
        self._requests, self._asked = self.counter(of.POLL_REQUESTS), self.counter(of.POLL_ASKED)
        self._reminders, self._lateness = self.counter(of.REMINDERS), self.histogram(of.REMINDER_LATENESS)
        self._jobs, self._job_times = self.counter(of.JOBS), self.histogram(of.JOB_DURATION)
        self.bot_label = BoundedLabels(self._begin_bot)
        self._poller_label, self._job_label, self._reason_label = (
            BoundedLabels(),
            BoundedLabels(),
            BoundedLabels(),
        )
        self._send_cells: Cells[SendKey] = Cells(of.CALL_DURATION.buckets, self._fold)
        self._end_cells: Cells[EndKey] = Cells(of.QUEUE_TIME.buckets, self._fold)
        self._closures: list[tuple[float, str]] = []  # a heap: when (monotonic) a chat of which bot opens
        self.sends_made = 0

    def counter(self, family: of.Family) -> BufferedCounter:
        """Make a counter family that is flushed with the others."""
        self._all.append(made := BufferedCounter(family, self._registry))
        return made

    def histogram(self, family: of.Family) -> BufferedHistogram:
        """Make a histogram family, likewise."""
        self._all.append(made := BufferedHistogram(family, self._registry))
        return made

    def flush(self) -> None:
        """Add what was counted to the metrics."""
        self._fold()
        for one in self._all:
            one.flush()

    def _fold(self) -> None:
        for (bot, kind, method, outcome), cell in self._send_cells.take().items():
            self._sends.add((self.bot_label(bot), kind, OUTCOMES[outcome]), sum(cell.counts))
            if outcome is not NotSent:  # else it was not on the wire
                self._durations.add_cell((family_of(method),), cell)
        for (bot, state, priority), cell in self._end_cells.take().items():
            self._ended.add((self.bot_label(bot), state), sum(cell.counts))
            if state not in _WITHDRAWN:
                self._queue_time.add_cell((priority,), cell)

    def closed_chats(self) -> dict[str, int]:
        """Count the chats that are closed now, of each bot that is known."""
        now = self._clock.monotonic()
        while self._closures and self._closures[0][0] <= now:
            heapq.heappop(self._closures)
        return dict.fromkeys(self.bot_label.values(), 0) | Counter(bot for _, bot in self._closures)

    def _begin_bot(self, bot: str) -> None:
        """Let the series exist whose growth is an alarm: Prometheus sees no growth in a first value."""
        for counter in (self._server_errors, self._given_up, self._outages):
            counter.add((bot,), 0.0)
        for closes in ("bot", "chat", "nothing"):
            self._refusals.add((bot, closes), 0.0)
        for reason in DEATHS:
            self._dead.add((bot, self._reason_label(reason)), 0.0)

    def subscribe_to(self, stream: events.EventStream) -> None:
        stream.subscribe(events.Accepted, self._on_accepted)
        stream.subscribe(events.Attempted, self._on_attempted)
        stream.subscribe(events.Ended, self._on_ended)
        stream.subscribe(events.TurnTaken, self._on_turn)
        stream.subscribe(events.CallAttempted, self._on_call)
        stream.subscribe(events.RefusalHeard, self._on_refusal)
        stream.subscribe(events.LimitChanged, self._on_limit_change)
        stream.subscribe(events.OutageBegan, self._on_outage)
        stream.subscribe(events.UpdateReceived, self._on_update)
        stream.subscribe(events.CyclePolled, self._on_polled)
        stream.subscribe(events.Reminded, self._on_reminded)
        stream.subscribe(events.JobEnded, self._on_job)

    def _on_accepted(self, event: events.Accepted) -> None:
        batch = Counter((message.bot, message.priority) for message in event.messages)
        for (bot, priority), count in batch.items():
            self._accepted.add((self.bot_label(bot), priority.value), count)

    def _on_attempted(self, event: events.Attempted) -> None:
        message = event.claim.message
        self.sends_made += 1
        self._count_send(message.bot, "queued", message.method, event.outcome, event.seconds)

    def _on_ended(self, event: events.Ended) -> None:
        record = event.record
        message, state = record.message, record.state
        since, not_before, settled_at = record.created_at, message.not_before, record.settled_at
        if not_before is not None and not_before > since:
            since = not_before
        waited = 0.0
        if settled_at is not None and settled_at > since:  # a clock may have been set back meanwhile
            waited = settled_at - since
        self._end_cells.observe((message.bot, state.value, message.priority.value), waited)
        if state is State.DEAD:
            self._dead.add((self.bot_label(message.bot), self._reason_label(record.reason or "")))

    def _on_call(self, event: events.CallAttempted) -> None:
        if event.outcome is None:
            self._given_up.add((self.bot_label(event.bot),))
        else:
            self._count_send(event.bot, "direct", event.method, event.outcome, event.seconds)

    def _count_send(self, bot: BotId, kind: str, method: str, outcome: Outcome, seconds: float) -> None:
        self._send_cells.observe((bot, kind, method, type(outcome)), seconds)
        if isinstance(outcome, (Retry, Unreachable)) and outcome.reason == SERVER_ERROR:
            self._server_errors.add((self.bot_label(bot),))

    def _on_turn(self, event: events.TurnTaken) -> None:
        if event.seconds is not None:
            self._turn_waits.observe((), event.seconds)

    def _on_refusal(self, event: events.RefusalHeard) -> None:
        bot = self.bot_label(event.bot)
        self._refusals.add((bot, event.closes))
        if event.closes == "chat" and len(self._closures) < MOST_CLOSURES:
            heapq.heappush(self._closures, (self._clock.monotonic() + event.retry_after, bot))

    def _on_limit_change(self, event: events.LimitChanged) -> None:
        change = "restored" if event.change.restored else "cut" if event.change.is_cut else "raised"
        scope = "bot" if event.chat_id is None else "chat"
        self._limit_changes.add((self.bot_label(event.bot), scope, change))

    def _on_outage(self, event: events.OutageBegan) -> None:
        self._outages.add((self.bot_label(event.bot),))

    def _on_update(self, event: events.UpdateReceived) -> None:
        self._updates.add((self.bot_label(event.bot),))

    def _on_polled(self, event: events.CyclePolled) -> None:
        poller = (self._poller_label(event.poller),)
        self._cycles.add(poller)
        self._requests.add(poller, event.requests)
        self._asked.add(poller, event.asked)
        self._cycle_times.observe(poller, event.seconds)

    def _on_reminded(self, event: events.Reminded) -> None:
        self._reminders.add((), event.fired)
        self._lateness.observe((), max(0.0, event.late))

    def _on_job(self, event: events.JobEnded) -> None:
        job = self._job_label(event.name)
        self._jobs.add((job, event.outcome))
        self._job_times.observe((job,), event.seconds)
