"""Charts: whatever the numbers are, they stay in the picture, which says in words what it shows."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from tidegate.ops.dashboard.charts import (
    HEIGHT,
    WIDTH,
    Series,
    bar_chart,
    gauge,
    line_chart,
    nice_top,
    sparkline,
)

SLOTS = 60
values = st.floats(min_value=0, max_value=1e12, allow_subnormal=False)
many = st.lists(values, max_size=SLOTS)
HOSTILE = "\"><script>hacked=1</script>' onload=x"


def drawn(svg: Markup) -> ET.Element:
    """The picture, which a strict parser accepts, with nothing that a content policy would object to."""
    assert "style=" not in svg
    assert "nan" not in svg.lower().replace("<title>", "")
    return ET.fromstring(svg)  # noqa: S314  (our own)


def points(svg: ET.Element) -> list[tuple[float, float]]:
    text = " ".join(one.get("points", "") for one in svg.iter() if one.get("points"))
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", text)]


@given(value=values)
def test_the_top_of_a_chart_is_round_and_not_far_above_what_it_shows(value: float) -> None:
    top = nice_top(value)
    assert top >= value
    assert value == 0 or top <= 2.01 * value
    assert re.fullmatch(r"[1234568](\.0)?e[+-]\d+|0", f"{top:.1e}")


@given(lines=st.lists(many, min_size=1, max_size=3), limit=st.none() | values)
def test_lines_stay_in_the_chart_and_end_at_its_right_edge(
    lines: list[list[float]], limit: float | None
) -> None:
    series = [Series(f"name{number}", one) for number, one in enumerate(lines)]
    found = points(drawn(line_chart(series, "Sends", slots=SLOTS, limit=limit)))
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in found)
    if any(len(one) > 1 for one in lines):
        assert max(x for x, _ in found) == WIDTH


@given(value=values, limit=values, nominal=values)
def test_a_gauge_is_never_fuller_than_full_and_tells_a_limit_that_is_passed(
    value: float, limit: float, nominal: float
) -> None:
    svg = drawn(gauge(value, limit, nominal, "about"))
    track, fill = (one for one in svg if one.tag == "rect")
    full, used = (one.get("width", "").removesuffix("%") for one in (track, fill))
    assert float(used) <= float(full)
    assert ("over" in fill.get("class", "")) == (value > limit * 1.05)


@given(numbers=st.lists(values, max_size=30))
def test_bars_stay_in_the_chart_and_say_what_they_are(numbers: Sequence[float]) -> None:
    svg = drawn(bar_chart(numbers, [f"hour {at}" for at in range(len(numbers))], "By hour"))
    bars = [one for one in svg.iter("rect") if one.get("class") == "bar"]
    for bar in bars:
        x, y, wide, high = (float(bar.get(name, "nan")) for name in ("x", "y", "width", "height"))
        assert x >= 0
        assert x + wide <= WIDTH + 0.01
        assert high >= 0
        assert y + high <= HEIGHT
        assert (bar.findtext("title") or "").startswith("hour ")


@given(numbers=many, top=values)
def test_a_sparkline_stays_in_its_picture(numbers: list[float], top: float) -> None:
    found = points(drawn(sparkline(numbers, "about", slots=SLOTS, top=max(top, 1.0))))
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in found)


def test_words_of_a_chart_stay_words() -> None:
    for svg in (
        line_chart([Series(HOSTILE, [1, 2])], HOSTILE, slots=SLOTS),
        sparkline([1, 2], HOSTILE, slots=SLOTS, top=1),
        bar_chart([1.0], [HOSTILE], HOSTILE),
        gauge(1, 1, 1, HOSTILE),
    ):
        assert drawn(svg).get("aria-label") == HOSTILE
        assert "<script" not in svg
