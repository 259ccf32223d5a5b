"""Telegram's side of `label_bot.py`, in a process of its own: limits that count, a crowd, and a carrier."""

import asyncio
import sys
from pathlib import Path

import msgspec
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from benchmarks.pacing_processes import EACH_WAY, die_with_parent, tell

from system.label_crowd import CARRIER_SECONDS, LabelCrowd, LabelScene
from system.label_sinks import HttpSink
from tidegate.sim.telegram import Faults
from tidegate.sim.telegram.http import TelegramServer


async def serve(scene: LabelScene) -> None:
    """Tells its addresses; lets the crowd live at the first line it gets; reports what it saw."""
    asked, loop = asyncio.Event(), asyncio.get_running_loop()
    die_with_parent(lambda: loop.call_soon_threadsafe(asked.set))
    faults = Faults(latency_in=EACH_WAY, latency_out=EACH_WAY)
    carrier = HttpSink(lambda body: {"tracking": f"TG{body['id']}"}, CARRIER_SECONDS)
    async with (
        TelegramServer(limits=scene.limits(), faults=faults, seed=scene.seed) as server,
        carrier.serving(),
    ):
        crowd = LabelCrowd(server.telegram, scene)
        tell(url=server.url, carrier=carrier.url)
        await asked.wait()
        await crowd.live()
        tell(**crowd.report())
        await asyncio.Event().wait()  # until the parent has seen the bot's end


if __name__ == "__main__":
    uvloop.run(serve(msgspec.json.decode(sys.argv[1], type=LabelScene)))
