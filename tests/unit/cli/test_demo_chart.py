"""The chart of the demo: both bots by the second, from what their Telegrams logged."""

from xml.etree import ElementTree as ET

import pytest

from tidegate.cli.demo.chart import BotTimeline, chart
from tidegate.sim.telegram.crowd import HeardReply
from tidegate.sim.telegram.request_log import LoggedCall
from unit.cli.test_demo_report import report

SVG = "{http://www.w3.org/2000/svg}"
BEGAN = 1_000_000.0


def call(at: float, status: int = 200, method: str = "sendMessage") -> LoggedCall:
    return LoggedCall(BEGAN + at, 42, 1, method, status, None, "")


def test_calls_are_counted_by_the_second_and_by_what_became_of_them() -> None:
    calls = [call(0.1), call(0.2, 429), call(1.9), call(1.95), call(1.0, method="getUpdates"), call(2.1)]

    timeline = BotTimeline.of(calls, [HeardReply(BEGAN + 1.5, 0.3)], began=BEGAN, seconds=2)

    assert timeline == ([1, 2], [1, 0], [HeardReply(1.5, 0.3)])  # what came after the end is left out


@pytest.mark.parametrize("replies", [[HeardReply(3.0, 0.1), HeardReply(7.9, 7.4)], []])
def test_the_chart_shows_each_second_and_each_reply_of_both_bots(replies: list[HeardReply]) -> None:
    naive = BotTimeline([20] * 8, [25] * 8, replies)
    gated = BotTimeline([29] * 8, [0] * 8, replies)

    shapes = ET.fromstring(chart(report(), [naive, gated]))  # noqa: S314  (our own)

    words = [text.text or "" for text in shapes.iter(f"{SVG}text")]
    assert "naive: sends, and retries: 45 % refused" in words
    assert "with Tidegate: 0 % refused" in words
    abouts = [about.text for about in shapes.iter(f"{SVG}title")]
    assert abouts.count("second 8: 20 delivered, 25 refused") == 2  # two parts of one bar
    assert len(list(shapes.iter(f"{SVG}circle"))) == 2 * len(replies)
    waits = [word for word in words if word.startswith("each reply")]
    assert all(word.endswith("none came") for word in waits) is not bool(replies)


def test_every_shape_is_inside_the_picture() -> None:
    lines = [BotTimeline([500] * 8, [900] * 8, [HeardReply(8.0, 60.0)])] * 2

    shapes = ET.fromstring(chart(report(), lines))  # noqa: S314  (our own)

    heights = [float(rect.get("y", 0)) for rect in shapes.iter(f"{SVG}rect")]
    dots = [float(dot.get("cy", 0)) for dot in shapes.iter(f"{SVG}circle")]
    assert min(heights) >= 0
    assert min(dots) >= 0
