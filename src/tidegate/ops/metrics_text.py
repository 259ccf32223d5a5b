"""Metrics as an HTTP answer: Prometheus' text, OpenMetrics, or flat JSON, as the request accepts.

The names that metrics had before Tidegate are in each of them.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from tidegate.ops import metric_families as of
from tidegate.ops.metrics import Metrics

Format = Literal["text", "openmetrics", "json"]

_FORMATS: Final[dict[str, Format]] = {
    "text/plain": "text",
    "application/openmetrics-text": "openmetrics",
    "application/json": "json",
}
_BY_NAME: Final = {family.name: family for family in of.FAMILIES}


async def render_metrics(metrics: Metrics, accept: str = "") -> tuple[str, bytes]:
    """Return the content type and body of an answer to a request with this `Accept` header.

    Never raises if the store or the database is away: metrics say so.
    """
    await metrics.refresh()
    return await asyncio.to_thread(_render, metrics, best_format(accept))


def best_format(accept: str) -> Format:
    """Choose what the header likes best; Prometheus' text if it likes anything as much."""
    best: tuple[float, Format] = (0.0, "text")
    for part in accept.lower().split(","):
        kind, *options = (word.strip() for word in part.split(";"))
        found = _FORMATS.get(kind)
        weight = _weight(options)
        if found is not None and weight > best[0]:
            best = (weight, found)
    return best[1]


def _weight(options: Iterable[str]) -> float:
    for option in options:
        name, _, value = option.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _render(metrics: Metrics, wanted: Format) -> tuple[str, bytes]:
    families = metrics.families()
    if wanted == "json":
        return "application/json", msgspec.json.encode(flat(families))
    if wanted == "openmetrics":
        # A counter without _total is not allowed there.
        old = [Metric(old.name, old.help, "unknown") for old in of.OLD_NAMES]
        for metric, old_name in zip(old, of.OLD_NAMES, strict=True):
            metric.add_sample(old_name.name, {}, _total(families, old_name.of))
        text: bytes = openmetrics.generate_latest(_Families([*families, *old]))  # type: ignore[no-untyped-call]
        return openmetrics.CONTENT_TYPE_LATEST, text
    return CONTENT_TYPE_PLAIN_0_0_4, generate_latest(_Families(families)) + _old_lines(families).encode()


def _old_lines(families: Sequence[Metric]) -> str:
    """Return the old names as counters. prometheus_client would append _total to their names."""
    return "".join(
        f"# HELP {old.name} {old.help}\n# TYPE {old.name} counter\n{old.name} {_total(families, old.of)}\n"
        for old in of.OLD_NAMES
    )


def flat(families: Sequence[Metric]) -> dict[str, float]:
    """Return the names of before Tidegate, every counter without its labels, and the queue."""
    found = {old.name: _total(families, old.of) for old in of.OLD_NAMES}
    for metric in families:
        family = _BY_NAME[metric.name]
        if family.kind == "counter":
            found[family.shown_name] = _total(families, family)
        elif family is of.QUEUE:
            for sample in metric.samples:
                labels = sample.labels
                found[f"queue_{labels['priority'] or labels['state']}"] = _plain(sample.value)
        elif not family.labels and family.kind == "gauge":
            found[family.name] = _plain(metric.samples[0].value)
    return found


def _total(families: Sequence[Metric], family: of.Family) -> float:
    samples = (sample for metric in families if metric.name == family.name for sample in metric.samples)
    return _plain(sum(sample.value for sample in samples))


def _plain(value: float) -> float:
    """Return a whole number as one: JSON shows the difference."""
    return int(value) if value == int(value) else value


class _Families(CollectorRegistry):
    """Families in the form that prometheus_client writes."""

    def __init__(self, families: Sequence[Metric]) -> None:
        super().__init__()
        self._families = families

    def collect(self) -> Sequence[Metric]:
        return self._families
