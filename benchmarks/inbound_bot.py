"""The bot of `inbound.py`, in a process of its own: aiogram, long polling, a gate on a store in a file."""

import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from benchmarks.pacing_processes import die_with_parent, tell

from system.inbound_crowd import Scene
from system.inbound_echo import bot_at, echoing, gate_for
from system.inbound_vitals import Vitals
from tidegate.clock import Clock


async def run(url: str, scene: Scene, folder: str) -> None:
    """Begins to measure at the first line it gets, ends at the second, and tells how it fared."""
    lines, loop = asyncio.Queue[None](), asyncio.get_running_loop()
    die_with_parent(lambda: loop.call_soon_threadsafe(lines.put_nowait, None))
    gate = gate_for(scene, Path(folder, "tidegate.db"))
    async with echoing(gate, bot_at(url)):
        tell(ready=True)
        await lines.get()
        cpu, vitals = time.process_time(), Vitals(Clock())
        watching = asyncio.create_task(vitals.watch(scene.seconds))
        await lines.get()
        await watching
        waiting, cpu = (await gate.core.handler_registry.stats()).waiting, time.process_time() - cpu
    peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
    tell(**vitals.report(), peak_mb=peak, cpu_s=round(cpu, 1), waiting=waiting)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="tidegate-inbound-") as place:
        uvloop.run(run(sys.argv[1], msgspec.json.decode(sys.argv[2], type=Scene), place))
