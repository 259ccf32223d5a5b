"""The scenarios as a picture: what each mode asks of the API, and below it how long people wait."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tidegate.cli.stress.scale import LogScale, duration, per_second
from tidegate.cli.stress.svg import document, line, rect, text
from tidegate.sim.polling import MODES, Result, Scenario

WIDTH, HEIGHT = 900, 740
LEFT, RIGHT = 76, 880
BAR = 0.21  # of the room for one number of users; four bars and a gap


class Panel(NamedTuple):
    title: str
    top: float
    bottom: float
    value: Callable[[Result], float]
    label: Callable[[Result], str]
    limit: tuple[float, str]


def chart(results: Sequence[Result], scenario: Scenario) -> str:
    """An SVG file of its own, without scripts and without anything from elsewhere."""
    limit, interval = scenario.rate, scenario.interval
    panels = (
        Panel(
            "Requests per second, on average",
            130,
            370,
            lambda result: result.avg_rps,
            lambda result: per_second(result.avg_rps),
            (limit.count / limit.seconds, f"the API allows {limit.count / limit.seconds:g}"),
        ),
        Panel(
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
    shapes.append(text((LEFT + RIGHT) / 2, HEIGHT - 14, "people who wait for their payment", anchor="middle"))
    title = "Waiting for payments: four ways to poll, measured"
    return document(WIDTH, HEIGHT, title=title, description=_description(results), shapes=shapes)


def told_within(result: Result) -> str:
    """In seconds; more than that where some were not told: they count with what they waited."""
    return (">" if result.missed else "") + duration(result.p99_ms).removesuffix(" s")


def _heading(scenario: Scenario) -> Iterator[str]:
    yield text(LEFT, 36, "Waiting for payments: four ways to poll, measured", kind="title")
    yield text(
        LEFT,
        58,
        f"NocoDB as simulated: {scenario.rate.count} requests/s, then shut for {scenario.block:g} s; "
        f"{scenario.duration:g} s each, logarithmic scales",
        kind="quiet",
    )


def _legend() -> Iterator[str]:
    for number, mode in enumerate(MODES):
        x = LEFT + number * 100
        yield rect(x, 74, 13, 13, f"mode{number}")
        yield text(x + 19, 85, mode)
    yield rect(LEFT + 401, 74, 12, 12, "mode0 refused")
    yield text(LEFT + 420, 85, "red edge: 429s came; >: some were not told")


def _panel(panel: Panel, results: Sequence[Result]) -> Iterator[str]:
    allowed, words = panel.limit
    scale = LogScale.around([*map(panel.value, results), allowed], panel.top, panel.bottom)
    yield text(LEFT, panel.top - 16, panel.title)
    yield text(RIGHT, panel.top - 16, f"- - {words}", kind="warning", anchor="end")
    for mark in scale.decades():
        y = scale.place(mark)
        yield line(LEFT, y, RIGHT, y, "grid")
        yield text(LEFT - 8, y + 4, f"{mark:g}", kind="small quiet", anchor="end")
    bars = list(_bars(panel, scale, results))
    yield from (bar for bar, _ in bars)
    yield line(LEFT, scale.place(allowed), RIGHT, scale.place(allowed), "limit")
    yield from (label for _, label in bars)  # above the line, to be read


def _bars(panel: Panel, scale: LogScale, results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    """Each with its label."""
    crowds = sorted({result.users for result in results})
    room = (RIGHT - LEFT) / max(1, len(crowds))
    for number, users in enumerate(crowds):
        middle = LEFT + (number + 0.5) * room
        yield "", text(middle, panel.bottom + 20, f"{users:,}", anchor="middle")
    for result in results:
        start = LEFT + (crowds.index(result.users) + 0.5) * room - 2 * BAR * room
        number = MODES.index(result.mode)
        x, width = start + number * BAR * room, BAR * room - 3
        y, label = scale.place(panel.value(result)), panel.label(result)
        edge = " refused" if result.refused else ""
        about = f"{result.users:,} people, {result.mode}: {label}, {result.refused:,} refused"
        yield (
            rect(x, y, width, panel.bottom - y, f"mode{number}{edge}", about=about),
            text(x + width / 2, y - 5, label, kind="small label", anchor="middle"),
        )


def _description(results: Sequence[Result]) -> str:
    return "; ".join(
        f"{result.users} people, {result.mode}: {result.avg_rps:g} requests/s, {result.refused} refused, "
        f"99 % told within {told_within(result)} s"
        for result in results
    )
