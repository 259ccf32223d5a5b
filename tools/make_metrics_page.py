"""Writes docs/reference/metrics.md from the table of metric families.

Run it with `make metrics-page` after a change of `ops/metric_families.py`.
"""

from pathlib import Path
from typing import Final

from tidegate.ops.metric_families import OLD_NAMES, SECTIONS, Family

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "metrics.md"
INTRODUCTION: Final = """\
# Metrics

Written by `make metrics-page` from `ops/metric_families.py`: do not edit.

`GET /metrics` of the API, and of `tidegate worker` and `tidegate scheduler` with `--health-port`, for an API
token of a viewer ([how to watch with Prometheus](../howto/watch-with-prometheus.md)). Prometheus' text;
OpenMetrics or JSON if the request asks for it (`Accept: application/openmetrics-text`,
`Accept: application/json`).

Labels name bots, pollers, jobs and reasons, never chats or users; of more than 200 values of one label, the
further ones are `other`. A histogram has the samples `…_bucket`, `…_sum` and `…_count`. Times are in seconds.

"Together" says how one number is made of those of several processes. `sum`: each process counts its own.
`max` or `min`: each reports the same fact, or the worst is of interest; a sum would be wrong.
"""
OLD: Final = """\
## Names of before

For dashboards and scripts that know them, without labels, in every format:

| name | what | the same as |
|---|---|---|
"""
JSON: Final = """
The JSON is flat: these names, every counter by its name without labels, `queue_high`, `queue_normal`,
`queue_low`, `queue_retry`, `queue_sending`, `queue_parked`, `queue_dead`, and gauges without labels.
"""


def page() -> str:
    """Return the text of the page."""
    sections = [f"## {title}\n\n{table(families)}" for title, families in SECTIONS.items()]
    old = "".join(f"| `{name.name}` | {name.help} | `sum({name.of.shown_name})` |\n" for name in OLD_NAMES)
    return "\n".join([INTRODUCTION, *sections, OLD + old + JSON])


def table(families: tuple[Family, ...]) -> str:
    rows = "".join(
        f"| `{family.shown_name}` | {family.kind} | {_labels(family)} | {family.across} | {family.help} |\n"
        for family in families
    )
    return f"| name | kind | labels | together | what |\n|---|---|---|---|---|\n{rows}"


def _labels(family: Family) -> str:
    return ", ".join(f"`{label}`" for label in family.labels)


if __name__ == "__main__":
    PAGE.write_text(page())
