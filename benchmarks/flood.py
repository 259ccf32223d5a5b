"""A bot under a flood: 200 people write to it, and it sends a broadcast to 5,000 others beside that.

    python benchmarks/flood.py [aiogram] [ptb] [--seconds 60] [--whole] [--apart] [--json]
                               [--people 200] [--broadcast 5000]

The same bot, with Tidegate and without, at the same time: each in a process of its own, against a simulator
in another one with Telegram's limits (30/s for the bot, 1/s for a chat) and 5 to 40 ms each way. The people
write every 20 s on average, whether or not they were answered; that is 10 replies a second of the 30 that the
bot may send, and the broadcast wants the rest. What each kind of bot does is told in `flood_bots.py`.
With --whole it goes on until the broadcast has ended, which takes five minutes. With --apart the bots run one
after the other: those that run into 429s need much of a small machine.

A reply takes from what a person wrote until the reply arrives at Telegram: the bot's own polling (one way,
often two), its handler and one more way included. Measured in the simulator, as everything else that is
counted. `never` are those that had not come 10 s after the end.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.flood_bots import KINDS
from benchmarks.flood_telegram import Scene
from benchmarks.pacing_processes import child

BOTS, TELEGRAM = (Path(__file__).with_name(f"flood_{name}.py") for name in ("bots", "telegram"))
EVERY: Final = 20.0
SLOWEST_MEDIAN: Final = 150.0  # ms
SHUTDOWN_WITHIN: Final = 30.0  # seconds

Result = dict[str, Any]


async def perform(library: str, kind: str, scene: Scene, together: asyncio.Barrier) -> Result:
    """One bot before its own audience; all begin at the same time."""
    async with child(TELEGRAM, msgspec.json.encode(scene).decode()) as telegram:
        url = (await hear(telegram))["url"]
        async with child(BOTS, library, kind, url, str(scene.broadcast)) as bot:
            await hear(bot)
            await together.wait()
            nod(telegram)
            nod(bot)
            seconds = (await hear(telegram))["seconds"]
            nod(bot)
            async with asyncio.timeout(SHUTDOWN_WITHIN):
                words = await hear(bot)
                await bot.wait()
        nod(telegram)
        return judge({"seconds": seconds, **await hear(telegram), **words}, scene.broadcast)


async def hear(process: asyncio.subprocess.Process) -> Result:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError(f"a process of the run has ended too early ({await process.wait()})")
    words: Result = json.loads(line)
    return words


def nod(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")


def judge(found: Result, readers: int) -> Result:
    """`lost`: messages of the broadcast that neither arrived nor wait. `passed`: as Tidegate promises."""
    ended = found["delivered"] + found["waiting"] + found["dead"] + found["parked"]
    found["lost"] = found.pop("failed") or max(0, readers - ended)
    flaws = ("refused", "unanswered", "lost", "dead", "parked", "doubled", "out_of_order")
    quick = found["p50_ms"] is not None and found["p50_ms"] < SLOWEST_MEDIAN
    return found | {"passed": quick and not any(found[flaw] for flaw in flaws)}


async def run_all(libraries: list[str], scene: Scene, *, apart: bool) -> dict[str, dict[str, Result]]:
    results: dict[str, dict[str, Result]] = {library: {} for library in libraries}
    for library in libraries:  # one after the other: two cores are enough for one
        for kinds in [[kind] for kind in KINDS[library]] if apart else [KINDS[library]]:
            together = asyncio.Barrier(len(kinds))
            found = await asyncio.gather(*(perform(library, kind, scene, together) for kind in kinds))
            results[library] |= dict(zip(kinds, found, strict=True))
    return results


ROWS: Final = {
    "requests": "requests",
    "429s": "refused",
    "replies": "replies",
    "never": "unanswered",
    "a reply took, median ms": "p50_ms",
    "p99": "p99_ms",
    "the slowest": "worst_ms",
    "broadcast: delivered": "delivered",
    "lost": "lost",
    "still waiting": "waiting",
    "doubled": "doubled",
    "out of order": "out_of_order",
    "seconds": "seconds",
    "CPU, s": "cpu_s",
    "memory at most, MB": "peak_mb",
    "shutdown, s": "shutdown_s",
}


def table(kinds: dict[str, Result]) -> Table:
    """Return the table of one library, in Markdown."""
    shown = Table("", *kinds, box=MARKDOWN)
    for label, key in ROWS.items():
        shown.add_row(label, *(_cell(found[key]) for found in kinds.values()))
    return shown


def _cell(value: float | None) -> str:
    return "none" if value is None else f"{value:,}"


def verdict(library: str, found: Result) -> str:
    median = "nobody was answered" if found["p50_ms"] is None else f"median {found['p50_ms']:.0f} ms"
    return (
        f"{library} with Tidegate: {found['refused']} refused, {found['unanswered']} never answered, "
        f"{found['lost']} lost, {median} (target: none, none, none, below {SLOWEST_MEDIAN:.0f}): "
        f"{'met' if found['passed'] else 'NOT MET'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="A bot under a flood, with Tidegate and without.")
    parser.add_argument("libraries", nargs="*", choices=[[], *KINDS], metavar="library", help="aiogram, ptb")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--whole", action="store_true", help="until the broadcast has ended")
    parser.add_argument("--apart", action="store_true", help="one bot after the other")
    parser.add_argument("--people", type=int, default=200)
    parser.add_argument("--broadcast", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    scene = Scene(
        people=options.people,
        every=EVERY,
        broadcast=options.broadcast,
        seconds=options.seconds,
        whole=options.whole,
        seed=options.seed,
    )
    load_before = os.getloadavg()[0]
    console = Console(width=160, stderr=options.json, highlight=False)
    rate = scene.people / scene.every
    console.print(
        f"{scene.people:,} people write every {scene.every:g} s on average: {rate:g} replies a second, "
        f"of 30 messages that the bot may send; beside it a broadcast to {scene.broadcast:,} others"
    )
    results = uvloop.run(run_all(options.libraries or list(KINDS), scene, apart=options.apart))
    if options.json:
        print(json.dumps(results))
        return
    for library, kinds in results.items():
        console.print(f"\n{library}")
        console.print(table(kinds))
        console.print(verdict(library, kinds["tidegate"]))
    console.print(f"\nload: {load_before:.2f} before, {os.getloadavg()[0]:.2f} after")


if __name__ == "__main__":
    main()
