"""The start of a job process, which a thread does: the event loop goes on, and none is left behind."""

import asyncio
import socket
import subprocess
import threading

import pytest

from tidegate.clock import Clock
from tidegate.jobs import process_pool
from tidegate.jobs.process_pool import PoolProcess

Spawned = tuple["subprocess.Popen[bytes]", socket.socket]


async def test_the_loop_goes_on_while_a_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, spawn = threading.Event(), process_pool._spawn  # noqa: SLF001

    def slowly() -> Spawned:
        assert go_on.wait(30)
        return spawn()

    monkeypatch.setattr(process_pool, "_spawn", slowly)
    starting = asyncio.create_task(PoolProcess.start())
    await asyncio.sleep(0)  # noqa: TID251  (yields once)
    assert not starting.done()
    go_on.set()
    process = await starting
    assert process.is_alive
    await process.end()
    assert not process.is_alive


async def test_a_start_that_is_cancelled_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    spawned, spawn = list[Spawned](), process_pool._spawn  # noqa: SLF001
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slowly() -> Spawned:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(30)
        spawned.append(spawn())
        return spawned[0]

    monkeypatch.setattr(process_pool, "_spawn", slowly)
    starting = asyncio.create_task(PoolProcess.start())
    await begun.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    go_on.set()
    async with Clock().timeout(30):
        while not spawned or spawned[0][0].returncode is None:
            await Clock().sleep(0.01)
    assert spawned[0][0].returncode == -9
    assert spawned[0][1].fileno() == -1  # closed


async def test_a_process_that_dies_without_work_is_noticed() -> None:
    process = await PoolProcess.start()
    process._process.kill()  # noqa: SLF001
    async with Clock().timeout(30):
        while process.is_alive:
            await Clock().sleep(0.01)
    await process.end()
