"""`tidegate sim nocodb`: what it refuses, and the picture it shows."""

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tidegate.cli.sim import app
from tidegate.cli.sim.nocodb import NocoView
from tidegate.errors import BadInputError
from tidegate.sim.nocodb import SimulatedNocoDb
from tidegate.sim.nocodb.http import NocoDbServer
from tidegate.sim.nocodb.shop import Shop
from tidegate.sim.virtual_time import VirtualClock


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rate", "5"], "--rate: '5' is not a limit"),
        (["--rate", "0/1"], "--rate: '0/1' would never let a call pass"),
        (["--block", "-1"], "--block: '-1' is not a time"),
        (["--block", "inf"], "--block: 'inf' is not a time"),
        (["--pay-every", "often"], "--pay-every: 'often' is not a time"),
        (["--latency", "x"], "--latency: 'x' is not a latency"),
        (["--malformed", "2"], "--malformed: '2' is not a share"),
        (["--token", " "], "--token: an empty token would let nobody in"),
        (["--host", ""], "--host: an empty name would mean every network"),
    ],
)
def test_an_option_that_cannot_be_is_named(arguments: list[str], said: str) -> None:
    error = CliRunner().invoke(app, ["nocodb", *arguments]).exception
    assert isinstance(error, BadInputError)
    assert said in str(error)


async def test_the_picture_shows_address_counts_limit_and_payments(clock: VirtualClock) -> None:
    noco = SimulatedNocoDb(clock)
    shop = Shop(noco, 12)
    server = NocoDbServer(noco, port=8082)
    shop.pay_one()
    view = NocoView(server, shop)
    quiet = draw(view)
    for _ in range(7):
        await noco.handle("GET", f"/api/v2/tables/{shop.table}/records\x1b[2J", {"xc-token": "SECRET"})
    await clock.sleep(10)

    shown = draw(view)

    assert "No request yet." in quiet
    for part in (server.url, shop.table, "requests 7", "refused 2 (28.6 %)", "5/5 in the fullest window"):
        assert part in shown
    for part in ("for another 20 s", "each time for 30 s", "12 · paid so far: 1", "404: 5 · 429: 2"):
        assert part in shown
    assert "\x1b" not in shown
    assert "SECRET" not in shown


def draw(view: NocoView) -> str:
    console = Console(width=100, force_terminal=False)
    with console.capture() as capture:
        console.print(view.picture())
    return capture.get()
