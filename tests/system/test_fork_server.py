"""Processes of the fork server are as those of an interpreter, to whoever starts them and to themselves."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fork_server

PATIENCE = 60
ITSELF = "import os, sys; print(sys.argv, sys.path, os.getcwd(), os.environ['OURS'], __name__)"
PROGRAMS = {
    "its file": "print(__file__)",
    "input": "import sys; print(sys.stdin.read().upper(), sys.stdin, sys.stdin.errors)",
    "output": "import sys; print([(one, one.line_buffering) for one in (sys.stdout, sys.stderr)])",
    "time zone": "import time; print(time.tzname)",
    "signals": "import signal; print([signal.getsignal(one) for one in (2, 13, 15, 17)])",
    "text at the end": "import sys; sys.exit('enough')",
    "error at the end": "1 / 0",
    "Ctrl-C": "raise KeyboardInterrupt",
    "a signal": "import os; os.kill(os.getpid(), 9)",
    "atexit": "import atexit; atexit.register(print, 'bye')",
    "a thread": "import threading; threading.Timer(0.05, print, ['later']).start(); print('first')",
    "a task": "import asyncio as a; loop = a.new_event_loop(); task = loop.create_task(a.sleep(9))",
    "output that is closed": "import os; print('x'); os.close(1)",
}


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    """That of the whole run, if there is one."""
    if fork_server.SOCKET_VARIABLE in os.environ:
        yield
    else:
        with fork_server.serving():
            yield


def ran(start: Any, folder: Path, *arguments: str) -> tuple[int, str, list[str]]:  # noqa: ANN401  (run)
    """Exit code, stdout, and stderr without the places in a traceback, of which one is the server's own."""
    language = {name: value for name, value in os.environ.items() if name.startswith(("LANG", "LC_"))}
    done = start(
        [sys.executable, *arguments, "one", "two"],
        cwd=folder,
        env=language | {"OURS": "ours", "PYTHONPATH": "/nowhere", "TZ": "Asia/Tokyo"},
        input="quiet",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
    )
    return done.returncode, done.stdout, [line for line in done.stderr.splitlines() if line[:2] != "  "]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_finds_and_ends_as_in_an_interpreter(name: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAMS[name])

    assert ran(fork_server.run, tmp_path, "program.py") == ran(subprocess.run, tmp_path, "program.py")


@pytest.mark.parametrize("arguments", [("program.py",), ("-m", "program"), ("-c", ITSELF)])
def test_a_program_is_called_as_by_an_interpreter(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(ITSELF)

    assert ran(fork_server.run, tmp_path, *arguments) == ran(subprocess.run, tmp_path, *arguments)


async def test_a_process_is_spoken_to_and_killed() -> None:
    first = "import os, sys; print(os.getpid(), os.getsid(0), flush=True)"
    echo = f"{first}; sys.stdout.write(sys.stdin.readline() + 'rest'); sys.stdout.flush()"
    process = await fork_server.create_process(
        *(sys.executable, "-c", f"{echo}; sys.stdin.read()"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    assert await process.stdout.readline() == f"{process.pid} {process.pid}\n".encode()
    process.stdin.write(b"hello\n")
    assert await process.stdout.readline() == b"hello\n"
    assert process.returncode is None
    process.kill()

    assert await process.wait() == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):  # whether or not the ends of its streams were noticed
        process.terminate()
    assert await process.stdout.read() == b"rest"


async def test_a_process_that_has_ended_is_not_waited_for_until_its_output_is_read() -> None:
    process = await fork_server.create_process(
        *(sys.executable, "-c", "print('x' * 60_000)"), stdout=asyncio.subprocess.PIPE
    )

    assert await process.wait() == 0

    assert (await process.communicate())[0] == b"x" * 60_000 + b"\n"


def test_a_process_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"could not start.*FileNotFoundError"):
        fork_server.run([sys.executable, "-c", ""], cwd=tmp_path / "nowhere")
