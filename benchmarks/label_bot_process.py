"""The bot of `label_bot.py`, in a process of its own: that of `examples/`, and a look at its loop."""

import asyncio
import logging
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from benchmarks.pacing_processes import die_with_parent, tell

from system.inbound_vitals import Vitals, rss_mb
from system.label_crowd import LabelScene
from tidegate.clock import Clock


class WarningCount(logging.StreamHandler):  # type: ignore[type-arg]
    """Counts warnings, and shows them."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        super().emit(record)


async def run(scene: LabelScene) -> None:
    """Begins to measure at the first line it gets, ends at the second, and tells how it fared."""
    # The jobs read their settings when they are imported, which are in the environment by now.
    from label_bot.bot import build  # noqa: PLC0415
    from label_bot.config import Config  # noqa: PLC0415
    from label_bot.jobs import gate  # noqa: PLC0415

    warnings = WarningCount()
    warnings.setLevel(logging.WARNING)
    logging.basicConfig(handlers=[warnings])
    lines, loop = asyncio.Queue[None](), asyncio.get_running_loop()
    die_with_parent(lambda: loop.call_soon_threadsafe(lines.put_nowait, None))
    dispatcher, bot = build(Config.read(), blocking=scene.blocking)
    started = asyncio.Event()
    dispatcher.startup.register(started.set)
    polling = asyncio.create_task(dispatcher.start_polling(bot, handle_signals=False))
    await started.wait()
    tell(ready=True)
    await lines.get()
    cpu, vitals, rss = time.process_time(), Vitals(Clock()), rss_mb()
    watching = asyncio.create_task(vitals.watch(scene.seconds))
    await lines.get()
    await watching
    cpu, dead = time.process_time() - cpu, [*await gate.jobs.list(states=["dead"])]
    await dispatcher.stop_polling()
    await polling
    peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
    seen = vitals.report()
    tell(
        **seen | {"rss_mb": [rss, *seen["rss_mb"]]},
        peak_mb=peak,
        cpu_s=round(cpu, 1),
        dead_jobs=len(dead),
        warnings=warnings.count,
    )


if __name__ == "__main__":
    url, carrier, told = sys.argv[1:]
    asked = msgspec.json.decode(told, type=LabelScene)
    with tempfile.TemporaryDirectory(prefix="tidegate-labels-") as place:
        os.environ.update(asked.environment(url, carrier, str(Path(place, "tidegate.db"))))
        uvloop.run(run(asked))
