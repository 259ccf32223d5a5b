"""`tidegate sim telegram`: serve until a signal comes, show what happens, report at the end."""

import asyncio
import errno
import math
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from tidegate.cli import loop, terminal
from tidegate.cli.sim_view import SimView
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.sim.telegram import Crowd, Faults, Limits, Telegram, World
from tidegate.sim.telegram.http import TelegramServer
from tidegate.sim.telegram.webhooks import is_loopback

ARRIVAL = 0.1  # seconds between two looks for the first bot


class Place(NamedTuple):
    host: str
    port: int


class Visitors:
    """A crowd that waits for the first bot to make a call, then writes to it for as long as it may."""

    def __init__(self, telegram: Telegram, users: int, seed: int) -> None:
        self._telegram, self._seed = telegram, seed
        self.expected = users
        self._crowd: Crowd | None = None

    async def run(self) -> None:
        bots = self._telegram.world.bots
        while not bots:
            await self._telegram.clock.sleep(ARRIVAL)
        bot = next(iter(bots.values()))
        self._crowd = Crowd(self._telegram, bot, users=self.expected, seed=self._seed)
        await self._crowd.run(math.inf)

    def report(self) -> dict[str, Any]:
        if not self.expected:
            return {}
        return {"crowd": self._crowd.report() if self._crowd else {"users": self.expected, "said": 0}}


def serve(
    place: Place,
    *,
    limits: Limits,
    faults: Faults,
    world: World,
    crowd: int,
    seed: int,
    as_json: bool,
) -> None:
    """Blocks until SIGINT or SIGTERM. Raises BadInputError if it cannot listen there."""
    server = TelegramServer(
        host=place.host, port=place.port, limits=limits, faults=faults, world=world, seed=seed
    )
    visitors = Visitors(server.telegram, crowd, seed)
    view = SimView(server, visitors.report)
    loop.run(_serve(server, place, visitors, view, as_json=as_json))
    if as_json:
        terminal.put_json(server.telegram.report() | visitors.report() | {"seed": seed})
    elif not terminal.is_watched():
        terminal.put(view.picture())


async def _serve(
    server: TelegramServer, place: Place, visitors: Visitors, view: SimView, *, as_json: bool
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
        if visitors.expected:
            await stack.enter_async_context(loop.beside(visitors.run()))
        if as_json or not terminal.is_watched():
            say = terminal.note if as_json else terminal.put
            say(f"Telegram is simulated at {server.url} (Ctrl-C stops it and prints a report)")
            await stop.wait()
        else:
            await _watch(view, stop)


async def _watch(view: SimView, stop: asyncio.Event) -> None:
    with terminal.drawing(view.picture) as draw:
        async for _ in loop.frames(stop, Clock()):
            draw()


def why_not(error: OSError, place: Place) -> str:
    """Why a server could not listen, and what to do about it."""
    if error.errno == errno.EADDRINUSE:
        return f"port {place.port} on {place.host} is in use: choose another with --port"
    reason = (error.strerror or "the address cannot be used").lower()
    return (
        f"cannot listen on {place.host}, port {place.port} ({reason}): choose others with --host and --port"
    )
