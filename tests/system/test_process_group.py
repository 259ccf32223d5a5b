"""Processes behind one socket: replaced without a refused connection, started again when they die."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tidegate.cli.process_group import ProcessGroup
from tidegate.clock import Clock
from tidegate.errors import TidegateError
from tidegate.inbound.server import listen

# Answers each connection with its process id, and finishes the one that it serves when it is told to end.
SERVER = """
import os, signal, socket, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
listening = socket.socket(fileno=int(given["--listen-fd"]))
listening.settimeout(0.05)
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
os.write(int(given["--ready-fd"]), b"1")
while not ended:
    try:
        connection, _ = listening.accept()
    except TimeoutError:
        continue
    connection.sendall(str(os.getpid()).encode())
    connection.close()
"""

# Only the first one serves.
NEVER_READY_AGAIN = """
import os, sys, time
from pathlib import Path
pids = Path(__file__).with_suffix(".pids")
first = not pids.exists()
with pids.open("a") as file:
    file.write(f"{os.getpid()}\\n")
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if first:
    os.write(int(given["--ready-fd"]), b"1")
time.sleep(100)
"""


@asynccontextmanager
async def group_of(count: int, script: Path) -> AsyncIterator[tuple[ProcessGroup, int]]:
    with listen("127.0.0.1", 0) as listening:
        group = ProcessGroup([sys.executable, "-S", str(script)], listening, count, Clock())
        stop = asyncio.Event()
        running = asyncio.create_task(group.run(stop))
        try:
            yield group, listening.getsockname()[1]
        finally:
            stop.set()
            await running


async def ask(port: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = int(await reader.read())
    writer.close()
    return answer


async def ask_until(port: int, *, other_than: set[int], count: int) -> set[int]:
    """Return the processes that answer, once so many do that are none of the others."""
    found: set[int] = set()
    while len(found - other_than) < count:
        found.add(await ask(port))
    return found - other_than


@pytest.fixture
def server(tmp_path: Path) -> Path:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    return script


async def test_a_reload_replaces_every_process_and_refuses_no_connection(server: Path) -> None:
    async with group_of(2, server) as (group, port):
        before = await ask_until(port, other_than=set(), count=2)
        group.reload()
        after = await ask_until(port, other_than=before, count=2)
    assert not before & after
    for process in before | after:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


async def test_reloads_that_overlap_leave_no_process_too_many(
    server: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tidegate")
    async with group_of(2, server) as (group, port):
        before = await ask_until(port, other_than=set(), count=2)
        for _ in range(3):
            group.reload()
        while caplog.messages.count("all processes are replaced") < 3:
            await Clock().sleep(0.01)
        assert len(await asyncio.to_thread(children_of, os.getpid(), server)) == 2
        assert not before & await ask_until(port, other_than=set(), count=2)


async def test_a_reload_while_the_processes_start_replaces_them(
    server: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tidegate")
    async with group_of(2, server) as (group, port):
        await Clock().sleep(0)  # the processes are being started
        group.reload()
        while "all processes are replaced" not in caplog.messages:
            await Clock().sleep(0.01)
        assert len(await asyncio.to_thread(children_of, os.getpid(), server)) == 2
        assert await ask_until(port, other_than=set(), count=2)


def children_of(parent: int, script: Path) -> list[int]:
    """Return the processes that run the script and were started by the parent."""
    found = []
    for children in Path(f"/proc/{parent}/task").glob("*/children"):
        found += [int(pid) for pid in children.read_text().split()]
    return [pid for pid in found if str(script) in Path(f"/proc/{pid}/cmdline").read_text()]


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    script = tmp_path / "hanging.py"
    script.write_text(NEVER_READY_AGAIN)
    return script


async def test_a_process_that_is_being_started_ends_with_the_others(hanging: Path) -> None:
    pids = hanging.with_suffix(".pids")
    async with group_of(1, hanging) as (group, _):
        (first,) = await pids_within(pids, 1)
        group.reload()
        both = await pids_within(pids, 2)
    assert both[0] == first
    for process in both:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


async def pids_within(file: Path, count: int) -> list[int]:
    """Return the processes that a file names, once it names so many."""
    while True:
        found = await asyncio.to_thread(pids_in, file)
        if len(found) >= count:
            return found
        await Clock().sleep(0.01)


def pids_in(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


async def test_a_process_that_is_killed_is_started_again(server: Path) -> None:
    async with group_of(1, server) as (_, port):
        first = await ask(port)
        os.kill(first, signal.SIGKILL)
        assert await ask_until(port, other_than={first}, count=1)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    script = tmp_path / "broken.py"
    script.write_text("raise SystemExit(3)")
    return script


async def test_a_command_that_ends_at_once_is_an_error_and_no_endless_loop(broken: Path) -> None:
    with pytest.raises(TidegateError, match="ended with 3 before it served"):
        async with group_of(1, broken):
            pass
