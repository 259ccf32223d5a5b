"""The polling scenarios as an SVG chart: requests per second, and below it how long people wait."""

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self
from xml.sax.saxutils import escape, quoteattr

from tidegate.errors import BadInputError
from tidegate.sim.polling import MODES, PollingReport, PollingScenario

DURATION_FORMS = ((60, "{:.0f} s"), (1, "{:.3g} s"), (0, "{:.2f} s"))


class LogScale(NamedTuple):
    """A logarithmic scale. Places are pixels from the top: `top` of 10^high, `bottom` of 10^low."""

    low: int
    high: int
    top: float
    bottom: float

    @classmethod
    def around(cls, numbers: Iterable[float], top: float, bottom: float) -> Self:
        """Return a scale of whole decades for all numbers above 0, with the smallest above the bottom."""
        logs = [math.log10(number) for number in numbers if number > 0] or [0.0]
        low = math.floor(min(logs))
        if min(logs) - low < 0.05:  # noqa: PLR2004  (a bar that could not be seen)
            low -= 1
        return cls(low, max(low + 1, math.ceil(max(logs))), top, bottom)

    def place(self, number: float) -> float:
        """Return the place of a number; numbers below the scale are at its bottom."""
        if number <= 0:
            return self.bottom
        part = (math.log10(number) - self.low) / (self.high - self.low)
        return self.bottom - min(1.0, max(0.0, part)) * (self.bottom - self.top)

    def decades(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def duration_text(ms: float) -> str:
    """Return milliseconds as seconds: 0.31 s, 4.5 s, 58 s, 312 s."""
    seconds = ms / 1_000
    return next(form for above, form in DURATION_FORMS if seconds >= above).format(seconds)


def rate_text(rate: float) -> str:
    return f"{rate:.2f}" if rate < 10 else f"{rate:.0f}"  # noqa: PLR2004  (three digits say enough)


STYLE = """
  text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #1f2933 }
  .title { font-size: 19px; font-weight: 600 } .small { font-size: 11px } .quiet { fill: #5b6875 }
  .paper { fill: #ffffff } .grid { stroke: #d5dbe1; stroke-width: 1 }
  .limit { stroke: #c0392b; stroke-width: 1.5; stroke-dasharray: 6 4 } .warning { fill: #c0392b }
  .mode0 { fill: #d97706 } .mode1 { fill: #8896a5 } .mode2 { fill: #0e8f8a } .mode3 { fill: #2f6fd6 }
  .refused { stroke: #c0392b; stroke-width: 2 }
  .label { stroke: #ffffff; stroke-width: 3px; stroke-linejoin: round; paint-order: stroke }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6eaee } .quiet { fill: #9fb0bf } .paper { fill: #11181f } .grid { stroke: #2e3a45 }
    .label { stroke: #11181f } .limit, .refused { stroke: #ff8a7a } .warning { fill: #ff8a7a }
    .mode0 { fill: #f0a54a } .mode1 { fill: #74828f } .mode2 { fill: #37c0b9 } .mode3 { fill: #74a7ff }
  }
"""


def svg_document(width: int, height: int, *, title: str, description: str, shapes: Sequence[str]) -> str:
    """Return a whole SVG file. Title and description are for screen readers."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-labelledby="title description">'
    )
    about = (
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="description">{escape(description)}</desc>',
        f"<style>{STYLE}</style>",
    )
    return "\n".join([head, *about, svg_rect(0, 0, width, height, "paper"), *shapes, "</svg>"]) + "\n"


def svg_text(x: float, y: float, words: str, *, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor={quoteattr(anchor)} class={quoteattr(kind)}>'
        f"{escape(words)}</text>"
    )


def svg_rect(x: float, y: float, width: float, height: float, kind: str, *, about: str = "") -> str:
    """Return a rectangle; a browser shows `about` as a tooltip."""
    shape = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class={quoteattr(kind)}'
    return f"{shape}><title>{escape(about)}</title></rect>" if about else f"{shape}/>"


def svg_line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class={quoteattr(kind)}/>'


WIDTH, HEIGHT = 900, 740
LEFT, RIGHT = 76, 880
BAR = 0.21  # width of a bar: four bars and a gap share the room of one number of users


class ChartPanel(NamedTuple):
    title: str
    top: float
    bottom: float
    value: Callable[[PollingReport], float]
    label: Callable[[PollingReport], str]
    limit: tuple[float, str]


def chart(results: Sequence[PollingReport], scenario: PollingScenario) -> str:
    """Return a self-contained SVG file, without scripts."""
    limit, interval = scenario.rate, scenario.interval
    panels = (
        ChartPanel(
            "Requests per second, on average",
            130,
            370,
            lambda result: result.avg_rps,
            lambda result: rate_text(result.avg_rps),
            (limit.count / limit.seconds, f"the API allows {limit.count / limit.seconds:g}"),
        ),
        ChartPanel(
            "Seconds from payment to notification, 99 % within",
            460,
            680,
            lambda result: result.p99_ms / 1_000,
            told_within,
            (interval, f"promised: {interval:g} s"),
        ),
    )
    shapes = [*_heading(scenario), *_legend()]
    for panel in panels:
        shapes += _panel(panel, results)
    shapes.append(
        svg_text((LEFT + RIGHT) / 2, HEIGHT - 14, "people who wait for their payment", anchor="middle")
    )
    title = "Waiting for payments: four ways to poll, measured"
    return svg_document(WIDTH, HEIGHT, title=title, description=_description(results), shapes=shapes)


def told_within(result: PollingReport) -> str:
    """Return the 99th percentile in seconds, with > if some were not told: their wait so far counts."""
    return (">" if result.missed else "") + duration_text(result.p99_ms).removesuffix(" s")


def _heading(scenario: PollingScenario) -> Iterator[str]:
    yield svg_text(LEFT, 36, "Waiting for payments: four ways to poll, measured", kind="title")
    yield svg_text(
        LEFT,
        58,
        f"NocoDB as simulated: {scenario.rate.count} requests/s, then shut for {scenario.block:g} s; "
        f"{scenario.duration:g} s each, logarithmic scales",
        kind="quiet",
    )


def _legend() -> Iterator[str]:
    for number, mode in enumerate(MODES):
        x = LEFT + number * 100
        yield svg_rect(x, 74, 13, 13, f"mode{number}")
        yield svg_text(x + 19, 85, mode)
    yield svg_rect(LEFT + 401, 74, 12, 12, "mode0 refused")
    yield svg_text(LEFT + 420, 85, "red edge: 429s came; >: some were not told")


def _panel(panel: ChartPanel, results: Sequence[PollingReport]) -> Iterator[str]:
    allowed, words = panel.limit
    scale = LogScale.around([*map(panel.value, results), allowed], panel.top, panel.bottom)
    yield svg_text(LEFT, panel.top - 16, panel.title)
    yield svg_text(RIGHT, panel.top - 16, f"- - {words}", kind="warning", anchor="end")
    for mark in scale.decades():
        y = scale.place(mark)
        yield svg_line(LEFT, y, RIGHT, y, "grid")
        yield svg_text(LEFT - 8, y + 4, f"{mark:g}", kind="small quiet", anchor="end")
    bars = list(_bars(panel, scale, results))
    yield from (bar for bar, _ in bars)
    yield svg_line(LEFT, scale.place(allowed), RIGHT, scale.place(allowed), "limit")
    yield from (label for _, label in bars)  # drawn above the line, to be readable


def _bars(panel: ChartPanel, scale: LogScale, results: Sequence[PollingReport]) -> Iterator[tuple[str, str]]:
    """Yield each bar with its label."""
    crowds = sorted({result.users for result in results})
    room = (RIGHT - LEFT) / max(1, len(crowds))
    for number, users in enumerate(crowds):
        middle = LEFT + (number + 0.5) * room
        yield "", svg_text(middle, panel.bottom + 20, f"{users:,}", anchor="middle")
    for result in results:
        start = LEFT + (crowds.index(result.users) + 0.5) * room - 2 * BAR * room
        number = MODES.index(result.mode)
        x, width = start + number * BAR * room, BAR * room - 3
        y, label = scale.place(panel.value(result)), panel.label(result)
        edge = " refused" if result.refused else ""
        about = f"{result.users:,} people, {result.mode}: {label}, {result.refused:,} refused"
        yield (
            svg_rect(x, y, width, panel.bottom - y, f"mode{number}{edge}", about=about),
            svg_text(x + width / 2, y - 5, label, kind="small label", anchor="middle"),
        )


def _description(results: Sequence[PollingReport]) -> str:
    return "; ".join(
        f"{result.users} people, {result.mode}: {result.avg_rps:g} requests/s, {result.refused} refused, "
        f"99 % told within {told_within(result)} s"
        for result in results
    )


READABLE = 0o644


def reserve(path: Path) -> None:
    """Raise BadInputError if no file can be saved there. Leaves nothing behind."""
    if path.is_dir():
        raise BadInputError(f"--svg: {path} is a folder: give the name of a file in it")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".tidegate-"):
            pass
    except OSError as error:
        why = (error.strerror or "unknown").lower()
        raise BadInputError(
            f"--svg: {path} cannot be written ({why}): choose a folder that exists and is yours"
        ) from error


def save(path: Path, results: Sequence[PollingReport], scenario: PollingScenario) -> None:
    """Save the chart as a whole, replacing a file that is there."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=".tidegate-", encoding="utf-8", delete=False
    ) as file:
        file.write(chart(results, scenario))
    os.chmod(file.name, READABLE)  # noqa: PTH101  (a name, no path)
    Path(file.name).replace(path)
