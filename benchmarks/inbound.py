"""Many people write to one bot process: who is answered, in which order, and how quick the process stays.

    python benchmarks/inbound.py [--users 500] [--seconds 180] [--every 5] [--spammer 100] [--json]

The bot is aiogram with a gate attached, its store in a file: each update is on disk before Telegram hears
that it came. The simulator runs in a process of its own, 5 to 40 ms away each way. Everybody writes every
5 s on average, some twice at once, whether or not they were answered; each text has a number that the answer
repeats. A bot may send 30 messages a second, which 500 people need several times over: the limits of the
simulator and of the gate are raised to what is needed, and shown. With --spammer one user more writes 100
messages a second, for 15 s, then not for 15 s, and so on: the others' median is taken with and without it.

A latency is that of the whole way: from what a person wrote to the arrival of the answer at Telegram. The
loop's delay is how late a nap of 10 ms ends in the bot's process.
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
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from benchmarks.pacing_processes import child

from system.inbound_crowd import CHAT, Scene, judge

BOT, TELEGRAM = (Path(__file__).with_name(f"inbound_{name}.py") for name in ("bot", "telegram"))
LONGEST: Final = 1_800.0  # seconds
SHUTDOWN_WITHIN: Final = 60.0

Result = dict[str, Any]


async def perform(scene: Scene) -> Result:
    """One bot before its crowd: what both processes tell."""
    told = msgspec.json.encode(scene).decode()
    async with child(TELEGRAM, told) as telegram:
        url = (await hear(telegram))["url"]
        async with child(BOT, url, told) as bot:
            await hear(bot)
            nod(telegram)
            nod(bot)
            found = await hear(telegram)
            nod(bot)
            async with asyncio.timeout(SHUTDOWN_WITHIN):
                words = await hear(bot)
                await bot.wait()
        return judge(found | words)


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


def table(found: Result) -> Table:
    shown = Table("", "", box=MARKDOWN, show_header=False)
    for name, value in found.items():
        numbers = value if isinstance(value, list) else [value]
        shown.add_row(name, " · ".join(_cell(each) for each in numbers))
    return shown


def _cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "NO"}.get(value, "none") if value is not None else "none"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def scene_of(options: argparse.Namespace) -> Scene:
    return Scene(
        users=options.users,
        seconds=min(options.seconds, LONGEST),
        every=options.every,
        spammer=options.spammer,
        seed=options.seed,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Many people write to one bot process.")
    parser.add_argument("--users", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two messages of a user")
    parser.add_argument("--spammer", type=float, default=0.0, help="messages a second of one user more")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    scene = scene_of(parser.parse_args())
    as_json = "--json" in sys.argv
    console = Console(width=120, stderr=as_json, highlight=False)
    console.print(
        f"{scene.users:,} people write every {scene.every:g} s on average, for {scene.seconds:g} s. "
        f"Limits: {scene.bot_rate} for the bot (Telegram's: 30/1), {CHAT} for a chat (Telegram's: 1/1)"
    )
    load_before = os.getloadavg()[0]
    found = uvloop.run(perform(scene))
    if as_json:
        print(json.dumps(found))
        return
    console.print(table(found))
    console.print(f"load: {load_before:.2f} before, {os.getloadavg()[0]:.2f} after")


if __name__ == "__main__":
    main()
