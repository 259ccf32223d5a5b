"""A layered layout of a directed graph, from top to bottom: where boxes, labels and lines go. Pure.

After Sugiyama: edges that lead back are turned around, each node goes one layer below the longest path to
it, and layers are ordered by barycentres. A label has a place of its own in the layer between two nodes, so
that it covers neither a node nor another label; a line crosses a layer only where it has such a place.
"""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

Edge = tuple[str, str]  # from, to

SWEEPS: Final = 8  # over all layers, for their order; then as many for the places
NODE_GAP: Final = 28.0  # between two boxes of a layer
LINE_GAP: Final = 12.0  # beside a place of a line
LAYER_GAP: Final = 26.0
LINE_WIDTH: Final = 8.0  # of a place of a line without a label


class Size(NamedTuple):
    width: float
    height: float


class Box(NamedTuple):
    """`x`, `y`: its centre."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width / 2

    @property
    def top(self) -> float:
        return self.y - self.height / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height / 2


class Point(NamedTuple):
    x: float
    y: float


class DrawnEdge(NamedTuple):
    """An edge as it is drawn: from the source to the target, vertical at each of its points.

    `leads_back`: upwards. A loop has the points of its corners, beside its node.
    """

    source: str
    target: str
    points: tuple[Point, ...]
    label: Box
    leads_back: bool


class Layout(NamedTuple):
    width: float
    height: float
    nodes: Mapping[str, Box]
    lines: tuple[DrawnEdge, ...]


class _Place:
    """A node, or where a line crosses a layer."""

    def __init__(self, size: Size, gap: float, loop: float = 0.0) -> None:
        self.width = size.width + loop  # a loop is to the right of its node
        self.height = size.height
        self.loop = loop
        self.gap = gap
        self.x = self.y = 0.0  # the centre
        self.above: list[_Place] = []
        self.below: list[_Place] = []


class _Route(NamedTuple):
    """The places of an edge, from top to bottom: its upper node, lines and its label, its lower node."""

    edge: Edge
    places: list[_Place]
    label: _Place
    leads_back: bool


def lay_out(nodes: Mapping[str, Size], edges: Mapping[Edge, Size], first: str) -> Layout:
    """Place nodes, and the labels of edges, by their sizes. The same graph always looks the same."""
    loops = {source: size for (source, target), size in edges.items() if source == target}
    steps = [edge for edge in edges if edge[0] != edge[1]]
    turned = _turned(list(nodes), steps, first)
    ranks = _ranks(nodes, [edge[::-1] if edge in turned else edge for edge in steps])
    layers: list[list[_Place]] = [[] for _ in range(2 * max(ranks.values(), default=0) + 1)]
    places: dict[str, _Place] = {}
    for name, size in nodes.items():
        loop = loops[name].width + 3 * LINE_GAP if name in loops else 0.0
        height = max(size.height, loops[name].height) if name in loops else size.height
        places[name] = _Place(Size(size.width, height), NODE_GAP, loop)
        layers[2 * ranks[name]].append(places[name])
    routes = [
        _route(edge, edges[edge], places, ranks, layers=layers, leads_back=edge in turned) for edge in steps
    ]
    _order(layers)
    _place(layers)
    return _drawn(nodes, layers, places, routes, loops)


def _turned(nodes: Sequence[str], edges: Sequence[Edge], first: str) -> set[Edge]:
    """Return the edges that lead back to a node from which a walk has come: all cycles have one."""
    out: dict[str, list[str]] = {name: [] for name in nodes}
    for source, target in edges:
        out[source].append(target)
    entered: set[str] = set()
    way: set[str] = set()  # from where the walk has come
    turned: set[Edge] = set()
    for start in sorted(nodes, key=lambda name: name != first):
        if start in entered:
            continue
        entered.add(start)
        way.add(start)
        walk = [(start, iter(out[start]))]
        while walk:
            name, rest = walk[-1]
            following = next(rest, None)
            if following is None:
                walk.pop()
                way.discard(name)
            elif following in way:
                turned.add((name, following))
            elif following not in entered:
                entered.add(following)
                way.add(following)
                walk.append((following, iter(out[following])))
    return turned


def _ranks(nodes: Iterable[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Return the length of the longest path to each node. The edges have no cycle."""
    out: dict[str, list[str]] = {name: [] for name in nodes}
    waits = dict.fromkeys(out, 0)
    for upper, lower in edges:
        out[upper].append(lower)
        waits[lower] += 1
    ranks = dict.fromkeys(out, 0)
    ready = deque(name for name, count in waits.items() if not count)
    while ready:
        name = ready.popleft()
        for lower in out[name]:
            ranks[lower] = max(ranks[lower], ranks[name] + 1)
            waits[lower] -= 1
            if not waits[lower]:
                ready.append(lower)
    return ranks


def _route(
    edge: Edge,
    label: Size,
    places: Mapping[str, _Place],
    ranks: Mapping[str, int],
    *,
    layers: list[list[_Place]],
    leads_back: bool,
) -> _Route:
    """Give an edge a place in each layer that it crosses. The label is right below the upper node."""
    upper, lower = edge[::-1] if leads_back else edge
    route = [places[upper]]
    for layer in range(2 * ranks[upper] + 1, 2 * ranks[lower]):
        is_label = layer == 2 * ranks[upper] + 1
        place = _Place(label if is_label else Size(LINE_WIDTH, 0.0), LINE_GAP)
        layers[layer].append(place)
        route.append(place)
    route.append(places[lower])
    for one, other in pairwise(route):
        one.below.append(other)
        other.above.append(one)
    return _Route(edge, route, route[1], leads_back)


def _order(layers: list[list[_Place]]) -> None:
    """Put each place near the middle of its neighbours, so that few lines cross. The best order stays."""
    best, fewest = [list(layer) for layer in layers], _crossings(layers)
    for sweep in range(SWEEPS):
        going_down = sweep % 2 == 0
        for number in range(len(layers)) if going_down else reversed(range(len(layers))):
            fixed = number - 1 if going_down else number + 1
            if 0 <= fixed < len(layers):
                rank = {id(place): at for at, place in enumerate(layers[fixed])}
                _sort_by_neighbours(layers[number], rank, "above" if going_down else "below")
        if (crossings := _crossings(layers)) < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    layers[:] = best


def _sort_by_neighbours(
    layer: list[_Place], rank: Mapping[int, int], side: Literal["above", "below"]
) -> None:
    def barycentre(entry: tuple[int, _Place]) -> tuple[float, int]:
        at, place = entry
        beside = [rank[id(one)] for one in (place.above if side == "above" else place.below)]
        return (sum(beside) / len(beside) if beside else float(at), at)

    layer[:] = [place for _, place in sorted(enumerate(layer), key=barycentre)]


def _crossings(layers: Sequence[Sequence[_Place]]) -> int:
    """Count the crossings of lines between neighbouring layers."""
    count = 0
    for upper, lower in pairwise(layers):
        rank = {id(place): at for at, place in enumerate(lower)}
        seen: list[int] = []
        for place in upper:
            ends = sorted(rank[id(one)] for one in place.below)
            count += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return count


def _place(layers: Sequence[Sequence[_Place]]) -> None:
    y = 0.0
    for layer in layers:
        height = max((place.height for place in layer), default=0.0)
        for place in layer:
            place.y = y + height / 2
        y += height + LAYER_GAP
        _spread(layer, [0.0] * len(layer))
    for sweep in range(2 * SWEEPS):
        going_down = sweep % 2 == 0
        for layer in layers if going_down else reversed(layers):
            wanted = [_middle(place, place.above if going_down else place.below) for place in layer]
            _spread(layer, wanted)


def _middle(place: _Place, beside: Sequence[_Place]) -> float:
    return sum(one.x for one in beside) / len(beside) if beside else place.x


def _spread(layer: Sequence[_Place], wanted: Sequence[float]) -> None:
    """Put places as near as possible to where they want to be, in their order, and none over another.

    By pooling neighbours that are too near: a pool stands where the mean of its members wants to be.
    """
    offsets = [0.0]
    for left, right in pairwise(layer):
        offsets.append(offsets[-1] + (left.width + right.width) / 2 + max(left.gap, right.gap))
    pools: list[tuple[float, int]] = []  # mean, and how many
    for at in range(len(layer)):
        mean, many = wanted[at] - offsets[at], 1
        while pools and pools[-1][0] >= mean:
            before, count = pools.pop()
            mean, many = (before * count + mean * many) / (count + many), count + many
        pools.append((mean, many))
    starts = [mean for mean, many in pools for _ in range(many)]
    for place, start, offset in zip(layer, starts, offsets, strict=False):
        place.x = start + offset


def _drawn(
    nodes: Mapping[str, Size],
    layers: Sequence[Sequence[_Place]],
    places: Mapping[str, _Place],
    routes: Sequence[_Route],
    loops: Mapping[str, Size],
) -> Layout:
    everything = [place for layer in layers for place in layer]
    left = min((place.x - place.width / 2 for place in everything), default=0.0)
    right = max((place.x + place.width / 2 for place in everything), default=0.0)
    height = max((place.y + place.height / 2 for place in everything), default=0.0)
    for place in everything:
        place.x -= left
    boxes = {
        name: Box(places[name].x - places[name].loop / 2, places[name].y, *size)
        for name, size in nodes.items()
    }
    bands = {id(place): _band(layer) for layer in layers for place in layer}
    box_of = {id(place): boxes[name] for name, place in places.items()}
    ports = _ports(routes, box_of)
    lines = [_line(number, route, box_of, bands, ports) for number, route in enumerate(routes)]
    lines += [_loop(name, boxes[name], size) for name, size in loops.items()]
    return Layout(right - left, height, boxes, tuple(lines))


def _band(layer: Sequence[_Place]) -> tuple[float, float]:
    """Return where a layer begins and ends."""
    return min(one.y - one.height / 2 for one in layer), max(one.y + one.height / 2 for one in layer)


def _ports(routes: Sequence[_Route], box_of: Mapping[int, Box]) -> dict[tuple[int, int, bool], float]:
    """Return where the lines of a node touch it, by node, number of the route, and whether that is below."""
    sides: dict[tuple[int, bool], list[tuple[float, int]]] = {}
    for number, route in enumerate(routes):
        first, *_, last = route.places
        sides.setdefault((id(first), True), []).append((route.places[1].x, number))
        sides.setdefault((id(last), False), []).append((route.places[-2].x, number))
    found: dict[tuple[int, int, bool], float] = {}
    for (node, is_below), ends in sides.items():
        box = box_of[node]
        step = box.width / (len(ends) + 1)
        for at, (_, number) in enumerate(sorted(ends), 1):
            found[node, number, is_below] = box.left + at * step
    return found


def _line(
    number: int,
    route: _Route,
    box_of: Mapping[int, Box],
    bands: Mapping[int, tuple[float, float]],
    ports: Mapping[tuple[int, int, bool], float],
) -> DrawnEdge:
    first, *between, last = route.places
    x = ports[id(first), number, True]
    points = [Point(x, box_of[id(first)].bottom), Point(x, bands[id(first)][1])]
    for place in between:
        top, bottom = bands[id(place)]
        points += [Point(place.x, top), Point(place.x, bottom)]
    x = ports[id(last), number, False]
    points += [Point(x, bands[id(last)][0]), Point(x, box_of[id(last)].top)]
    label = Box(route.label.x, route.label.y, route.label.width, route.label.height)
    source, target = route.edge
    if route.leads_back:
        points.reverse()
    return DrawnEdge(source, target, tuple(points), label, route.leads_back)


def _loop(name: str, box: Box, label: Size) -> DrawnEdge:
    """Return a line from the right side of a node to itself, with its label to the right of that."""
    above, below, x = box.y - box.height / 4, box.y + box.height / 4, box.right + 1.5 * LINE_GAP
    points = (Point(box.right, above), Point(x, above), Point(x, below), Point(box.right, below))
    at = box.right + 2 * LINE_GAP + label.width / 2
    return DrawnEdge(name, name, points, Box(at, box.y, *label), leads_back=False)
