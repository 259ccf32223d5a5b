"""Measures reply times of the libraries' own echo bots, plain and attached to a gate.

    python tests/public_examples.py        # once: fetches the examples
    python benchmarks/reply_times.py [--messages 200]

From the update to the reply at the simulator, in ms; plain and attached take turns, 20 messages at a time,
each from another chat, so that no limit of a chat binds. The store is a SQLite file.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from public_examples import LIBRARIES, folder_of
from system.bots import run_aiogram, run_ptb
from system.bots.public_example import ATTACHED_BUILDER, NOTHING, POLLING, Change, load
from system.bots.run_examples import Run
from system.bots.scenes import GENEROUS
from tidegate.sim.telegram import Person
from tidegate.sim.telegram.http import TelegramServer

AIOGRAM, PTB = LIBRARIES
TOKEN: Final = "42:example"
AT_A_TIME: Final = 20


async def ask(server: TelegramServer, first: int, count: int) -> list[float]:
    bot = server.telegram.world.bot(TOKEN)
    assert bot is not None
    waits = []
    for user in range(first, first + count):
        person, began = Person(server.telegram, bot, user), time.perf_counter()
        person.says("hello")
        await person.hears()
        waits.append(1000 * (time.perf_counter() - began))
    return waits


async def start(stack: AsyncExitStack, library: str, change: Change, store: Path) -> TelegramServer:
    """Start one echo bot in this loop; it keeps the address that it began with."""
    server = await stack.enter_async_context(TelegramServer(limits=GENEROUS))
    patch = stack.enter_context(pytest.MonkeyPatch.context())
    patch.setenv("BOT_TOKEN", TOKEN)
    run: Run = run_aiogram.polling if library == AIOGRAM else run_ptb.application
    (run_aiogram if library == AIOGRAM else run_ptb).point_at(server.url, patch)
    file = "echo_bot.py" if library == AIOGRAM else "echobot.py"
    module: ModuleType = load(folder_of(library) / file, change, TOKEN, store)
    vars(module).update(TOKEN=TOKEN)
    await stack.enter_async_context(run(module, patch))
    await ask(server, 1, AT_A_TIME)  # warms up
    return server


async def measure(library: str, messages: int) -> None:
    found: dict[str, list[float]] = {"plain": [], "attached": []}
    attached = POLLING if library == AIOGRAM else ATTACHED_BUILDER
    with tempfile.TemporaryDirectory(prefix="tidegate-replies-") as folder:
        for turn in range(1, 1 + messages // AT_A_TIME):
            for kind, change in (("plain", NOTHING), ("attached", attached)):
                async with AsyncExitStack() as stack:
                    server = await start(stack, library, change, Path(folder, "tidegate.db"))
                    found[kind] += await ask(server, 1000 * turn, AT_A_TIME)
    plain, gated = (statistics.median(waits) for waits in found.values())
    print(f"{library}: plain {plain:.1f} ms, attached {gated:.1f} ms, difference {gated - plain:+.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=200)
    for one in LIBRARIES:
        asyncio.run(measure(one, parser.parse_args().messages))
