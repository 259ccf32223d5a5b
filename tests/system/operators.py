"""A store, a simulated Telegram, and the commands of an operator as processes of their own."""

import asyncio
import io
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import fork_server
from tidegate import Tidegate
from tidegate.cli import main
from tidegate.clock import Clock

Result = TypeVar("Result")
TIDEGATE = [sys.executable, "-m", "tidegate"]
PATIENCE = 20
TOKEN = "42:hush-hush"
OURS = ("TIDEGATE_", "TELEGRAM_", "REDIS_URL", "DATABASE_URL")


class Desk:
    """Where an operator sits. Nothing that a command says holds a token, or a traceback."""

    def __init__(self, folder: Path, telegram: str) -> None:
        self.folder, self.telegram = folder, telegram
        self.store = folder / "tidegate.db"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command as people run it."""
        ran = fork_server.run(
            [*TIDEGATE, *arguments],
            cwd=self.folder,
            env=of_process(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        _check(ran.stdout + ran.stderr)
        return ran

    def quickly(self, *arguments: str) -> tuple[int, str, str]:
        """The same in this process: exit code, stdout, stderr."""
        ran = run_here(*arguments, folder=self.folder)
        _check(ran[1] + ran[2])
        return ran

    def told(self, *arguments: str) -> dict[str, Any]:
        """What a command says to a program."""
        code, out, err = self.quickly(*arguments, "--json")
        assert code == 0, err
        told: dict[str, Any] = json.loads(out)
        return told

    def complains(self, *arguments: str, code: int = 2) -> str:
        """The one line that it says when it cannot do what was asked."""
        ended, out, err = self.quickly(*arguments)
        assert (ended, out) == (code, ""), err
        (line,) = err.splitlines()
        return line

    def within(self, work: Callable[[Tidegate], Awaitable[Result]]) -> Result:
        """What a program does that has the store open, in this process."""

        async def opened() -> Result:
            async with Tidegate(str(self.store)) as gate:
                return await work(gate)

        with nothing_set():
            return asyncio.run(opened())

    def begin(self) -> None:
        """A store that knows one bot."""

        async def begin(gate: Tidegate) -> None:
            await gate.register_bot(TOKEN, api_url=self.telegram)

        self.within(begin)

    def put(self, *chats: int, **fields: Any) -> list[str]:  # noqa: ANN401  (a message's own)
        async def put(gate: Tidegate) -> list[str]:
            items = [{"chat_id": chat, "text": f"to {chat}"} for chat in chats]
            return [ticket.id for ticket in await gate.send_many(items, bot=42, **fields)]

        return self.within(put)

    def arrived(self, chat: int) -> int:
        """How many messages Telegram has accepted for a chat."""
        with urllib.request.urlopen(f"{self.telegram}/sim/log?chat={chat}", timeout=PATIENCE) as answer:  # noqa: S310  (loopback)
            return sum(entry["status"] == 200 for entry in json.load(answer)["log"])

    def say_to_telegram(self, path: str, **order: object) -> None:
        body = json.dumps(order).encode()
        with urllib.request.urlopen(f"{self.telegram}/sim/{path}", body, timeout=PATIENCE) as answer:  # noqa: S310
            answer.read()

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[str]]:
        """It is the sender when the body begins, and ends well."""
        with running("worker", folder=self.folder) as process:
            assert process.stdout is not None
            assert "Delivering" in process.stdout.readline()
            yield process
            process.terminate()
            process.communicate(timeout=PATIENCE)

    def deliver_all(self) -> None:
        """In this process, which is the sender for as long as that takes."""

        async def deliver(gate: Tidegate) -> None:
            async with gate.worker(), Clock().timeout(PATIENCE):
                await gate.drained()

        self.within(deliver)


def run_here(
    *arguments: str, folder: Path | str = ".", variables: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """A command in this process, which spares the start of one: exit code, stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    with nothing_set(**variables or {}), chdir(folder), redirect_stdout(out), redirect_stderr(err):
        code = main(arguments)
    return code, out.getvalue(), err.getvalue()


@contextmanager
def running(
    *arguments: str, folder: Path | None = None, terminal: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    streams = (subprocess.DEVNULL, subprocess.PIPE, subprocess.PIPE) if terminal is None else (terminal,) * 3
    process = fork_server.popen(
        [*TIDEGATE, *arguments],
        cwd=folder,
        env=of_process(),
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def telegram() -> Iterator[str]:
    """Knows the bot, before it makes a call."""
    with running("sim", "telegram", "--port", "0", "--json", "--token", TOKEN) as process:
        assert process.stderr is not None
        yield next(word for word in process.stderr.readline().split() if word.startswith("http://"))


def _check(said: str) -> None:
    assert "hush" not in said
    assert "Traceback" not in said


def nothing_set(**variables: str) -> AbstractContextManager[object]:
    """No variable of Tidegate but these."""
    return patch.dict(os.environ, environment() | variables, clear=True)


def of_process() -> dict[str, str]:
    """Without history, for which each worker would import SQLAlchemy and make tables."""
    return environment() | {"TIDEGATE_HISTORY": "off"}


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
