"""Many people use the label bot of `examples/`: who is answered when, and how quick its process stays.

    python benchmarks/label_bot.py [--users 500] [--seconds 180] [--every 30] [--blocking] [--json]

The bot is one process, with its store and database in files; labels are made in job processes, as many as
there are cores. The simulator and the carrier run in another process, 5 to 40 ms away each way; the carrier
takes 0.3 s to give a tracking number. Everybody writes every 30 s on average, whether or not they were
answered: 3 % of the messages are orders, 20 % ask for the list of orders. All of it shares the cores of one
machine: so that the labels use half a core, one takes 1 s of work with 500 users and 0.25 s with 2,000
(--label-seconds), and less with more. The limits of the simulator and of the gate are raised to what so many
people need, and shown. With --blocking the label is made in the handler, as bots do that have no jobs; with
--label-seconds 0 besides, what blocks is the call to the carrier alone.

The loop's delay is how late a nap of 10 ms ends in the bot's process. Passed: p99 below 50 ms, the worst
below 100 ms, everybody answered within 1 s, all labels delivered once, no 429, and memory that grows by less
than 10 % after the first quarter.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Final

import msgspec
import uvloop
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from benchmarks.inbound import Result, hear, nod, table
from benchmarks.pacing_processes import child

from system.label_crowd import CHAT, LabelScene, judge_labels

BOT, TELEGRAM = (Path(__file__).with_name(f"label_bot_{name}.py") for name in ("process", "telegram"))
LONGEST: Final = 1_800.0  # seconds
SHUTDOWN_WITHIN: Final = 60.0


async def perform(scene: LabelScene) -> Result:
    """One bot before its crowd: what both processes tell."""
    told = msgspec.json.encode(scene).decode()
    async with child(TELEGRAM, told) as telegram:
        addresses = await hear(telegram)
        async with child(BOT, addresses["url"], addresses["carrier"], told) as bot:
            await hear(bot)
            nod(telegram)
            nod(bot)
            found = await hear(telegram)
            nod(bot)
            async with asyncio.timeout(SHUTDOWN_WITHIN):
                words = await hear(bot)
                await bot.wait()
        return judge_labels(found | words)


def scene_of(options: argparse.Namespace) -> LabelScene:
    return LabelScene(
        users=options.users,
        seconds=min(options.seconds, LONGEST),
        every=options.every,
        orders=options.orders,
        label_seconds=options.label_seconds,
        blocking=options.blocking,
        seed=options.seed,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Many people use the label bot.")
    parser.add_argument("--users", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between two messages of a user")
    parser.add_argument("--orders", type=float, default=0.03, help="share of the messages that are orders")
    parser.add_argument("--label-seconds", type=float, help="seconds of work for a label")
    parser.add_argument("--blocking", action="store_true", help="make labels in the handler")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    scene = scene_of(options)
    console = Console(width=120, stderr=options.json, highlight=False)
    console.print(
        f"{scene.users:,} people write every {scene.every:g} s on average, for {scene.seconds:g} s; a label"
        f" takes {scene.work:g} s of work{' in the handler' if scene.blocking else ''}. Limits: {scene.rate}"
        f" for the bot (Telegram's: 30/1), {CHAT} for a chat (Telegram's: 1/1)"
    )
    load_before = os.getloadavg()[0]
    found = uvloop.run(perform(scene))
    if options.json:
        print(json.dumps(found))
        return
    console.print(table(found))
    console.print(f"load: {load_before:.2f} before, {os.getloadavg()[0]:.2f} after")


if __name__ == "__main__":
    main()
