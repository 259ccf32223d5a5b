"""`tidegate sim nocodb`: serve until a signal comes, show what happens, report at the end."""

import math
from collections.abc import Collection, Reversible
from contextlib import AsyncExitStack
from itertools import islice
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidegate.cli import loop, terminal
from tidegate.cli.listen_address import ListenAddress
from tidegate.cli.progress import Meter
from tidegate.cli.sim import options
from tidegate.cli.sim.telegram import (
    FIRST_ERROR,
    SECONDS_SHOWN,
    WIDTH,
    percent,
    pulse,
    run_server,
)
from tidegate.cli.terminal import printable
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.sim.nocodb import Faults, NocoLimits, SimulatedNocoDb
from tidegate.sim.nocodb.http import NocoDbServer
from tidegate.sim.nocodb.limits import RetryAfter
from tidegate.sim.nocodb.nocodb import LoggedRequest
from tidegate.sim.nocodb.shop import Shop

REQUESTS_SHOWN = 5


def limits(*, rate: str, block: str, retry_after: RetryAfter) -> NocoLimits:
    return NocoLimits(
        rate=options.read("--rate", Rate.parse, rate),
        block=options.read("--block", seconds, block),
        retry_after=retry_after,
    )


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise BadInputError(f"{text!r} is not a time: write seconds, such as 30, or 0 for none")
    return number


def serve(
    place: ListenAddress,
    *,
    limits: NocoLimits,
    faults: Faults,
    tokens: Collection[str],
    rows: int,
    pay_every: str,
    seed: int,
    as_json: bool,
) -> None:
    """Block until SIGINT or SIGTERM. Raises BadInputError if it cannot listen there."""
    pause = options.read("--pay-every", seconds, pay_every)
    if not all(token.strip() for token in tokens):
        raise BadInputError("--token: an empty token would let nobody in: write any text, or leave it out")
    noco = SimulatedNocoDb(Clock(), limits=limits, faults=faults, tokens=tokens or None, seed=seed)
    shop = Shop(noco, rows, seed=seed)
    server = NocoDbServer(noco, host=place.host, port=place.port)

    async def open_shop(stack: AsyncExitStack) -> str:
        if pause:
            await stack.enter_async_context(loop.beside(shop.pay_every(pause)))
        return f"NocoDB is simulated at {server.url}, table {shop.table}"

    view = NocoView(server, shop)
    run_server(server, place, view.picture, open_shop, as_json=as_json)
    if as_json:
        terminal.put_json(noco.report() | {"table": shop.table, "paid": shop.paid, "seed": seed})


class NocoView:
    """The simulated NocoDB as a picture: how fast it is asked, what it refused, what was paid."""

    def __init__(self, server: NocoDbServer, shop: Shop) -> None:
        self._server, self._shop = server, shop
        self._requests, self._refused = Meter(SECONDS_SHOWN), Meter(SECONDS_SHOWN)

    def picture(self) -> RenderableType:
        noco, url = self._server.noco, self._server.url
        report, now = noco.report(), noco.clock.monotonic()
        self._requests.read(now, report["requests"])
        self._refused.read(now, report["refused"])
        content = Group(
            Text.assemble("Address:  ", (url, "bold cyan"), "   table  ", (self._shop.table, "bold cyan")),
            Text(),
            _counts(report, self._requests.per_second()),
            pulse(self._requests, self._refused, noco.limiter.limits.rate.count),
            Text(),
            _limit(report, noco.limiter.limits, noco.limiter.blocked_for(now)),
            Text(),
            _details(report, self._shop.paid),
            _latest(noco.request_log.log),
        )
        title = Text("NocoDB, simulated", style="bold")
        hint = Text(f"more: curl {url}/sim/report · Ctrl-C stops", style="dim")
        return Panel(content, title=title, subtitle=hint, width=WIDTH, padding=(0, 2), border_style="cyan")


def _counts(report: dict[str, Any], per_second: int) -> RenderableType:
    requests, refused = report["requests"], report["refused"]
    grid = Table.grid(expand=True)
    numbers = (
        ("requests", f"{requests:,}", "bold"),
        ("refused", f"{refused:,} ({percent(refused, requests)})", "bold red" if refused else "bold"),
        ("now", f"{per_second}/s", "bold"),
        ("peak", f"{report['peak_rps']}/s", "bold"),
        ("average", f"{report['avg_rps']:g}/s", "bold"),
    )
    for _ in numbers:
        grid.add_column()
    grid.add_row(*(Text.assemble(f"{name} ", (value, style)) for name, value, style in numbers))
    return grid


def _limit(report: dict[str, Any], limits: NocoLimits, blocked_for: float) -> RenderableType:
    rate, fullest = limits.rate, report["fullest"]
    grid = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=rate.count, completed=fullest, width=24, finished_style="yellow")
    grid.add_row(f"{rate.count} in {rate.seconds:g} s", bar, f"{fullest}/{rate.count} in the fullest window")
    if blocked_for > 0:
        state = Text(f"for another {blocked_for:.0f} s", style="bold red")
    else:
        state = Text(f"for {report['blocked_seconds']:.0f} s so far", style="dim")
    grid.add_row("blocked", state, f"each time for {limits.block:g} s" if limits.block else "never")
    return grid


def _details(report: dict[str, Any], paid: int) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_row("rows", f"{report['rows']:,} · paid so far: {paid:,}")
    grid.add_row("answers", _listed(report["statuses"]) or "none yet")
    grid.add_row("faults", _listed(report["faults"]) or "none yet")
    return grid


def _latest(log: Reversible[LoggedRequest]) -> RenderableType:
    entries = list(islice(reversed(log), REQUESTS_SHOWN))[::-1]
    grid = Table.grid(padding=(0, 2))
    for _ in range(3):
        grid.add_column(no_wrap=True, overflow="ellipsis")
    for entry in entries:
        style = "green" if entry.status < FIRST_ERROR else "red"
        grid.add_row(
            Text(str(entry.status), style), printable(entry.method), Text(printable(entry.path), "dim")
        )
    return grid if entries else Text("No request yet.", style="dim")


def _listed(counts: dict[str, Any]) -> str:
    return " · ".join(f"{name}: {count:,}" for name, count in counts.items())
