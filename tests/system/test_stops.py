"""Ctrl-C and SIGTERM, as a bot of either library gets them: a process that polls over HTTP."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import fork_server
from system.bots import stoppable
from tidegate.clock import Clock
from tidegate.sim.telegram import Person
from tidegate.sim.telegram.http import TelegramServer

STARTS_WITHIN = 60.0  # seconds; the machine may be busy
ENDS_WITHIN = 20.0  # seconds, of which most may be the interpreter's; without a mend it would be an hour
AT_ONCE = 130  # exit code


class RunningBot:
    def __init__(self, process: asyncio.subprocess.Process, person: Person) -> None:
        self._process = process
        self._person = person

    async def begins_to_handle(self) -> None:
        assert self._process.stdout is not None
        self._person.says("hi")
        async with Clock().timeout(STARTS_WITHIN):
            assert (await self._process.stdout.readline()).startswith(b"handling")

    async def replies(self) -> None:
        await self.begins_to_handle()
        assert (await self._person.hears())["text"] == "hello"

    def gets(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def says(self, text: str) -> str:
        """Wait for a line of its log."""
        assert self._process.stderr is not None
        async with Clock().timeout(ENDS_WITHIN):
            while text.encode() not in (line := await self._process.stderr.readline()):
                assert line, f"it ended and never said {text!r}"
        return line.decode()

    async def ends(self) -> tuple[int, str, str]:
        async with Clock().timeout(ENDS_WITHIN):
            out, err = await self._process.communicate()
        assert self._process.returncode is not None
        return self._process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def running(library: str, switch: str, handler: str, folder: Path) -> AsyncIterator[RunningBot]:
    async with TelegramServer() as server:
        bot = server.telegram.world.bot(stoppable.TOKEN)
        assert bot is not None
        process = await fork_server.create_process(
            *(sys.executable, stoppable.SCRIPT, library, switch, handler, server.url, folder / "tidegate.db"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            yield RunningBot(process, Person(server.telegram, bot, 7))
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()


@pytest.mark.usefixtures("real_interpreters")
@pytest.mark.parametrize(
    ("library", "number"), [("aiogram", signal.SIGTERM), ("ptb", signal.SIGINT), ("ptb", signal.SIGTERM)]
)
async def test_an_idle_bot_ends_in_good_order_and_waits_for_nothing(
    library: str, number: signal.Signals, tmp_path: Path
) -> None:
    async with running(library, "attached", "reply", tmp_path) as bot:
        await bot.replies()

        bot.gets(number)
        code, out, err = await bot.ends()

    assert (code, out.split()[0]) == (0, "returned"), err
    assert "stopping: waiting" not in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("library", "switch", "waits"),
    [
        # aiogram takes seconds to start
        pytest.param("aiogram", "attached", "up to 5 s for 1 handler", marks=pytest.mark.proof),
        ("ptb", "attached", "for 1 handler, however long that takes"),
        ("ptb", "durable", "up to 5 s for 1 handler"),
    ],
)
async def test_a_second_ctrl_c_ends_a_bot_whose_handler_still_runs(
    library: str, switch: str, waits: str, tmp_path: Path
) -> None:
    async with running(library, switch, "sleep", tmp_path) as bot:
        await bot.begins_to_handle()

        bot.gets(signal.SIGINT)
        assert waits in await bot.says("stopping: waiting")
        bot.gets(signal.SIGINT)
        code, out, err = await bot.ends()

    assert (code, out.split()[0]) == (0, "returned"), err
    assert "Ctrl-C again: ending at once" in err
    assert "was destroyed but it is pending" not in err


@pytest.mark.parametrize("library", ["aiogram", "ptb"])
async def test_a_second_ctrl_c_ends_a_bot_whose_handler_blocks_a_thread(library: str, tmp_path: Path) -> None:
    async with running(library, "attached", "thread", tmp_path) as bot:
        await bot.begins_to_handle()

        bot.gets(signal.SIGINT)
        await bot.says("stopping: waiting")
        bot.gets(signal.SIGINT)
        code, _, err = await bot.ends()

    assert code == AT_ONCE, err
    assert "the process ends without a thread or a task" in err
