"""The metrics of a gate and its process, kept with prometheus_client.

With PROMETHEUS_MULTIPROC_DIR the values are in files that the processes of a machine share: each of them
answers for all, and what a process has counted stays when it ends.
"""

import asyncio
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import prometheus_client as prometheus
from prometheus_client import values
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from tidegate.errors import BadInputError
from tidegate.ops import metric_families as of
from tidegate.ops.event_counts import EventCounts
from tidegate.ops.process_values import HistoryCounts, ProcessValues
from tidegate.ops.store_gauges import StoreGauges
from tidegate.tasks import BackgroundTasks

if TYPE_CHECKING:
    from tidegate.gate import Tidegate

SHARED_EVERY: Final = 1.0  # seconds between two additions to the files that processes share
_POSITIONS: Final = {family.name: position for position, family in enumerate(of.FAMILIES)}
_LIVE_FILE: Final = re.compile(r"gauge_live\w*_(\d+)\.db")


class Metrics:
    """Counts the events of one gate from when it is made. No other part of the program sees its registry.

    Between `start` and `stop`, which are called in the event loop, processes that share
    PROMETHEUS_MULTIPROC_DIR see its numbers, a second late at most. Raises BadInputError if that folder
    cannot be used.
    """

    def __init__(self, gate: "Tidegate", *, history: HistoryCounts | None = None) -> None:
        self._gate = gate
        self._directory = gate.settings.prometheus_multiproc_dir
        if self._directory is not None:
            _prepare(self._directory)
        self._registry = prometheus.CollectorRegistry()
        self._events = EventCounts(self._registry, gate.clock)
        self._process = ProcessValues(gate, self._events, self._registry, history)
        self._store = StoreGauges(gate, self._events.bot_label)
        self._tasks = BackgroundTasks()
        self._events.subscribe_to(gate.core.events)

    def start(self) -> None:
        """Share the numbers with other processes from now on, if there is a directory for that."""
        if self._directory is not None and not len(self._tasks):
            self._tasks.supervise(self._share_often, "what shares the metrics", self._gate.clock)

    async def stop(self) -> None:
        """End that, with the last numbers."""
        await self._tasks.stop()
        if self._directory is not None:
            await self._share()

    async def _share_often(self) -> None:
        while True:
            await self._share()
            await self._gate.clock.sleep(SHARED_EVERY)

    async def _share(self) -> None:
        self._update()
        await asyncio.to_thread(self._process.read_system)

    async def refresh(self) -> None:
        """Bring everything up to date. Asks the store and the database, at most once in two seconds."""
        self._update()
        await self._store.read()

    def _update(self) -> None:
        self._process.update()
        self._events.flush()

    def families(self) -> list[Metric]:
        """The metric families as of the last `refresh`, of all processes that share a directory.

        Reads files: call it in a thread.
        """
        self._process.read_system()
        if self._directory is None:
            found: Iterable[Metric] = self._registry.collect()
        else:
            forget_ended_processes(self._directory)
            found = MultiProcessCollector(None, str(self._directory)).collect()  # type: ignore[no-untyped-call]
        # The files may hold metrics that the application has made.
        own = [_without_creation_times(metric) for metric in found if metric.name in _POSITIONS]
        own.sort(key=lambda metric: _POSITIONS[metric.name])
        return [*own, *self._store.families()]


def _prepare(directory: Path) -> None:
    if values.ValueClass is values.MutexValue:
        raise BadInputError(
            "PROMETHEUS_MULTIPROC_DIR came after prometheus_client was imported: set it before Python starts"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"{directory}: {error.strerror or 'it cannot be made'}"
        raise BadInputError(f"PROMETHEUS_MULTIPROC_DIR: {reason}: write another folder") from error


def forget_ended_processes(directory: Path) -> None:
    """Leave gauges of processes that have ended out from now on. What they have counted stays."""
    for file in list(directory.glob("gauge_live*.db")):
        match = _LIVE_FILE.fullmatch(file.name)
        if match is not None and not _is_alive(int(match[1])):
            with suppress(FileNotFoundError):  # another process does the same
                mark_process_dead(int(match[1]), str(directory))  # type: ignore[no-untyped-call]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _without_creation_times(metric: Metric) -> Metric:
    """Prometheus has no use for them, and they double the number of series."""
    metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
    return metric
