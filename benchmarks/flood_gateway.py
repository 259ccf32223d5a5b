"""The flood of `flood.py`, by bots of four libraries through the gateway: only their base URL is changed.

    python benchmarks/flood_gateway.py [aiogram] [ptb] [telebot] [grammy] [--seconds 60] [--json]
                                       [--people 200] [--broadcast 5000]

Each bot replies to what 200 people write and sends a broadcast to 5,000 others, 20 at a time, both in the
usual loop that waits for `retry_after`. Bot, `tidegate gateway` (a store in a file, its own defaults) and
simulator are processes of their own; the simulator has Telegram's limits and 5 to 40 ms each way. `429s` are
those of the simulator; `of the gateway` those that the gateway gives its client, because the turn of a call
would come later than 4 s. `flood.py` shows the same bots without Tidegate. grammY needs Node.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import uvloop
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from benchmarks.flood import BOTS, EVERY, ROWS, SHUTDOWN_WITHIN, TELEGRAM, Result, hear, judge, nod
from benchmarks.flood_telegram import Scene
from benchmarks.pacing_processes import child

from node_packages import node_modules
from servers import NODE, find
from tidegate import Tidegate

LIBRARIES: Final = ("aiogram", "ptb", "telebot", "grammy")
BOT: Final = "42"


async def perform(library: str, scene: Scene, folder: Path) -> Result:
    async with AsyncExitStack() as stack:
        telegram = await stack.enter_async_context(child(TELEGRAM, msgspec.json.encode(scene).decode()))
        address = (await hear(telegram))["url"]
        async with _gateway(address, folder) as url, _bot(library, url, scene, folder) as bot:
            await hear(bot)
            nod(telegram)
            nod(bot)
            seconds = (await hear(telegram))["seconds"]
            nod(bot)
            async with asyncio.timeout(SHUTDOWN_WITHIN):
                words = await hear(bot)
                await bot.wait()
        nod(telegram)
        found = {"seconds": seconds, **await hear(telegram), **words}
    async with Tidegate(folder / "tidegate.db") as gate:
        found["given_up"] = (await gate.stats()).direct_given_up
    return judge(found, scene.broadcast)


@asynccontextmanager
async def _gateway(telegram: str, folder: Path) -> AsyncIterator[str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE", "TELEGRAM"))
    }
    command = ["-m", "tidegate", "gateway", "--listen", "127.0.0.1:0", "--telegram", telegram, "--allow", BOT]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=folder, env=kept, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield (await process.stdout.readline()).split()[1].decode().rstrip("/")
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


@asynccontextmanager
async def _bot(
    library: str, url: str, scene: Scene, folder: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    if library != "grammy":
        async with child(BOTS, library, "retries", url, str(scene.broadcast)) as bot:
            yield bot
        return
    (folder / "node_modules").symlink_to(node_modules())  # Node looks for packages beside the program
    program = shutil.copy(Path(__file__).with_name("flood_grammy.mjs"), folder)
    pipe = asyncio.subprocess.PIPE
    bot = await asyncio.create_subprocess_exec(
        find(NODE).path, program, url, str(scene.broadcast), stdin=pipe, stdout=pipe
    )
    try:
        yield bot
    finally:
        if bot.returncode is None:
            bot.kill()
        await bot.wait()


def table(results: dict[str, Result]) -> Table:
    shown = Table("", *results, box=MARKDOWN)
    for label, key in {**ROWS, "of the gateway": "given_up"}.items():
        values = (found[key] for found in results.values())
        shown.add_row(label, *("none" if value is None else f"{value:,}" for value in values))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description="Bots of four libraries under a flood, through the gateway.")
    parser.add_argument("libraries", nargs="*", choices=[[], *LIBRARIES], metavar="library")
    parser.add_argument("--seconds", type=float, default=60.0)
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
        whole=False,
        seed=options.seed,
    )
    load_before = os.getloadavg()[0]
    results: dict[str, Result] = {}
    for library in options.libraries or LIBRARIES:
        with tempfile.TemporaryDirectory(prefix="tidegate-flood-") as folder:
            results[library] = uvloop.run(perform(library, scene, Path(folder)))
    if options.json:
        print(json.dumps(results))
        return
    console = Console(width=160, highlight=False)
    console.print(table(results))
    refused = {library: found["refused"] for library, found in results.items()}
    console.print(
        f"429s of Telegram: {refused} (target: none): {'NOT MET' if any(refused.values()) else 'met'}"
    )
    console.print(f"\nload: {load_before:.2f} before, {os.getloadavg()[0]:.2f} after")


if __name__ == "__main__":
    main()
