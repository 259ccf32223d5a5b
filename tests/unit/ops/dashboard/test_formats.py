"""How pages write numbers, times and states."""

import html
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from tidegate.model import State
from tidegate.ops.dashboard.formats import (
    TONES,
    badge,
    clock_time,
    duration,
    lines,
    number,
    plural,
    pretty,
    rate,
)

DASH = "\N{EN DASH}"  # what is not known
UNITS = {"ms": 0.001, "s": 1, "min": 60, "h": 3_600, "d": 86_400}


def seconds_of(text: str) -> float:
    return sum(float(count) * UNITS[unit] for count, unit in re.findall(r"([\d.]+) (ms|s|min|h|d)\b", text))


@given(seconds=st.floats(min_value=0, max_value=1e9))
def test_a_duration_reads_as_what_it_is_but_for_its_smallest_unit(seconds: float) -> None:
    text = duration(seconds)
    shown = seconds_of(text)
    smallest = min(UNITS[unit] for unit in re.findall(r"[a-z]+", text))
    assert abs(shown - seconds) <= smallest
    assert len(text) <= 12 or seconds > 1e8


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, DASH),
        (0, "0 s"),
        (0.0004, "1 ms"),
        (0.04, "40 ms"),  # a cycle of a poller took 0 s, as the page said
        (0.44, "0.4 s"),
        (3, "3 s"),
        (12.4, "12 s"),
        (119, "119 s"),
        (120, "2 min"),
        (3_600, "1 h"),
        (7_500, "2 h 5 min"),
        (354_000, "4 d 2 h"),
        (86_400, "1 d"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@given(value=st.floats(min_value=-1e12, max_value=1e12))
def test_a_number_reads_as_what_it_is_but_for_a_rounded_decimal(value: float) -> None:
    text = number(value)
    assert float(text.replace(",", "")) == pytest.approx(value, abs=0.051 if abs(value) < 100 else 0.51)


def test_numbers_and_words() -> None:
    assert [number(one) for one in (None, 0, 12_345, 0.5, 99.95, 1_234.5)] == [
        DASH,
        "0",
        "12,345",
        "0.5",
        "100.0",
        "1,234",
    ]
    assert [plural(one, "message") for one in (0, 1, 2, 1_000)] == [
        "0 messages",
        "1 message",
        "2 messages",
        "1,000 messages",
    ]
    assert plural(2, "reply", "replies") == "2 replies"
    assert [rate(one) for one in ("1000/1", "20/60", "3/5", "none")] == [
        "1,000 a second",
        "20 a minute",
        "3 in 5 s",
        "none",
    ]


@given(text=st.text(max_size=40))
def test_a_text_is_shown_as_it_is_and_breaks_where_it_did(text: str) -> None:
    shown = lines(text)
    assert [html.unescape(line) for line in shown.split("<br>")] == (text.splitlines() or [""])
    assert not re.search(r"<(?!br>)", shown)


@given(word=st.text(max_size=20))
def test_a_badge_says_its_state_whatever_it_is(word: str) -> None:
    found = re.fullmatch(r'<span class="badge [a-z]+">(.*)</span>', badge(word), re.DOTALL)
    assert found is not None
    assert html.unescape(found[1]) == word
    assert "<" not in found[1]


def test_every_state_of_a_message_has_a_colour() -> None:
    assert {state.value for state in State} <= TONES.keys()


@given(at=st.none() | st.floats(allow_nan=False), style=st.sampled_from(["moment", "time", "ago"]))
def test_any_moment_can_be_shown(at: float | None, style: str) -> None:
    shown = clock_time(at, style)
    assert isinstance(shown, Markup)
    assert shown == DASH or shown.startswith('<time datetime="')


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_json_to_read_is_json(value: object) -> None:
    assert json.loads(pretty(value)) == value
