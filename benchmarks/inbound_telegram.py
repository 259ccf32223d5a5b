"""Telegram's side of `inbound.py`, in a process of its own: limits that count, and the crowd."""

import asyncio
import sys
from pathlib import Path

import msgspec
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from benchmarks.pacing_processes import EACH_WAY, die_with_parent, tell

from system.inbound_crowd import Gathering, Scene
from tidegate.sim.telegram import Faults
from tidegate.sim.telegram.http import TelegramServer


async def serve(scene: Scene) -> None:
    """Tells its address; lets the crowd live at the first line it gets; reports what it saw."""
    asked, loop = asyncio.Event(), asyncio.get_running_loop()
    die_with_parent(lambda: loop.call_soon_threadsafe(asked.set))
    faults = Faults(latency_in=EACH_WAY, latency_out=EACH_WAY)
    async with TelegramServer(limits=scene.limits(), faults=faults, seed=scene.seed) as server:
        crowd = Gathering(server.telegram, scene)
        tell(url=server.url)
        await asked.wait()
        await crowd.live()
        tell(**crowd.report())
        await asyncio.Event().wait()  # until the parent has seen the bot's end


if __name__ == "__main__":
    uvloop.run(serve(msgspec.json.decode(sys.argv[1], type=Scene)))
