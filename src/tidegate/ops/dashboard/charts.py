"""Charts as SVG, drawn by the server without scripts, each with a text that says what it shows. Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

WIDTH, HEIGHT = 600, 120
MARGIN: Final = 4.0
BAR_GAP: Final = 0.15  # of the width of a bar
NICE_STEPS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)  # half of each is round, too


class Series(NamedTuple):
    """One line of a chart; `name` is a word for its colour in the style sheet."""

    name: str
    values: Sequence[float]


def nice_top(value: float) -> float:
    """Return the smallest round number that is not below the value."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(step * power for step in NICE_STEPS if step * power >= value)


def chart_top(series: Sequence[Series], limit: float | None = None) -> float:
    """Return the value at the upper edge of a line chart."""
    return nice_top(max([limit or 0.0, *(value for one in series for value in one.values)], default=1.0))


def line_chart(series: Sequence[Series], title: str, *, slots: int, limit: float | None = None) -> Markup:
    """Draw lines over time, the latest at the right edge; `slots` is how many values the width holds.

    `limit`: a value that is always on the chart, drawn as a dashed line.
    """
    highest = chart_top(series, limit)
    parts = [_grid()]
    for number, one in enumerate(series):
        if len(one.values) > 1:
            points = _points(one.values, slots, highest)
            if number == 0:
                parts.append(_area(one.name, points))
            parts.append(Markup('<polyline class="line {}" points="{}"/>').format(one.name, points))
    if limit is not None:
        y = _y(limit, highest)
        parts.append(
            Markup('<line class="limit" x1="0" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(WIDTH, y, y)
        )
    return _svg("chart", WIDTH, HEIGHT, title, Markup().join(parts))


def sparkline(values: Sequence[float], title: str, *, slots: int, top: float) -> Markup:
    """Draw a small line without axes."""
    points = _points(values, slots, max(top, *values) if values else top)
    line = Markup('<polyline class="line sends" points="{}"/>').format(points)
    return _svg("spark", WIDTH, HEIGHT, title, _area("sends", points) + line if len(values) > 1 else Markup())


def bar_chart(values: Sequence[float], labels: Sequence[str], title: str) -> Markup:
    """Draw a bar for each value; each says its label and value when it is pointed at."""
    highest = nice_top(max(values, default=1.0))
    wide = WIDTH / max(1, len(values))
    form = Markup(
        '<rect class="bar" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}">'
        "<title>{}: {:g}</title></rect>"
    )
    bars = []
    for at, (value, label) in enumerate(zip(values, labels, strict=True)):
        y = _y(value, highest)
        x, width = at * wide + wide * BAR_GAP / 2, wide * (1 - BAR_GAP)
        bars.append(form.format(x, y, width, HEIGHT - MARGIN - y, label, value))
    return _svg("chart", WIDTH, HEIGHT, title, Markup().join(bars))


def gauge(value: float, limit: float, nominal: float, title: str) -> Markup:
    """Draw how much of a limit is used: a bar, the limit now, and the nominal one where that is higher."""
    whole = max(limit, nominal, value, 1e-9) / 100
    tone = "over" if value > limit * 1.05 else "full" if value > 0.9 * limit else "calm"
    # In shares of the width and without a view box, which would draw the ends out with the width.
    return Markup(
        '<svg class="gauge" role="img" aria-label="{}">'
        '<rect class="track" y="6" width="100%" height="12" rx="6"/>'
        '<rect class="fill {}" y="6" width="{:.1f}%" height="12" rx="6"/>'
        '<line class="mark" x1="{allowed:.1f}%" x2="{allowed:.1f}%" y1="1" y2="23"/></svg>'
    ).format(title, tone, value / whole, allowed=min(99.8, limit / whole))


def _svg(kind: str, width: int, height: int, title: str, content: Markup) -> Markup:
    return Markup(
        '<svg class="{}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(kind, width, height, title, content)


def _grid() -> Markup:
    lines = (HEIGHT - MARGIN, HEIGHT / 2, MARGIN)
    form = Markup('<line class="grid" x1="0" x2="{}" y1="{:g}" y2="{:g}"/>')
    return Markup().join(form.format(WIDTH, y, y) for y in lines)


def _area(name: str, points: str) -> Markup:
    """The area below a line, from its first point to its last."""
    first, last = (
        points.split(maxsplit=1)[0].partition(",")[0],
        points.rsplit(maxsplit=1)[-1].partition(",")[0],
    )
    bottom = HEIGHT - MARGIN
    form = Markup('<polygon class="area {}" points="{},{:g} {} {},{:g}"/>')
    return form.format(name, first, bottom, points, last, bottom)


def _points(values: Sequence[float], slots: int, highest: float) -> str:
    first = slots - len(values)
    step = WIDTH / max(1, slots - 1)
    return " ".join(f"{(first + n) * step:.1f},{_y(value, highest):.1f}" for n, value in enumerate(values))


def _y(value: float, highest: float) -> float:
    return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * min(1.0, max(0.0, value / highest))
