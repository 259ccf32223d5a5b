"""What was measured, as tables and a chart: complete, narrow enough, and in words too."""

from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from tidegate.cli.stress.chart import LogScale, chart, duration_text
from tidegate.cli.stress.polling import results_table, saved, verdict
from tidegate.cli.stress.restore import restarts_table
from tidegate.sim.polling import MODES, PollingReport, PollingScenario
from tidegate.sim.polling.restart import RestartReport, RestoreGroups

SVG = "{http://www.w3.org/2000/svg}"


def result(users: int, mode: str, **fields: Any) -> PollingReport:  # noqa: ANN401  (any field of it)
    good: dict[str, Any] = {
        "paid": users // 2, "told": users // 2, "doubled": 0, "early": 0, "missed": 0, "waiting": 0,
        "requests": 75, "avg_rps": 0.25, "peak_rps": 5, "refused": 0, "locked_seconds": 0.0,
        "p50_ms": 28_412.0, "p99_ms": 55_000.0, "max_ms": 56_000.0, "within_interval": 1.0, "reduction": 95.1,
        "virtual_seconds": 300.0, "seconds": 0.5,
    }  # fmt: skip
    return PollingReport(users=users, mode=mode, **(good | fields))  # type: ignore[arg-type]


def naive(users: int) -> PollingReport:
    lost = {"told": 13, "missed": users // 2 - 13, "within_interval": 0.04, "p99_ms": 298e3}
    spent = {"refused": 58_631, "avg_rps": 202.2, "peak_rps": 2_000, "locked_seconds": 296.2}
    return result(users, "per-user", reduction=-8e3, **spent, **lost)


CROWDS = (300, 2_000)
RESULTS = [naive(users) if mode == "per-user" else result(users, mode) for users in CROWDS for mode in MODES]


def drawn(picture: RenderableType, width: int = 80) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(picture)
    return capture.get()


def test_every_mode_has_a_row_and_all_fits_80_columns() -> None:
    lines = drawn(results_table(RESULTS, PollingScenario())).splitlines()
    rows = [" ".join(line.split()) for line in lines]

    assert "2,000 per-user 202 2000 58,631 296 s 987 28.4 s > 298 s 4 % 81×" in rows  # noqa: RUF001
    assert "batch 0.25 5 0 0 s 0 28.4 s 55 s 100 % 95 %" in rows
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)


def test_a_missed_target_is_named_and_the_bot_that_is_compared_has_none() -> None:
    late = result(300, "batch", flaws=("avg_rps", "within_interval"))

    assert verdict([naive(300), late]) == [
        "failed: batch, 300 users: too many requests, somebody was told too late"
    ]
    assert verdict([naive(300)]) == []
    (passed,) = verdict(RESULTS)
    assert passed == (
        "passed: no 429, nobody told twice; batch and delta told everybody in time, with few requests"
    )


@pytest.mark.parametrize(
    ("reduction", "said"),
    [(95.1, "95 %"), (0.0, "0 %"), (-14, "1.1×"), (-243, "3.4×"), (-2_300, "24×"), (-2e5, "2,001×")],  # noqa: RUF001
)
def test_more_requests_are_said_as_a_factor_however_many_they_are(reduction: float, said: str) -> None:
    assert saved(result(10, "delta", reduction=reduction)) == said


def test_for_one_it_is_said_that_the_start_of_delta_makes_more_requests() -> None:
    few = result(1, "delta", reduction=-243)

    _passed, said = verdict([few, result(2_000, "delta")])
    assert said.startswith("delta made more requests than asking for each would, for 1 users: those at the")
    assert "3.4×: nothing saved" in " ".join(drawn(results_table([few], PollingScenario())).split())  # noqa: RUF001


@pytest.mark.parametrize("width", [60, 40, 24])
def test_in_a_narrow_terminal_no_number_is_cut(width: int) -> None:
    lines = drawn(results_table(RESULTS, PollingScenario()), width).splitlines()
    words = " ".join(" ".join(lines).split())

    assert max(map(len, lines)) <= width
    assert "…" not in words
    assert "per-user, 2,000 users" in words
    for said in ("req/s 202", "429s 58,631", "shut 296 s", "missed 987", "99 % > 298 s", "saved 95 %"):
        assert said in words


def test_whose_time_is_not_over_is_not_judged() -> None:
    stopped = result(300, "batch", within_interval=None)

    shown = drawn(results_table([stopped], PollingScenario(), complete=False))
    assert " 55 s       –  95 %" in shown  # noqa: RUF001
    assert "nobody paid 60 s ago" in " ".join(shown.split())


def test_whoever_asks_for_each_alone_learns_for_how_many_that_is_too_slow() -> None:
    slow = result(2_000, "paced", within_interval=0.1, missed=697)

    assert verdict([result(100, "paced"), slow]) == [
        "passed: no 429, nobody told twice",
        "paced keeps the limit, but is too slow for 2,000 users: use batch or delta",
    ]


def test_the_chart_is_a_file_of_its_own_that_says_everything_in_words_too() -> None:
    picture = ET.fromstring(chart(RESULTS, PollingScenario()))  # noqa: S314  (our own)
    described = picture.findtext(f"{SVG}desc") or ""
    bars = [bar for bar in picture.iter(f"{SVG}rect") if bar.find(f"{SVG}title") is not None]

    assert picture.findtext(f"{SVG}title") == "Waiting for payments: four ways to poll, measured"
    assert "2000 people, per-user: 202.2 requests/s, 58631 refused, 99 % told within >298 s" in described
    assert len(bars) == 2 * len(RESULTS)
    assert sum("refused" in bar.get("class", "") for bar in bars) == 2 * 2
    assert "prefers-color-scheme: dark" in (picture.findtext(f"{SVG}style") or "")


def test_nothing_of_the_chart_lies_outside_of_it() -> None:
    picture = ET.fromstring(chart(RESULTS, PollingScenario()))  # noqa: S314
    for shape in picture.iter(f"{SVG}rect"):
        x, y = float(shape.get("x", 0)), float(shape.get("y", 0))
        assert x >= 0
        assert y >= 0
        assert x + float(shape.get("width", 0)) <= 900
        assert y + float(shape.get("height", 0)) <= 740


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=8))
def test_on_the_scale_more_is_higher_and_everything_is_on_it(numbers: list[float]) -> None:
    scale = LogScale.around(numbers, top=100, bottom=300)
    places = [scale.place(number) for number in sorted(numbers)]

    assert places == sorted(places, reverse=True)
    assert all(99.9 < place < 299.9 for place in places)
    assert scale.place(0) == 300


@pytest.mark.parametrize(
    ("ms", "said"), [(0, "0.00 s"), (310, "0.31 s"), (4_512, "4.51 s"), (312e3, "312 s")]
)
def test_durations_are_said_as_people_read_them(ms: float, said: str) -> None:
    assert duration_text(ms) == said


def restarted(start: str, users: int, **fields: Any) -> RestartReport:  # noqa: ANN401
    good: dict[str, Any] = {
        "groups": 5, "restored_seconds": 4.2, "asked_seconds": 12.1, "requests": 46, "avg_rps": 3.8,
        "peak_rps": 5, "refused": 0, "locked_seconds": 0.0, "per_second": [5, 4, 4, 4],
        "restored_per_second": [10, 10, 10, 10, 5],
        "virtual_seconds": 13.0, "seed": 0,
    }  # fmt: skip
    return RestartReport(start=start, users=users, **(good | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [60, 40])
def test_restarts_too_are_never_cut(width: int) -> None:
    late = restarted("at once", 2_000, asked_seconds=None, virtual_seconds=300.0, refused=58_631)
    lines = drawn(restarts_table([late, restarted("staggered", 2_000)], RestoreGroups()), width).splitlines()
    words = " ".join(" ".join(lines).split())

    assert max(map(len, lines)) <= width
    assert "…" not in words
    for said in ("at once, 2,000 users", "all asked > 300 s", "429s 58,631", "requests, 14 s ▄▃▃▃"):
        assert said in words


def test_restarts_show_their_first_seconds_as_bars_and_as_numbers() -> None:
    at_once = restarted(
        "at once",
        45,
        groups=1,
        asked_seconds=None,
        virtual_seconds=300.0,
        peak_rps=45,
        refused=946,
        per_second=[45, 0, 40],
    )
    lines = drawn(restarts_table([at_once, restarted("staggered", 45)], RestoreGroups())).splitlines()
    rows = [" ".join(line.split()) for line in lines]

    assert "45 at once 1 4.2 s > 300 s 45 946 █ █" in rows
    assert "staggered 5 4.2 s 12.1 s 5 0 ▄▃▃▃" in rows
    assert "restored per second, 45 users: 10 10 10 10 5" in rows
    assert "requests per second, 45 users: 5 4 4 4" in rows
    assert max(map(len, lines)) <= 80
