"""`tidegate sim telegram`: serve until a signal comes, show what happens, report at the end."""

import asyncio
import errno
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from rich.console import RenderableType

from tidegate.cli import loop, terminal
from tidegate.cli.sim.view import SimView
from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.sim.telegram import Faults, Limits, World
from tidegate.sim.telegram.http import TelegramServer
from tidegate.sim.telegram.webhooks import is_loopback


class Place(NamedTuple):
    host: str
    port: int


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
    if not place.host.strip():
        raise BadInputError("--host: an empty name would mean every network: write 127.0.0.1, or 0.0.0.0")
    server = TelegramServer(
        host=place.host, port=place.port, limits=limits, faults=faults, world=world, seed=seed
    )

    def people() -> dict[str, Any]:
        return {"crowd": server.control.crowd_report()} if crowd else {}

    view = SimView(server, people)
    loop.run(_serve(server, place, view, crowd=crowd, seed=seed, as_json=as_json))
    if as_json:
        terminal.put_json(server.telegram.report() | people() | {"seed": seed})
    elif not terminal.is_watched():
        terminal.put(view.picture())


async def _serve(
    server: TelegramServer, place: Place, view: SimView, *, crowd: int, seed: int, as_json: bool
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
        if crowd:
            server.control.gather_for_first_bot(crowd, seed)
        if as_json or not terminal.is_watched():
            say = terminal.note if as_json else terminal.put_line
            say(f"Telegram is simulated at {server.url} (Ctrl-C stops it and prints a report)")
            await stop.wait()
        else:
            await watch(view.picture, stop)


async def watch(picture: Callable[[], RenderableType], stop: asyncio.Event) -> None:
    """Draw it anew a few times a second, until it is to end."""
    with terminal.drawing(picture) as draw:
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
