"""`tidegate sim nocodb`: serve until a signal comes, show what happens, report at the end."""

import math
from collections.abc import Collection
from contextlib import AsyncExitStack

from tidegate.cli import loop, terminal
from tidegate.cli.sim import options
from tidegate.cli.sim.nocodb_view import NocoView
from tidegate.cli.sim.telegram import ListenAddress, watch, why_not
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.sim.nocodb import Faults, NocoLimits, SimulatedNocoDb
from tidegate.sim.nocodb.http import NocoDbServer
from tidegate.sim.nocodb.limits import RetryAfter
from tidegate.sim.nocodb.shop import Shop
from tidegate.sim.telegram.update_delivery import is_loopback


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
    """Blocks until SIGINT or SIGTERM. Raises BadInputError if it cannot listen there."""
    if not place.host.strip():
        raise BadInputError("--host: an empty name would mean every network: write 127.0.0.1, or 0.0.0.0")
    pause = options.read("--pay-every", seconds, pay_every)
    if not all(token.strip() for token in tokens):
        raise BadInputError("--token: an empty token would let nobody in: write any text, or leave it out")
    noco = SimulatedNocoDb(Clock(), limits=limits, faults=faults, tokens=tokens or None, seed=seed)
    shop = Shop(noco, rows, seed=seed)
    server = NocoDbServer(noco, host=place.host, port=place.port)
    view = NocoView(server, shop)
    loop.run(_serve(server, place, view, shop, pause, as_json=as_json))
    if as_json:
        terminal.put_json(noco.report() | {"table": shop.table, "paid": shop.paid, "seed": seed})
    elif not terminal.is_watched():
        terminal.put(view.picture())


async def _serve(
    server: NocoDbServer, place: ListenAddress, view: NocoView, shop: Shop, pause: float, *, as_json: bool
) -> None:
    stop = loop.stop_signal()
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(server)
        except OSError as error:
            raise BadInputError(why_not(error, place)) from error
        if not is_loopback(place.host):
            terminal.note(
                f"tidegate: warning: others may reach {place.host}, and the control API has no password"
            )
        if pause:
            await stack.enter_async_context(loop.beside(shop.pay_every(pause)))
        if as_json or not terminal.is_watched():
            say = terminal.note if as_json else terminal.put_line
            where = f"{server.url}, table {shop.table}"
            say(f"NocoDB is simulated at {where} (Ctrl-C stops it and prints a report)")
            await stop.wait()
        else:
            await watch(view.picture, stop)
