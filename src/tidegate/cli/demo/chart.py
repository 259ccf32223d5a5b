"""The comparison of the demo as an SVG chart: what Telegram answered, and how long people waited."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

from tidegate.cli.svg import svg_document, svg_line, svg_rect, svg_text
from tidegate.sim.telegram.crowd import HeardReply
from tidegate.sim.telegram.request_log import LoggedCall

TOO_MANY_REQUESTS = 429


class BotTimeline(NamedTuple):
    """The sends of one bot by the second, refused or not, and how long its replies took."""

    delivered: Sequence[int]
    refused: Sequence[int]
    replies: Sequence[HeardReply]  # `at` counts from the start

    @classmethod
    def of(
        cls, calls: Iterable[LoggedCall], replies: Iterable[HeardReply], *, began: float, seconds: int
    ) -> Self:
        delivered, refused = [0] * seconds, [0] * seconds
        for call in calls:
            second = int(call.at - began)
            if call.method == "sendMessage" and 0 <= second < seconds:
                (refused if call.status == TOO_MANY_REQUESTS else delivered)[second] += 1
        return cls(delivered, refused, [HeardReply(at - began, waited) for at, waited in replies])


WIDTH, HEIGHT = 900, 380
PANEL = 390  # pixels wide
BARS_TOP, BARS_BOTTOM = 112, 214
DOTS_TOP, DOTS_BOTTOM = 262, 340


def chart(report: dict[str, Any], timelines: Sequence[BotTimeline]) -> str:
    """Return a self-contained SVG file: the naive bot on the left, the one with Tidegate on the right."""
    sides = (("naive: sends, and retries", report["naive"]), ("with Tidegate", report["tidegate"]))
    most = max(max(map(sum, zip(line.delivered, line.refused, strict=True)), default=1) for line in timelines)
    longest = max((reply.waited for line in timelines for reply in line.replies), default=1.0)
    about = f"a broadcast to {report['naive']['people']:,} people, and others who write and wait for a reply"
    shapes = [
        svg_text(40, 30, "The same work, the same limits: what Telegram answered", kind="title"),
        svg_text(40, 50, about, kind="quiet"),
    ]
    for number, ((name, side), line) in enumerate(zip(sides, timelines, strict=True)):
        left = 40 + number * (PANEL + 50)
        shapes += _bars(left, name, side, line, top=10 * math.ceil(max(most, side["limit_rps"]) / 10))
        shapes += _dots(left, side, line, seconds=report["seconds"], top=math.ceil(longest))
    return svg_document(
        WIDTH, HEIGHT, title="tidegate demo, measured", description=_description(sides), shapes=shapes
    )


def _bars(left: float, name: str, side: dict[str, Any], line: BotTimeline, *, top: int) -> Iterator[str]:
    scale, room = (BARS_BOTTOM - BARS_TOP) / top, PANEL / max(1, len(line.delivered))
    limit = BARS_BOTTOM - side["limit_rps"] * scale
    yield svg_text(left, 80, f"{name}: {100 * side['refused_share']:.0f} % refused")
    counts = f"{side['delivered']:,} delivered, {side['refused']:,} refused (429)"
    yield svg_text(left, 98, counts, kind="small quiet")
    yield svg_line(left, BARS_BOTTOM, left + PANEL, BARS_BOTTOM, "grid")
    for second, (delivered, refused) in enumerate(zip(line.delivered, line.refused, strict=True)):
        x, about = left + second * room, f"second {second + 1}: {delivered} delivered, {refused} refused"
        yield svg_rect(x, BARS_BOTTOM - delivered * scale, room - 2, delivered * scale, "mode2", about=about)
        above = BARS_BOTTOM - (delivered + refused) * scale
        yield svg_rect(x, above, room - 2, refused * scale, "too-many", about=about)
    yield svg_line(left, limit, left + PANEL, limit, "bound")
    words = f"{side['limit_rps']} a second allowed"
    yield svg_text(left + PANEL, limit - 5, words, kind="small label", anchor="end")


def _dots(left: float, side: dict[str, Any], line: BotTimeline, *, seconds: float, top: int) -> Iterator[str]:
    scale = (DOTS_BOTTOM - DOTS_TOP) / top
    median = f"median {side['p50_ms']:,.0f} ms" if line.replies else "none came"
    yield svg_text(left, 246, f"each reply by how long its person waited: {median}")
    for mark in (0, top):
        y = DOTS_BOTTOM - mark * scale
        yield svg_line(left, y, left + PANEL, y, "grid")
        yield svg_text(left - 6, y + 4, f"{mark} s", kind="small quiet", anchor="end")
    for at, waited in line.replies:
        x, y = left + PANEL * min(at / seconds, 1), DOTS_BOTTOM - waited * scale
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" class="mode3" fill-opacity="0.7"/>'
    yield svg_text(left + PANEL, DOTS_BOTTOM + 18, f"{seconds:g} s", kind="small quiet", anchor="end")


def _description(sides: Iterable[tuple[str, dict[str, Any]]]) -> str:
    return "; ".join(
        f"{name}: {side['delivered']} delivered, {side['refused']} refused, "
        f"replies took {side['p50_ms']:.0f} ms in the median, {side['p99_ms']:.0f} ms at the 99th percentile"
        for name, side in sides
    )
