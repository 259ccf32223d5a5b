"""A process's counts as metrics: its loop, its incidents, its health, its CPU and memory."""

import threading
from typing import TYPE_CHECKING, Any, Final, Protocol, get_args

import prometheus_client as prometheus

from tidegate.incidents import IncidentKind
from tidegate.ops import metric_families as of
from tidegate.ops.event_counts import EventCounts

if TYPE_CHECKING:
    from tidegate.gate import Tidegate

# How prometheus_client makes one value of those of several processes. Those that have ended are left out.
_MODES: Final[dict[of.Across, Any]] = {"sum": "livesum", "max": "livemax", "min": "livemin"}
_SYSTEM_GAUGES: Final = {
    family.name: family for family in (of.MEMORY, of.VIRTUAL_MEMORY, of.OPEN_FILES, of.MOST_FILES, of.STARTED)
}


class HistoryCounts(Protocol):
    """The numbers of rows of a recorder of the history, since it was made."""

    @property
    def written(self) -> int: ...

    @property
    def dropped(self) -> int: ...

    @property
    def waiting(self) -> int:
        """Return how many wait in memory now."""
        ...

    @property
    def spooled_bytes(self) -> int:
        """The bytes of those that wait on disk."""
        ...


class ProcessValues:
    """Copies the numbers of other parts: what has grown since the last time is added."""

    def __init__(
        self,
        gate: "Tidegate",
        counts: EventCounts,
        registry: prometheus.CollectorRegistry,
        history: HistoryCounts | None,
    ) -> None:
        self._gate = gate
        self._counts = counts
        self._registry = registry
        self._history = history
        self._seen: dict[str, float] = {}
        self._gauges: dict[str, prometheus.Gauge] = {}
        self._loop_delay = counts.histogram(of.LOOP_DELAY)
        self._incidents = counts.counter(of.INCIDENTS)
        for kind in get_args(IncidentKind):
            self._incidents.add((kind,), 0.0)
        if history is not None:
            self._written = counts.counter(of.HISTORY_WRITTEN)
            self._dropped = counts.counter(of.HISTORY_DROPPED)
        self._sends_seen = 0
        self._progress_at: float | None = None  # since the epoch
        self._system: prometheus.ProcessCollector | None = None
        self._system_lock = threading.Lock()
        self._cpu: prometheus.Counter | None = None

    def update(self) -> None:
        """Read this process' own numbers, in the event loop."""
        for bot in self._gate.bots():
            self._counts.bot_label(bot.id)  # its series exist from now on
        health = self._gate.health()
        self._gauge(of.READY).set(health.ready)
        self._gauge(of.SPOOLED).set(health.spooled)
        for label, chats in self._counts.closed_chats().items():
            self._gauge(of.CLOSED_CHATS).labels(label).set(chats)
        for kind, count in self._gate.core.incidents.counts.copy().items():
            self._incidents.add((kind,), self._growth(kind, count))
        self._update_loop_delay()
        self._update_progress()
        if self._history is not None:
            self._written.add((), self._growth("written", self._history.written))
            self._dropped.add((), self._growth("dropped", self._history.dropped))
            self._gauge(of.HISTORY_WAITING).set(self._history.waiting)
            self._gauge(of.HISTORY_SPOOLED).set(self._history.spooled_bytes)

    def _update_loop_delay(self) -> None:
        delay = self._gate.loop_delay()
        self._loop_delay.add((), 0, 0, self._growth("loop delay", delay.total))
        below = 0
        ends = (*delay.buckets, (None, delay.samples))
        for bucket, (bound, up_to) in enumerate(ends):
            self._loop_delay.add((), bucket, int(self._growth(f"loop delay {bound}", up_to - below)), 0.0)
            below = up_to

    def _update_progress(self) -> None:
        """A worker that has nothing to send is not silent: it counts as if it had sent something now."""
        if not self._gate.core.is_delivering:
            return
        sends = self._counts.sends_made
        if self._progress_at is None or sends > self._sends_seen or not self._gate.outbox.may_claim():
            self._progress_at, self._sends_seen = self._gate.clock.now(), sends
        self._gauge(of.PROGRESS).set(self._progress_at)

    def read_system(self) -> None:
        """Ask the system for CPU, memory and files, where it tells (Linux). Blocks for a moment."""
        with self._system_lock:
            if self._system is None:
                self._system = prometheus.ProcessCollector(registry=None)
            for metric in self._system.collect():
                value = metric.samples[0].value
                if metric.name == of.CPU.name:
                    if self._cpu is None:
                        self._cpu = prometheus.Counter(of.CPU.name, of.CPU.help, registry=self._registry)
                    self._cpu.inc(self._growth("cpu", value))
                elif (family := _SYSTEM_GAUGES.get(metric.name)) is not None:
                    self._gauge(family).set(value)

    def _gauge(self, family: of.Family) -> prometheus.Gauge:
        """Return the gauge, made when it is first set: one that nobody sets is not there."""
        if family.name not in self._gauges:
            self._gauges[family.name] = prometheus.Gauge(
                family.name,
                family.help,
                family.labels,
                registry=self._registry,
                multiprocess_mode=_MODES[family.across],
            )
        return self._gauges[family.name]

    def _growth(self, name: str, total: float) -> float:
        """Return by how much a number has grown since the last time; one that is smaller began anew."""
        before, self._seen[name] = self._seen.get(name, 0.0), total
        return total - before if total >= before else total
