"""A flow as an SVG picture, drawn without another program."""

from itertools import combinations
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from tidegate.flows import Button, Flow, State, Transition
from tidegate.flows.diagram import transition_texts
from tidegate.flows.drawing import draw_svg, picture_of
from tidegate.flows.layered_graph import Box, DrawnEdge, Point
from unit.flows.talk import shop

NAMES = [f"s{number}" for number in range(9)]
SVG = "{http://www.w3.org/2000/svg}"
TEXTS = st.text(max_size=60)


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    """Any flow, also one that leads nowhere, in circles, or to itself."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    transitions = st.builds(
        Transition, st.text(min_size=1, max_size=40), to=st.none() | st.sampled_from(NAMES)
    )
    buttons = st.builds(Button, st.text(min_size=1, max_size=40), to=st.sampled_from(NAMES))
    states = tuple(
        State(
            name,
            on=tuple(draw(st.lists(transitions, max_size=4))),
            buttons=((draw(buttons),),) if draw(st.booleans()) else (),
            final=draw(st.booleans()),
        )
        for name in names
    )
    return Flow(
        name=draw(st.text(min_size=1, max_size=20)), initial=draw(st.sampled_from(NAMES)), states=states
    )


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314  (our own)


def overlap(one: Box, other: Box) -> bool:
    apart = 0.01
    return (
        one.left < other.right - apart
        and other.left < one.right - apart
        and one.top < other.bottom - apart
        and other.top < one.bottom - apart
    )


def inside(point: Point, box: Box) -> bool:
    return box.left < point.x < box.right and box.top + 0.01 < point.y < box.bottom - 0.01


@given(flows())
def test_no_two_states_and_no_labels_overlap(flow: Flow) -> None:
    layout = picture_of(flow).layout
    boxes = [*layout.nodes.values(), *(line.label for line in layout.lines)]
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
    assert all(box.left >= -0.01 and box.right <= layout.width + 0.01 for box in boxes)
    assert all(box.top >= -0.01 and box.bottom <= layout.height + 0.01 for box in boxes)


@given(flows())
def test_no_line_crosses_a_state(flow: Flow) -> None:
    layout = picture_of(flow).layout
    for line in layout.lines:
        for point in along(line):
            assert not any(inside(point, box) for box in layout.nodes.values())


def along(line: DrawnEdge) -> list[Point]:
    """The points between which a line is straight or, in the gap between two layers, curved."""
    steps = [(a, b) for a, b in zip(line.points, line.points[1:], strict=False)]
    return [
        Point(a.x + (b.x - a.x) * part / 4, a.y + (b.y - a.y) * part / 4)
        for a, b in steps
        for part in range(5)
    ]


@given(flows())
def test_every_transition_is_drawn_with_its_label(flow: Flow) -> None:
    picture = picture_of(flow)
    drawn = {(line.source, line.target) for line in picture.layout.lines}
    for state in flow.states:
        for target, text in transition_texts(flow, state):
            if target in flow.by_name:
                assert (state.name, target) in drawn
                shown = "".join(picture.labels[state.name, target])
                assert all(word[:10] in shown for word in text.split()[:1]) or "…" in shown
    ways = parsed(draw_svg(flow)).findall(f".//{SVG}path[@data-from]")
    assert len(ways) == len(drawn)


@given(flows())
def test_lines_end_at_their_states(flow: Flow) -> None:
    layout = picture_of(flow).layout
    for line in layout.lines:
        if line.source == line.target:
            continue
        source, target = layout.nodes[line.source], layout.nodes[line.target]
        first, last = line.points[0], line.points[-1]
        assert source.left <= first.x <= source.right
        assert target.left <= last.x <= target.right
        edges = (source.top, target.bottom) if line.leads_back else (source.bottom, target.top)
        assert (round(first.y, 3), round(last.y, 3)) == (round(edges[0], 3), round(edges[1], 3))


@given(flows(), st.dictionaries(st.sampled_from(NAMES), st.integers(1, 10**9)))
def test_the_same_flow_looks_the_same_however_many_are_in_it(flow: Flow, counts: dict[str, int]) -> None:
    assert draw_svg(flow) == draw_svg(flow)
    plain, counted = parsed(draw_svg(flow)), parsed(draw_svg(flow, counts))
    assert plain.attrib == counted.attrib
    shown = [text.text for text in counted.iter(f"{SVG}text") if text.get("class") == "count"]
    assert sorted(shown, key=str) == sorted(
        f"{n:,} here" for name, n in counts.items() if name in flow.by_name
    )


def test_the_shop_is_drawn_with_its_ends_counts_and_a_description() -> None:
    svg = shop().build().svg({"waiting": 1200})
    root = parsed(svg)

    finals = [one.get("data-state") for one in root.iter(f"{SVG}g") if "final" in one.get("class", "")]
    assert finals == ["paid", "sorry", "cancelled"]
    assert "1,200 here" in svg
    assert root.findtext(f"{SVG}title") == "Flow shop"
    said = root.findtext(f"{SVG}desc") or ""
    assert "It begins in start." in said
    assert "1,200 in waiting." in said
    assert "start leads to email: contact [Tea] [Coffee] if is_open." in said


def test_hostile_names_are_escaped() -> None:
    evil = '"><script>alert(1)</script>'
    flow = Flow(name=evil, initial=evil, states=(State(evil, on=(Transition("text", to=evil),)),))
    svg = draw_svg(flow, {evil: 1})
    assert "<script" not in svg
    parsed(svg)
