"""The flame graphs that py-spy writes: how long each function ran. Pure."""

import html
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

_FRAME: Final = re.compile(
    r"<title>(?P<title>[^<]*) \([\d,.]+ samples, [\d.]+%\)</title>"
    r'<rect [^>]*?y="(?P<y>[\d.]+)"[^>]*?fg:x="(?P<x>\d+)" fg:w="(?P<width>\d+)"'
)
_CODE: Final = re.compile(r"(?P<function>.+?) \((?P<file>[^()]+?)(?::(?P<line>\d+))?\)")


class ProfiledFunction(NamedTuple):
    """A function, the line of it that was seen most, and its shares of all samples."""

    function: str
    place: str
    own: float  # while it ran itself
    total: float  # while it, or what it called, ran


class Profile(NamedTuple):
    samples: int
    functions: list[ProfiledFunction]  # the one with the most time of its own first


class _Box(NamedTuple):
    """A frame of the graph: a line of a function, in samples from the left."""

    title: str
    start: int
    width: int


def read_flame_graph(svg: str) -> Profile:
    """Return how long each function ran, by the boxes of py-spy's graph: below each stands what it called."""
    rows: defaultdict[float, list[_Box]] = defaultdict(list)
    for found in _FRAME.finditer(svg):
        title = html.unescape(found["title"])
        rows[float(found["y"])].append(_Box(title, int(found["x"]), int(found["width"])))
    depths = [sorted(rows[y], key=lambda one: one.start) for y in sorted(rows)]
    if not depths:
        return Profile(0, [])
    if len(depths[0]) > 1 or depths[0][0].title != "all":  # drawn upwards
        depths.reverse()
    samples = depths[0][0].width
    own, total, lines = _times(depths)
    functions = [
        ProfiledFunction(*key, round(own[key] / samples, 3), round(total[key] / samples, 3))
        for key in _by_own_time(own, total)
    ]
    return Profile(samples, [one._replace(place=lines[one[:2]].most_common(1)[0][0]) for one in functions])


Key = tuple[str, str]  # function and file


def _times(depths: list[list[_Box]]) -> tuple[Counter[Key], Counter[Key], dict[Key, Counter[str]]]:
    """Return the samples of each function: its own, in all, and by line."""
    own: Counter[Key] = Counter()
    total: Counter[Key] = Counter()
    lines: defaultdict[Key, Counter[str]] = defaultdict(Counter)
    above: list[tuple[_Box, frozenset[Key]]] = [(depths[0][0], frozenset())]
    for below in [*depths[1:], []]:
        starts = [one.start for one, _ in above]
        called: Counter[int] = Counter()
        next_row: list[tuple[_Box, frozenset[Key]]] = []
        for one in below:
            parent = bisect_right(starts, one.start) - 1
            called[parent] += one.width
            key = _code_of(one.title)[:2]
            callers = above[parent][1]
            total[key] += 0 if key in callers else one.width  # a recursive call counts once
            next_row.append((one, callers | {key}))
        for number, (one, _) in enumerate(above):
            function, file, place = _code_of(one.title)
            own[function, file] += one.width - called[number]
            lines[function, file][place] += one.width - called[number]
        above = next_row
    del own["all", ""]
    return own, total, lines


def _code_of(title: str) -> tuple[str, str, str]:
    """Return the function, its file, and file:line."""
    found = _CODE.fullmatch(title)
    if found is None:
        return title, "", ""
    line = f":{found['line']}" if found["line"] else ""
    return found["function"], found["file"], found["file"] + line


def _by_own_time(own: Counter[Key], total: Counter[Key]) -> Iterable[Key]:
    return sorted(own, key=lambda key: (-own[key], -total[key], key))
