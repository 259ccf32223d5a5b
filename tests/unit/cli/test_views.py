"""The pictures show what was counted, and nothing that could steer a terminal."""

from typing import Any

from rich.console import Console, RenderableType

from tidegate.cli.demo_view import DemoView, lesson, report_table
from tidegate.cli.sim_view import SimView, percent, printable
from tidegate.sim.telegram.http import TelegramServer
from tidegate.sim.virtual import VirtualClock

REPORT: dict[str, Any] = {
    "requests": 400,
    "accepted": 230,
    "delivered": 220,
    "waiting": 10,
    "refused": 180,
    "refused_share": 0.45,
    "peak_rps": 66,
    "limit_rps": 30,
    "unanswered": 2,
    "p50_ms": 70.8,
    "p99_ms": 7415.0,
}


def drawn(picture: RenderableType) -> str:
    console = Console(width=100, record=True, quiet=False, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(picture)
    return capture.get()


async def test_simulator_shows_its_address_counts_and_limits(clock: VirtualClock) -> None:
    server = TelegramServer(port=8081, clock=clock)
    for _ in range(3):
        await server.telegram.call("42:any", "sendMessage", {"chat_id": 1, "text": "\x1b[2Jhello"})

    shown = drawn(SimView(server, lambda: {"crowd": {"users": 5, "said": 0}}).picture())

    for part in (server.url, "requests 3", "accepted 1", "refused 2 (66.7 %)", "1/1", "429: 2", "hello"):
        assert part in shown
    assert "chat still shut" in shown
    assert "5 wait for a bot" in shown
    assert "\x1b" not in shown
    assert "any" not in shown


async def test_demo_shows_rate_against_limit(clock: VirtualClock) -> None:
    shown = drawn(DemoView(lambda: REPORT, 15, clock).picture())

    assert "of 30/s" in shown
    assert "220 of 230 messages" in shown


def test_demo_reports_what_the_bot_got() -> None:
    shown = drawn(report_table(REPORT))

    for part in ("400, up to 66 in a second (30 allowed)", "180 (45.0 %", "10 messages", "7,415 ms"):
        assert part in shown
    assert "README" in shown


def test_the_lesson_claims_no_more_than_was_seen() -> None:
    assert "45.0 %" in lesson(REPORT)
    assert "too small" in lesson(REPORT | {"refused": 0})


def test_printable_keeps_letters_and_drops_controls() -> None:
    assert printable("ä\x1b[31m\n日本") == "ä [31m 日本"


def test_percent_of_nothing_is_nothing() -> None:
    assert (percent(0, 0), percent(1, 3)) == ("0 %", "33.3 %")
