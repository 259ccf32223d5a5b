"""`tidegate worker`: take the sender's role, deliver until a signal comes, report at the end."""

import asyncio
from contextlib import AsyncExitStack, suppress

from tidegate.app import Tidegate
from tidegate.cli import loop, terminal
from tidegate.cli.gates import gate_at, reached
from tidegate.cli.places import is_redis, place_of, shown
from tidegate.cli.selection import amount
from tidegate.cli.sending.deliver_report import Run, summary
from tidegate.cli.sending.deliver_view import DeliverView
from tidegate.clock import Clock

TOLD_EVERY = 10.0  # seconds, in a pipe


def deliver(store: str | None, *, concurrency: int, drain: bool, as_json: bool) -> None:
    """Blocks until SIGINT or SIGTERM, or until nothing waits.

    Raises NotTheSenderError if another runs, and the store has one sender only.
    """
    gate = gate_at(store)
    run = Run(gate, Clock(), shared=is_redis(place_of(store)))
    loop.run(_deliver(run, store, concurrency=concurrency, drain=drain, as_json=as_json))
    if as_json:
        terminal.put_json(run.report())
    else:
        terminal.put_line(summary(run.report()))


async def _deliver(run: Run, store: str | None, *, concurrency: int, drain: bool, as_json: bool) -> None:
    stop, gate, name = loop.stop_signal(), run.gate, shown(place_of(store).removeprefix("sqlite:///"))
    watched = terminal.is_watched() and not as_json
    async with reached(gate, store):
        async with gate.worker(concurrency=concurrency), AsyncExitStack() as beside:
            await run.start()
            _announce(run, name, watched=watched, as_json=as_json)
            if drain:
                await beside.enter_async_context(loop.beside(_stop_when_drained(gate, stop)))
            if watched:
                await _watch(run, name, stop)
            elif as_json:
                await stop.wait()
            else:
                await tell(run, stop)
        await run.end()


def _announce(run: Run, name: str, *, watched: bool, as_json: bool) -> None:
    if not run.gate.bots():
        terminal.note("tidegate: warning: no bot is registered: tidegate bot add")
    if not watched:
        waiting = amount(run.stats.waiting, "waits", "wait")
        say = terminal.note if as_json else terminal.put_line
        say(f"Delivering from {name}: {waiting} (Ctrl-C ends it)")


async def _stop_when_drained(gate: Tidegate, stop: asyncio.Event) -> None:
    await gate.drained()
    stop.set()


async def _watch(run: Run, name: str, stop: asyncio.Event) -> None:
    with terminal.drawing(DeliverView(run, name).picture) as draw:
        async for _ in loop.frames(stop, run.clock):
            await run.look()
            draw()
        await run.look()


async def tell(run: Run, stop: asyncio.Event) -> None:
    """A line now and then, while there is something new to tell."""
    told = run.line()
    while not stop.is_set():
        with suppress(TimeoutError):
            async with run.clock.timeout(TOLD_EVERY):
                await stop.wait()
        await run.look()
        line = run.line()
        if line != told and not stop.is_set():
            terminal.put_line(line)
            told = line
