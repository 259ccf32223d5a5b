"""A flow as an SVG picture, drawn without any other program. Pure."""

import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from tidegate.flows.diagram import notes_of, titles_of, transition_texts
from tidegate.flows.layered_graph import Box, DrawnEdge, Edge, Layout, Point, Size, lay_out

if TYPE_CHECKING:
    from tidegate.flows.flow import Flow

MARGIN: Final = 14.0
START_HEIGHT: Final = 30.0  # above the picture: where the arrow to the initial state begins
NAME_SIZE, TEXT_SIZE = 13.0, 11.0  # of letters
LINE_HEIGHT: Final = 1.3  # of the size of letters
LETTER_WIDTH: Final = 0.58  # of their size, on the safe side: fonts differ
WIDE_LETTER: Final = 1.1  # likewise, for those of East Asia, and pictures
NODE_LETTERS, LABEL_LETTERS, NOTE_LETTERS = 22, 24, 70  # in a line
NODE_PADDING: Final = 10.0
FEWEST_NODE_WIDTH: Final = 110.0
MOST_LINES: Final = 6  # of one text; more is cut
ARROW: Final = 7.0
COUNT_TEXT: Final = "{} here"

# For a picture that stands alone: the colours of a page are not there.
STYLE: Final = """
svg { font-family: system-ui, sans-serif; background: #fff; color: #16202a; }
.node rect { fill: #eef3f6; stroke: #7c8a95; }
.node.initial rect { stroke: #0b7285; stroke-width: 2; }
.node.final rect { fill: #e3f5e8; stroke: #1f7a3d; }
.node text, .label, .note { fill: #16202a; }
.node .more, .note { fill: #566370; }
.node .count { fill: #1c5fb0; font-weight: 700; }
.way { fill: none; stroke: #7c8a95; }
.way.back { stroke-dasharray: 5 3; }
.arrow, .start { fill: #7c8a95; }
.label { paint-order: stroke; stroke: #fff; stroke-width: 4; stroke-linejoin: round; }
"""


class FlowPicture(NamedTuple):
    """Where everything of a flow is drawn, and what is written there."""

    layout: Layout
    texts: Mapping[str, "NodeText"]
    labels: Mapping[Edge, tuple[str, ...]]  # lines, for all transitions between two states
    notes: tuple[str, ...]  # lines


class NodeText(NamedTuple):
    name: tuple[str, ...]  # lines
    more: tuple[str, ...]

    @property
    def size(self) -> Size:
        """The size of its box, with room for how many are there."""
        texts = [_width(line, NAME_SIZE) for line in self.name] + [
            _width(line, TEXT_SIZE) for line in self.more
        ]
        height = NAME_SIZE * len(self.name) + TEXT_SIZE * (len(self.more) + 1)
        wide = max(FEWEST_NODE_WIDTH, *texts) + 2 * NODE_PADDING
        return Size(wide, LINE_HEIGHT * height + 2 * NODE_PADDING)


def picture_of(flow: "Flow") -> FlowPicture:
    """Return the picture of a flow, as it is declared, even if it has problems.

    Transitions to states that do not exist are left out.
    """
    flow = flow.flat
    told_once = notes_of(flow)
    texts = {}
    for state, (name, *more) in zip(flow.states, map(titles_of, flow.states), strict=True):
        lines = tuple(line for text in more for line in _wrapped(text, NODE_LETTERS))
        texts[state.name] = NodeText(tuple(_wrapped(name, NODE_LETTERS)), lines)
    told: dict[Edge, list[str]] = {}
    for state in flow.states:
        for target, text in transition_texts(flow, state):
            if target in texts:
                told.setdefault((state.name, target), []).append(text)
    labels = {
        edge: tuple(line for text in some for line in _wrapped(text, LABEL_LETTERS))
        for edge, some in told.items()
    }
    sizes = {name: text.size for name, text in texts.items()}
    layout = lay_out(sizes, {edge: _label_size(lines) for edge, lines in labels.items()}, flow.initial)
    notes = tuple(_wrapped(f"In every state: {', '.join(told_once)}.", NOTE_LETTERS)) if told_once else ()
    return FlowPicture(layout, texts, labels, notes)


def draw_svg(flow: "Flow", counts: Mapping[str, int] | None = None, *, styled: bool = True) -> str:
    """Return the flow as SVG; `counts`: how many people are in each state, written on the states.

    Without `styled` it has classes, and its colours come from the style sheet of the page around it.
    """
    flow = flow.flat
    picture = picture_of(flow)
    layout = picture.layout
    noted = max((_width(line, TEXT_SIZE) for line in picture.notes), default=0.0)
    width = math.ceil(max(layout.width, noted) + 2 * MARGIN)
    height = math.ceil(
        layout.height + START_HEIGHT + 2 * MARGIN + LINE_HEIGHT * TEXT_SIZE * (len(picture.notes) + 1)
    )
    left = (width - layout.width) / 2
    parts = [
        _opening(width, height),
        f"<title>{_escaped(f'Flow {flow.name}')}</title>",
        f"<desc>{_escaped(' '.join(_sentences(flow, picture, counts)))}</desc>",
        *([f"<style>{STYLE}</style>"] if styled else []),
        f'<g transform="translate({left:.1f} {MARGIN + START_HEIGHT:.1f})">',
        *(part for line in layout.lines for part in _drawn_line(line)),
        *(part for state in flow.states for part in _drawn_node(flow, state.name, picture, counts)),
        *(_text(picture.labels[line.source, line.target], line.label, "label") for line in layout.lines),
        "</g>",
        *_drawn_notes(picture.notes, height),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _opening(width: int, height: int) -> str:
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="flow" {size} role="img" font-size="{TEXT_SIZE:g}">'
    )


def _drawn_node(
    flow: "Flow", name: str, picture: FlowPicture, counts: Mapping[str, int] | None
) -> Iterator[str]:
    box, text = picture.layout.nodes[name], picture.texts[name]
    is_first, is_final = name == flow.initial, flow.by_name[name].final
    kinds = " ".join(["node", *["initial"] * is_first, *["final"] * is_final])
    yield f"<g class={quoteattr(kinds)} data-state={quoteattr(_printable(name))}>"
    yield _rect(box)
    if is_final:
        yield _rect(Box(box.x, box.y, box.width - 6, box.height - 6))
    if is_first:
        tip = Point(box.x, box.top)
        yield f'<circle class="start" cx="{tip.x:.1f}" cy="{tip.y - START_HEIGHT + 6:.1f}" r="5"/>'
        yield f'<path class="way" d="M{tip.x:.1f} {tip.y - START_HEIGHT + 10:.1f}V{tip.y:.1f}"/>'
        yield _arrow(tip, 0.0, 1.0)
    y = box.top + NODE_PADDING
    for line in text.name:
        y += LINE_HEIGHT * NAME_SIZE
        yield _line_of_text(line, box.x, y, "name", NAME_SIZE)
    for line in text.more:
        y += LINE_HEIGHT * TEXT_SIZE
        yield _line_of_text(line, box.x, y, "more", TEXT_SIZE)
    if counts is not None and (count := counts.get(name, 0)):
        y += LINE_HEIGHT * TEXT_SIZE
        yield _line_of_text(COUNT_TEXT.format(f"{count:,}"), box.x, y, "count", TEXT_SIZE)
    yield "</g>"


def _drawn_line(line: DrawnEdge) -> Iterator[str]:
    ends = f"data-from={quoteattr(_printable(line.source))} data-to={quoteattr(_printable(line.target))}"
    kind = "way back" if line.leads_back else "way"
    first, *rest = line.points
    if line.source == line.target:
        _, far, low, last = line.points
        d = f"M{_at(first)}C{_at(far)} {_at(low)} {_at(last)}"
        dx, dy = -1.0, 0.0
    else:
        d = f"M{_at(first)}"
        before = first
        for point in rest:
            middle = (before.y + point.y) / 2
            straight = abs(before.x - point.x) < 0.05  # noqa: PLR2004
            curve = f"C{before.x:.1f} {middle:.1f} {point.x:.1f} {middle:.1f} {_at(point)}"
            d += f"V{point.y:.1f}" if straight else curve
            before = point
        dx, dy = 0.0, -1.0 if line.leads_back else 1.0
    yield f'<path class="{kind}" {ends} d="{d}"/>'
    yield _arrow(line.points[-1], dx, dy)


def _arrow(tip: Point, dx: float, dy: float) -> str:
    """Return an arrow head; (dx, dy) is where it points to."""
    base, side = Point(tip.x - ARROW * dx, tip.y - ARROW * dy), ARROW / 2
    one = Point(base.x - side * dy, base.y + side * dx)
    other = Point(base.x + side * dy, base.y - side * dx)
    return f'<path class="arrow" d="M{_at(tip)}L{_at(one)}L{_at(other)}Z"/>'


def _rect(box: Box) -> str:
    place = f'x="{box.left:.1f}" y="{box.top:.1f}"'
    return f'<rect {place} width="{box.width:.1f}" height="{box.height:.1f}" rx="8"/>'


def _text(lines: Sequence[str], box: Box, kind: str) -> str:
    top = box.y - LINE_HEIGHT * TEXT_SIZE * len(lines) / 2
    return "".join(
        _line_of_text(line, box.x, top + LINE_HEIGHT * TEXT_SIZE * (number + 0.8), kind, TEXT_SIZE)
        for number, line in enumerate(lines)
    )


def _line_of_text(line: str, x: float, y: float, kind: str, size: float) -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="middle">'
        f"{_escaped(line)}</text>"
    )


def _drawn_notes(notes: Sequence[str], height: float) -> Iterator[str]:
    top = height - MARGIN - LINE_HEIGHT * TEXT_SIZE * (len(notes) - 1)
    for number, line in enumerate(notes):
        y = top + LINE_HEIGHT * TEXT_SIZE * number
        place = f'x="{MARGIN:g}" y="{y:.1f}" font-size="{TEXT_SIZE:g}"'
        yield f'<text class="note" {place}>{_escaped(line)}</text>'


def _sentences(flow: "Flow", picture: FlowPicture, counts: Mapping[str, int] | None) -> Iterator[str]:
    """Yield what the picture shows, for those who do not see it."""
    yield f"It begins in {flow.initial}."
    for (source, target), lines in picture.labels.items():
        yield f"{source} leads to {target}: {' '.join(lines)}."
    if finals := [state.name for state in flow.states if state.final]:
        yield f"It ends in {', '.join(finals)}."
    for state in flow.states:
        if counts is not None and (count := counts.get(state.name, 0)):
            yield f"{count:,} in {state.name}."


def _label_size(lines: Sequence[str]) -> Size:
    wide = max((_width(line, TEXT_SIZE) for line in lines), default=0.0)
    return Size(wide + 6, LINE_HEIGHT * TEXT_SIZE * len(lines) + 4)


def _width(text: str, size: float) -> float:
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return size * (LETTER_WIDTH * (len(text) - wide) + WIDE_LETTER * wide)


def _wrapped(text: str, letters: int) -> list[str]:
    """Cut a text into lines of about so many letters, between words where there are some."""
    lines: list[str] = [""]
    for word in text.split():
        pieces = [word[at : at + letters] for at in range(0, len(word), letters)]
        for piece in pieces:
            if lines[-1] and len(lines[-1]) + 1 + len(piece) > letters:
                lines.append(piece)
            else:
                lines[-1] = f"{lines[-1]} {piece}".strip()
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], f"{lines[MOST_LINES - 1][: letters - 1]}…"]
    return lines


def _at(point: Point) -> str:
    return f"{point.x:.1f} {point.y:.1f}"


def _escaped(text: str) -> str:
    return escape(_printable(text))


def _printable(text: str) -> str:
    """Return a text without the characters that XML does not allow."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
