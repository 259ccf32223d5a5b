"""Draws the pictures of the documentation: docs/pacing.svg, docs/states.svg, docs/load-balancer.svg.

Run it with `make drawings`. The slots of the first picture are those of `pacing/window.py`, which is asked at
each call. A test compares the files.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from tidegate.cli.svg import svg_document, svg_line, svg_rect, svg_text
from tidegate.model import Rate
from tidegate.pacing.window import Window

DOCS: Final = Path(__file__).parents[1] / "docs"
ARROW: Final = 6


def drawings() -> dict[str, str]:
    """Return every picture by the name of its file."""
    return {
        "pacing.svg": pacing_picture(),
        "states.svg": states_picture(),
        "load-balancer.svg": balancer_picture(),
    }


class Call(NamedTuple):
    slot: int
    claimed: float
    counted: float  # by the server, somewhere on the way
    answered: float


RATE: Final = Rate(3, 1)
SHOWN: Final = 3.6  # seconds
# The way there and the way back of each call, in seconds: unequal, as they are.
TRIPS: Final = (
    (0.04, 0.10),
    (0.22, 0.05),
    (0.05, 0.20),
    (0.18, 0.06),
    (0.03, 0.05),
    (0.10, 0.22),
    (0.05, 0.06),
)


def calls_of_a_full_window() -> list[Call]:
    """Return the calls that a window lets go when there is always one more to send."""
    window, calls, now = Window.of(RATE), list[Call](), 0.0
    in_flight: list[tuple[float, int]] = []  # when answered, which slot
    slots = list(range(RATE.count))
    cooling: list[tuple[float, int]] = []
    while now < SHOWN:
        while in_flight and in_flight[0][0] <= now:
            answered, slot = heapq.heappop(in_flight)
            window.answered(answered)
            heapq.heappush(cooling, (answered + RATE.seconds, slot))
        while cooling and cooling[0][0] <= now:
            slots.append(heapq.heappop(cooling)[1])
        if window.fits(now, 1):
            there, back = TRIPS[len(calls) % len(TRIPS)]
            window.take()
            call = Call(min(slots), now, now + there, now + there + back)
            slots.remove(call.slot)
            heapq.heappush(in_flight, (call.answered, call.slot))
            calls.append(call)
            continue
        wait = window.wait(now)
        now = min(now + wait, in_flight[0][0] if in_flight else now + wait)
    return calls


def fullest_window(calls: Sequence[Call]) -> tuple[float, int]:
    """Return where the server's fullest window begins, and how many calls it holds."""
    counted = sorted(call.counted for call in calls)
    return max(
        ((first, sum(first <= at < first + RATE.seconds for at in counted)) for first in counted),
        key=lambda found: found[1],
    )


LEFT, TOP, SECOND, ROW = 150, 84, 190, 44


def pacing_picture() -> str:
    calls = calls_of_a_full_window()
    begin, most = fullest_window(calls)

    def x(seconds: float) -> float:
        return LEFT + seconds * SECOND

    shapes = [
        svg_text(
            20, 32, "A limit of 3 in 1 s: each call holds a slot until 1 s after its answer", kind="title"
        ),
        svg_text(20, 54, "dark: on the way · light: the slot cools · red: counted by Telegram", kind="quiet"),
    ]
    right = x(SHOWN)
    for slot in range(RATE.count):
        y = TOP + slot * ROW
        shapes += [svg_text(20, y + 19, f"slot {slot + 1}"), svg_line(LEFT, y + 14, right, y + 14, "grid")]
    for call in calls:
        y = TOP + call.slot * ROW
        cool = min(x(call.answered + RATE.seconds), right)
        light = svg_rect(x(call.answered), y + 6, max(0, cool - x(call.answered)), 16, "mode3")
        shapes.append(f'<g fill-opacity="0.25">{light}</g>')
        shapes.append(
            svg_rect(x(call.claimed), y + 2, min(x(call.answered), right) - x(call.claimed), 24, "mode3")
        )
    axis = TOP + RATE.count * ROW + 30
    shapes += [svg_text(20, axis + 5, "at Telegram's end"), svg_line(LEFT, axis, right, axis, "grid")]
    shapes += [
        svg_line(x(call.counted), axis - 12, x(call.counted), axis + 12, "refused")
        for call in calls
        if call.counted < SHOWN
    ]
    shapes += [
        svg_line(x(begin), axis + 22, x(begin + RATE.seconds), axis + 22, "limit"),
        svg_text(
            x(begin) + 4,
            axis + 40,
            f"the fullest window of 1 s holds {most}, and no window holds more",
            kind="small",
        ),
    ]
    shapes += [
        svg_text(x(second), axis + 66, f"{second} s", anchor="middle", kind="quiet") for second in range(4)
    ]
    return svg_document(
        int(right) + 24,
        axis + 84,
        title="Slots that cool down",
        description=f"{len(calls)} calls; the fullest window of 1 s at Telegram holds {most} of 3 allowed",
        shapes=shapes,
    )


class Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float
    text: str
    kind: str = "mode3"

    def drawn(self) -> Iterator[str]:
        yield f'<g fill-opacity="0.22">{svg_rect(self.x, self.y, self.width, self.height, self.kind)}</g>'
        lines = self.text.split("\n")
        first = self.y + self.height / 2 + 5 - 8 * (len(lines) - 1)
        for number, line in enumerate(lines):
            kind = "" if number == 0 else "small quiet"
            yield svg_text(self.x + self.width / 2, first + 17 * number, line, anchor="middle", kind=kind)


def arrow(
    points: Sequence[tuple[float, float]], label: str = "", *, at: tuple[float, float] | None = None
) -> str:
    """Draw a line with a head at its last point, and a label beside its middle."""
    parts = [svg_line(*first, *second, "arrow") for first, second in pairwise(points)]
    (x1, y1), (x2, y2) = points[-2], points[-1]
    length = max(abs(x2 - x1), abs(y2 - y1), 1)
    dx, dy = (x2 - x1) / length * ARROW, (y2 - y1) / length * ARROW
    corners = (
        (x2, y2),
        (x2 - 1.5 * dx - 0.7 * dy, y2 - 1.5 * dy + 0.7 * dx),
        (x2 - 1.5 * dx + 0.7 * dy, y2 - 1.5 * dy - 0.7 * dx),
    )
    parts.append(f'<polygon class="head" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}"/>')
    if label:
        x, y = at or ((x1 + x2) / 2, (y1 + y2) / 2 - 6)
        parts.append(svg_text(x, y, label, anchor="middle", kind="small label"))
    return "\n".join(parts)


ARROWS: Final = (
    "<style>.arrow { stroke: #5b6875; stroke-width: 1.5 } .head { fill: #5b6875 }"
    " @media (prefers-color-scheme: dark) { .arrow { stroke: #9fb0bf } .head { fill: #9fb0bf } }</style>"
)


def picture(title: str, width: int, height: int, boxes: Sequence[Box], arrows: Sequence[str]) -> str:
    shapes = [ARROWS, *arrows, *(shape for box in boxes for shape in box.drawn())]
    names = ", ".join(box.text.partition("\n")[0] for box in boxes)
    return svg_document(width, height, title=title, description=names, shapes=shapes)


def states_picture() -> str:
    """The states of `model.State`, and what leads from one to another."""
    boxes = (
        Box(30, 120, 130, 50, "queued\nwaits for its turn"),
        Box(360, 120, 130, 50, "sending\nheld by a lease"),
        Box(700, 30, 150, 46, "delivered", "mode2"),
        Box(360, 250, 130, 50, "retry\nwaits for a time"),
        Box(700, 122, 150, 46, "parked\na person decides", "mode0"),
        Box(700, 214, 150, 46, "dead\nwith a reason", "mode0"),
        Box(30, 320, 130, 46, "expired", "mode1"),
        Box(190, 320, 130, 46, "cancelled", "mode1"),
        Box(350, 360, 150, 46, "replaced", "mode1"),
    )
    arrows = (
        arrow(((95, 60), (95, 120)), "put", at=(118, 86)),
        arrow(((160, 138), (360, 138)), "claim: a slot in each limit"),
        arrow(((360, 158), (160, 158)), "429, lease ran out", at=(260, 174)),
        arrow(((490, 130), (560, 130), (560, 53), (700, 53)), "answered: ok", at=(630, 46)),
        arrow(((490, 145), (700, 145)), "no answer (park), 5 crashes", at=(596, 138)),
        arrow(((490, 160), (580, 160), (580, 237), (700, 237)), "refused for good", at=(640, 230)),
        arrow(((425, 170), (425, 250)), "5xx, no answer (resend)", at=(425, 212)),
        arrow(((360, 275), (110, 275), (110, 170)), "it is time", at=(235, 268)),
        arrow(((80, 170), (80, 320)), "deadline", at=(60, 250)),
        arrow(((140, 170), (140, 230), (255, 230), (255, 320)), "cancel", at=(200, 224)),
        arrow(((150, 170), (150, 205), (335, 205), (335, 383), (350, 383)), "newer, same key", at=(270, 199)),
        arrow(
            ((775, 122), (775, 100), (600, 100), (600, 15), (60, 15), (60, 120)),
            "replay, also of the dead",
            at=(330, 10 + 18),
        ),
    )
    return picture("The states of a message", 880, 424, boxes, arrows)


def balancer_picture() -> str:
    boxes = (
        Box(20, 120, 120, 60, "Telegram", "mode1"),
        Box(200, 120, 130, 60, "load balancer\nTLS, /readyz", "mode1"),
        Box(400, 30, 190, 84, "machine 1\nbot: webhook, handlers,\ndelivery, reminders"),
        Box(400, 186, 190, 84, "machine 2\nthe same, ready"),
        Box(670, 40, 180, 80, "Redis\nqueue, limits, updates,\nconversations", "mode2"),
        Box(670, 190, 180, 64, "PostgreSQL\nreminders, jobs, history", "mode2"),
    )
    arrows = (
        arrow(((140, 140), (200, 140)), "updates", at=(170, 132)),
        arrow(((330, 140), (365, 140), (365, 72), (400, 72))),
        arrow(((330, 160), (365, 160), (365, 228), (400, 228))),
        arrow(((590, 72), (670, 72))),
        arrow(((590, 100), (630, 100), (630, 212), (670, 212))),
        arrow(((590, 214), (610, 214), (610, 92), (670, 92))),
        arrow(((590, 236), (670, 236))),
        arrow(((495, 270), (495, 310), (80, 310), (80, 180)), "calls, paced together", at=(280, 303)),
        arrow(((495, 30), (495, 14), (80, 14), (80, 120)), "calls, paced together", at=(280, 8 + 20)),
    )
    return picture("Two instances behind a load balancer", 880, 330, boxes, arrows)


if __name__ == "__main__":
    for name, text in drawings().items():
        (DOCS / name).write_text(text)
