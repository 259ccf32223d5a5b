"""The times of functions are read from a flame graph, and failures of py-spy become one clear line."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli.flame_graph import read_flame_graph
from tidegate.cli.profile import failure, find_py_spy
from tidegate.errors import BadInputError, MissingExtraError

Frame = tuple[str, int, int, int]  # title, depth, first sample, samples


def drawn(frames: Sequence[Frame]) -> str:
    """As py-spy draws it."""
    return "<svg>" + "".join(
        f"<g><title>{title} ({width:,} samples, 1.00%)</title>"
        f'<rect x="0.0%" y="{52 + 16 * depth}" width="1%" height="15" fill="rgb(1,2,3)" fg:x="{start}"'
        f' fg:w="{width}"/><text x="1%">{title}</text></g>'
        for title, depth, start, width in frames
    )  # fmt: skip


def test_own_time_is_what_the_calls_below_leave() -> None:
    found = read_flame_graph(
        drawn([
            ("all", 0, 0, 2000),
            ("&lt;module&gt; (bot.py:9)", 1, 0, 2000),
            ("on_pay (shop/pay.py:42)", 2, 0, 1500),
            ("on_pay (shop/pay.py:43)", 2, 1500, 400),
            ("post (requests/api.py:115)", 3, 0, 1400),
        ])
    )  # fmt: skip

    assert found.samples == 2000
    assert [tuple(one) for one in found.functions] == [
        ("post", "requests/api.py:115", 0.7, 0.7),
        ("on_pay", "shop/pay.py:43", 0.25, 0.95),
        ("<module>", "bot.py:9", 0.05, 1.0),
    ]


def test_a_recursive_function_is_not_counted_twice() -> None:
    found = read_flame_graph(
        drawn([("all", 0, 0, 10), ("walk (tree.py:3)", 1, 0, 10), ("walk (tree.py:3)", 2, 2, 8)])
    )
    assert [tuple(one) for one in found.functions] == [("walk", "tree.py:3", 1.0, 1.0)]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 5)), min_size=1, max_size=12))
def test_own_times_add_up_to_all_samples(calls: list[tuple[str, int]]) -> None:
    frames, start = [("all", 0, 0, sum(width for _, width in calls))], 0
    for number, (name, width) in enumerate(calls):
        frames.append((f"{name}{number} (x.py:1)", 1, start, width))
        frames.append((f"{name} (y.py:{number})", 2, start, max(1, width - 1)))
        start += width

    found = read_flame_graph(drawn(frames))

    assert sum(one.own for one in found.functions) == pytest.approx(1, abs=0.02)
    assert all(0 <= one.own <= one.total <= 1 for one in found.functions)


def test_a_graph_without_boxes_is_empty() -> None:
    assert read_flame_graph("<svg>ERROR: No valid input provided to flamegraph</svg>") == (0, [])


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Permission Denied: Try running again with elevated permissions", "with sudo"),
        ("Error: Operation not permitted (os error 1)", "ptrace_scope"),
        ("Error: No stack counts found", "--waiting"),
        ("Error: something new\n\nStack backtrace:\n 0: x", "py-spy says: Error: something new"),
        ("", "it gave no reason"),
    ],
)
def test_what_py_spy_says_becomes_one_line(said: str, told: str) -> None:
    error = failure(4711, said)
    assert not isinstance(error, BadInputError)
    assert told in str(error)
    assert "process 4711" in str(error)
    assert "\n" not in str(error)


def test_a_process_that_ends_meanwhile_is_named() -> None:
    said = "Error: Failed to get process executable name. Check that the process is running."
    assert "has ended" in str(failure(4711, said))
    assert isinstance(failure(4711, said), BadInputError)


def test_a_missing_py_spy_is_named_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(MissingExtraError, match=r'pip install "tidegate\[profile\]"'):
        find_py_spy()
