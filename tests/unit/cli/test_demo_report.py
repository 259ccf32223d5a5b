"""What the demo concludes from what it measured, and nothing beyond it."""

from typing import Any

import pytest
from rich.console import Console

from tidegate.cli.demo.comparison import lesson, passed, report_table

NAIVE: dict[str, Any] = {
    "people": 1_000,
    "requests": 400,
    "accepted": 1_060,
    "delivered": 220,
    "waiting": 840,
    "refused": 180,
    "refused_share": 0.45,
    "avg_rps": 57.1,
    "peak_rps": 66,
    "limit_rps": 30,
    "replies": 58,
    "unanswered": 2,
    "p50_ms": 70.8,
    "p99_ms": 7415.2,
    "dead": 0,
    "parked": 0,
    "out_of_order": 0,
    "doubled": 0,
}
GATED = NAIVE | {
    "requests": 230,
    "delivered": 230,
    "waiting": 830,
    "refused": 0,
    "refused_share": 0.0,
    "avg_rps": 28.4,
    "peak_rps": 30,
    "p99_ms": 231.4,
}


def report(naive: dict[str, Any] = NAIVE, gated: dict[str, Any] = GATED) -> dict[str, Any]:
    return {"seconds": 8.0, "seed": 0, "naive": naive, "tidegate": gated, "passed": passed(gated)}


def drawn(about: dict[str, Any]) -> str:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(report_table(about))
    return capture.get()


def test_each_row_has_both_bots() -> None:
    rows = {" ".join(line.split()) for line in drawn(report()).splitlines()}

    assert {
        "requests 400 230",
        "most in a second (30 allowed) 66 30",
        "refused (429) 180 0",
        "refused, of all requests 45.0 % 0.0 %",
        "messages to send 1,060 1,060",
        "delivered 220 230",
        "still waiting 840 830",
        "people answered, not yet 58, 2 58, 2",
        "a reply took (99th percentile) 7,415 ms 231 ms",
    } <= rows


def test_all_of_it_fits_a_small_terminal() -> None:
    lines = drawn(report()).splitlines()

    assert len(lines) < 24
    assert max(map(len, lines)) <= 80


def test_the_sentence_says_what_was_measured() -> None:
    assert lesson(report()) == (
        "In these 8 s, under Telegram's published limits as simulated here, 45.0 % of the naive bot's "
        "requests were refused, and 99 % of its replies came within 7,416 ms; of Tidegate's, none were "
        "refused, and 99 % of its replies came within 232 ms; 220 and 230 messages were delivered."
    )


def test_the_sentence_hides_no_refusal_of_tidegate() -> None:
    told = lesson(report(gated=GATED | {"refused": 3, "refused_share": 0.013}))

    assert "of Tidegate's, 1.3 % were refused" in told


def test_the_sentence_claims_nothing_where_nothing_was_reached() -> None:
    calm = NAIVE | {"refused": 0, "refused_share": 0.0}

    assert "below Telegram's limits" in lesson(report(naive=calm))


def test_waits_are_not_made_up_where_nobody_was_answered() -> None:
    silent = report(naive=NAIVE | {"replies": 0, "p50_ms": 0.0, "p99_ms": 0.0})

    assert "nobody got a reply" in lesson(silent)
    assert "none yet" in drawn(silent)


@pytest.mark.parametrize("flaw", ["refused", "dead", "parked", "out_of_order", "doubled"])
def test_one_flaw_misses_the_target(flaw: str) -> None:
    assert passed(GATED)
    assert not passed(GATED | {flaw: 1})


@pytest.mark.parametrize(
    ("waiting", "avg_rps", "met"),
    [
        (830, 25.5, True),  # 85 % of the limit
        (830, 25.4, False),
        (2, 9.0, True),  # only the two replies are owed: the broadcast is out
        (3, 9.0, False),
    ],
)
def test_the_target_is_all_of_the_broadcast_or_most_of_the_limit(
    waiting: int,
    avg_rps: float,
    met: bool,  # noqa: FBT001
) -> None:
    gated = GATED | {"waiting": waiting, "avg_rps": avg_rps}

    assert passed(gated) is met
    assert ("met." if met else "missed.") in drawn(report(gated=gated))
