"""The live picture of the demo: both bots beside each other, in a small terminal."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tidegate.cli.demo.comparison import MARKS, DemoView, gauge
from tidegate.sim.virtual_time import VirtualClock


def side(requests: int, refused: int) -> dict[str, Any]:
    return {
        "requests": requests,
        "accepted": 1_050,
        "delivered": requests - refused,
        "waiting": 1_050 - requests + refused,
        "refused": refused,
        "refused_share": refused / max(1, requests),
        "limit_rps": 30,
        "replies": 40,
        "p50_ms": 61.0,
        "p99_ms": 17_431.0,
    }


class Run:
    """Two bots that ask 64 and 29 times a second; of the first's, half are refused."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.view = DemoView(self.report, seconds=20, people=1_000, clock=clock)

    def report(self) -> dict[str, Any]:
        now = self.clock.monotonic()
        return {"naive": side(int(64 * now), int(32 * now)), "tidegate": side(int(29 * now), 0)}

    async def until(self, seconds: int) -> list[str]:
        """What is drawn at last."""
        picture = self.view.picture()
        for _ in range(4 * seconds):
            await self.clock.sleep(0.25)
            picture = self.view.picture()
        console = Console(width=80, height=24)
        with console.capture() as capture:
            console.print(picture)
        return capture.get().splitlines()


async def test_both_bots_are_shown_with_rates_against_the_limit(clock: VirtualClock) -> None:
    shown = await Run(clock).until(5)

    rates = next(line for line in shown if "of 30/s" in line)
    assert rates.index("64/s of 30/s") < 40 < rates.index("29/s of 30/s")
    text = "\n".join(shown)
    for part in ("160 of 1,050", "890", "160 (50.0 %)", "0 (0.0 %)", "17,431 ms (p99)", "15 s left"):
        assert part in text
    assert "1,000 people" in text
    assert "all numbers are measured" in text


async def test_sparklines_compare_on_one_scale(clock: VirtualClock) -> None:
    shown = await Run(clock).until(5)

    requests = next(line for line in shown if "requests" in line)
    assert "█████" in requests[:40]
    assert "▄▄▄▄▄" in requests[40:]


async def test_the_picture_fits_a_small_terminal(clock: VirtualClock) -> None:
    for lines in (await Run(clock).until(0), await Run(clock).until(30)):
        assert len(lines) < 24
        assert max(map(len, lines)) <= 80


@given(st.integers(0, 1_000), st.integers(1, 1_000))
def test_a_gauge_is_red_only_beyond_its_limit(rate: int, limit: int) -> None:
    drawn = gauge(rate, limit)

    assert len(drawn) == MARKS
    red = any(span.style == "red" and span.end > span.start for span in drawn.spans)
    assert red is (rate > limit)
