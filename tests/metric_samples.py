"""The samples of an answer of `/metrics`, for tests."""

import re

from tidegate.ops.metrics import Metrics
from tidegate.ops.metrics_text import render_metrics

# The parser of prometheus_client would append _total to names of counters that have none.
_LINE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Samples:
    def __init__(self, text: str) -> None:
        self.all: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                match = _LINE.fullmatch(line)
                assert match is not None, line
                key = match[1], frozenset(_LABEL.findall(match[2] or ""))
                assert key not in self.all, f"{line} is there twice"
                self.all[key] = float(match[3])

    def __call__(self, name: str, **labels: str) -> float | None:
        """The value of one series."""
        return self.all.get((name, frozenset(labels.items())))

    def sum(self, name: str, **labels: str) -> float:
        """The sum of all series that have at least these labels."""
        wanted = set(labels.items())
        return sum(value for (found, given), value in self.all.items() if found == name and wanted <= given)

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """The series of a name, by the values of some labels."""
        return {
            tuple(dict(given)[label] for label in labels): value
            for (found, given), value in self.all.items()
            if found == name
        }

    def names(self) -> set[str]:
        return {name for name, _ in self.all}


async def samples(metrics: Metrics) -> Samples:
    return Samples((await render_metrics(metrics))[1].decode())
