"""The polling scenarios as an SVG chart: requests per second, and below it how long people wait."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from tidegate.cli.svg import svg_document, svg_line, svg_rect, svg_text
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
