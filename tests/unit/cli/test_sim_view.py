"""The picture of the simulator shows what was counted, and nothing that could steer a terminal."""

from rich.console import Console, RenderableType

from tidegate.cli.sim.telegram import SimView, percent
from tidegate.cli.terminal import printable
from tidegate.sim.telegram import Limits
from tidegate.sim.telegram.http import TelegramServer
from tidegate.sim.virtual_time import VirtualClock


def drawn(picture: RenderableType) -> str:
    console = Console(width=100, record=True, quiet=False, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(picture)
    return capture.get()


async def test_simulator_shows_its_address_counts_and_limits(clock: VirtualClock) -> None:
    server = TelegramServer(port=8081, clock=clock, limits=Limits(burst=1))
    for _ in range(3):
        await server.telegram.call("42:any", "sendMessage", {"chat_id": 1, "text": "\x1b[2Jhello"})

    shown = drawn(SimView(server, lambda: {"crowd": {"users": 5, "said": 0}}).picture())

    for part in (server.url, "requests 3", "accepted 1", "refused 2 (66.7 %)", "1/1", "429: 2", "hello"):
        assert part in shown
    assert "chat still closed" in shown
    assert "5 wait for a bot" in shown
    assert "\x1b" not in shown
    assert "any" not in shown


def test_printable_keeps_letters_and_drops_controls() -> None:
    assert printable("ä\x1b[31m\n日本") == "ä [31m 日本"


def test_percent_of_nothing_is_nothing() -> None:
    assert (percent(0, 0), percent(1, 3)) == ("0 %", "33.3 %")
