"""Processes of the tests that begin at once: forks of a process that has imported what they need.

An interpreter that imports Tidegate and a bot library takes half a second to five seconds of CPU until its
program begins, and the tests start hundreds of them. Where tests run side by side, the process that hands
them out keeps one server (`serving`, run as this script) that imports once and forks for each request. What
it forks is a process like any other: it has its own pid, streams, environment, folder, session and end, and
can be killed. It differs in that modules are loaded before its program imports them: what an interpreter
imports, and how it starts, is tested with a real one, by `subprocess`.

`popen`, `run` and `create_process` take the command line of a Python program and what their namesakes of
`subprocess` and `asyncio` take. Where no server is kept, they start a real interpreter: so does `make proof`.
"""

import asyncio
import atexit
import gc
import importlib
import inspect
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from asyncio import base_subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, AnyStr, Final

SOCKET_VARIABLE: Final = "TESTS_FORK_SERVER"
REQUEST_BYTES: Final = 256 * 1024
# Not sentry_sdk: that it is imported only if it is used is tested.
IMPORTED: Final = (
    "aiogram",
    "aiogram.fsm.storage.redis",
    "aiohttp.web",
    "aiosqlite",
    "alembic.command",
    "asyncpg",
    "celery.bin.worker",
    "celery.worker.worker",
    "ctypes",
    "fastapi",
    "httpx",
    "redis.asyncio",
    "reportlab.pdfgen.canvas",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "sqlalchemy.ext.asyncio",
    "telegram.ext",
    "tidegate.adapters.aiogram",
    "tidegate.adapters.ptb",
    "tidegate.cli.app",
    "tidegate.cli.broadcast.run",
    "tidegate.cli.sim.telegram",
    "tidegate.cli.store",
    "tidegate.cli.worker",
    "tidegate.database.jobs",
    "tidegate.database.reminders",
    "tidegate.gate",
    "tidegate.sim.telegram.http",
    "tidegate.stores.redis.store",
    "typer._adapters",
    "urllib3",
    "uvloop",
)


@contextmanager
def serving() -> Iterator[None]:
    """Keep a server while the body runs, for this process and those that it starts."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(path)
            listener.listen(100)
            server = subprocess.Popen(  # noqa: S603  (this file)
                [sys.executable, "-P", __file__, str(listener.fileno())],
                stdin=subprocess.PIPE,  # it ends when this is closed, also if this process is killed
                pass_fds=[listener.fileno()],
                env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            )
        os.environ[SOCKET_VARIABLE] = path
        try:
            yield
        finally:
            del os.environ[SOCKET_VARIABLE]
            server.communicate()


class ForkedProcess(subprocess.Popen[AnyStr]):
    """A process whose parent is the server: that one waits for its end and says how it ended."""

    _link: socket.socket

    def _execute_child(self, *arguments: Any) -> None:  # noqa: ANN401  (those of subprocess)
        given = inspect.signature(subprocess.Popen._execute_child).bind(self, *arguments).arguments  # type: ignore[attr-defined]  # noqa: SLF001
        streams = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
        request = {
            "command": [os.fsdecode(word) for word in given["args"]],
            "folder": str(Path(os.fsdecode(given["cwd"] or ".")).absolute()),
            "environment": dict(os.environ if given["env"] is None else given["env"]),
            "new_session": given["start_new_session"],
        }
        self._link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._link.connect(os.environ[SOCKET_VARIABLE])
            socket.send_fds(
                self._link,
                [json.dumps(request).encode()],
                [number if stream == -1 else stream for number, stream in enumerate(streams)],
            )
            said = json.loads(self._link.recv(REQUEST_BYTES) or "{}")
        finally:
            pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(given[name] for name in pipes))  # type: ignore[attr-defined]
        if "pid" not in said:
            self._link.close()
            raise OSError(f"the fork server could not start {request['command']}: {said}")
        self._link.setblocking(False)  # noqa: FBT003
        self.pid = said["pid"]
        self._child_created = True

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        if self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                self._hear_of_its_end(0.0)
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        with self._waitpid_lock:  # type: ignore[attr-defined]
            if not self._hear_of_its_end(timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.returncode

    def _hear_of_its_end(self, timeout: float | None) -> bool:
        if self._link.fileno() == -1:
            return True
        if not select.select([self._link], [], [], timeout)[0]:
            return False
        with self._link:
            said = json.loads(self._link.recv(REQUEST_BYTES))
        self.returncode = os.waitstatus_to_exitcode(said["status"])
        return True

    def ended(self) -> socket.socket:
        """A socket of the caller's own that is ready to be read once the process has ended."""
        return self._link.dup()


def popen(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:  # noqa: ANN401  (those of Popen)
    if SOCKET_VARIABLE in os.environ:
        return ForkedProcess(command, **options)
    return subprocess.Popen(command, **options)  # noqa: S603  (a program of the tests)


def run(
    command: Sequence[str],
    *,
    input: str | None = None,  # noqa: A002  (as subprocess has it)
    capture_output: bool = False,
    check: bool = False,
    timeout: float | None = None,
    **options: Any,  # noqa: ANN401  (those of Popen)
) -> subprocess.CompletedProcess[Any]:
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options |= {"stdin": subprocess.PIPE}
    with popen(command, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    ran = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        ran.check_returncode()
    return ran


async def create_process(*command: str | Path, **options: Any) -> asyncio.subprocess.Process:  # noqa: ANN401
    """Start a process as `asyncio.create_subprocess_exec` does."""
    if SOCKET_VARIABLE not in os.environ:
        return await asyncio.create_subprocess_exec(*command, **options)
    loop = asyncio.get_running_loop()
    start = partial(ForkedProcess[bytes], [str(word) for word in command], bufsize=0, **options)
    process = await asyncio.to_thread(start)
    protocol = asyncio.subprocess.SubprocessStreamProtocol(limit=2**16, loop=loop)
    connected = loop.create_future()
    transport = _ForkedTransport(loop, protocol, process, connected)
    await connected
    return asyncio.subprocess.Process(transport, protocol, loop)


class _ForkedTransport(base_subprocess.BaseSubprocessTransport):
    """What asyncio needs of a process: its streams, and to hear of its end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.subprocess.SubprocessStreamProtocol,
        process: ForkedProcess[bytes],
        connected: "asyncio.Future[None]",
    ) -> None:
        self._forked = process
        self._ended = process.ended()
        loop.add_reader(self._ended, self._hear_of_its_end, loop)
        stdin, stdout, stderr = (
            None if stream is None else subprocess.PIPE
            for stream in (process.stdin, process.stdout, process.stderr)
        )
        super().__init__(
            loop,
            protocol,
            "",  # the command line, to be logged
            shell=False,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            bufsize=0,
            waiter=connected,
        )

    def _start(self, *_: object, **__: object) -> None:
        self._proc = self._forked

    def _check_proc(self) -> None:
        """Asyncio's raises from the moment on at which its `wait` returns, as this does."""
        if self._returncode is not None:
            raise ProcessLookupError
        super()._check_proc()

    def _hear_of_its_end(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._ended)
        self._ended.close()
        waiting, self._exit_waiters = self._exit_waiters, []  # asyncio's would wait for the streams, too
        code = self._forked.wait()
        self._process_exited(code)
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(code)


class _Request:
    """A process to be started, the streams of it, and the connection of who asked."""

    def __init__(self, link: socket.socket) -> None:
        data, self.streams, _, _ = socket.recv_fds(link, REQUEST_BYTES, 3)
        given: dict[str, Any] = json.loads(data)
        self.link = link
        self.command: list[str] = given["command"]
        self.folder: str = given["folder"]
        self.environment: dict[str, str] = given["environment"]
        self.new_session: bool = given["new_session"]


def _serve(listener: socket.socket) -> _Request:
    """Fork for each request until the standard input ends. Returns in each fork, what it shall become."""
    links: dict[int, socket.socket] = {}
    wake, woken = socket.socketpair()
    os.set_blocking(wake.fileno(), False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the tests
    waiting = [sys.stdin, listener, woken]
    if sys.stdin in select.select(waiting, [], [])[0]:
        sys.exit()
    _import_all()  # not before somebody asks
    while True:
        ready, _, _ = select.select(waiting, [], [])
        if sys.stdin in ready:
            sys.exit()
        if woken in ready:
            woken.recv(1000)
            _tell_of_ends(links)
        if listener in ready:
            request = _Request(listener.accept()[0])
            pid = os.fork()
            if pid == 0:
                return request
            links[pid] = request.link
            for stream in request.streams:
                os.close(stream)


def _tell_of_ends(links: dict[int, socket.socket]) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            with links.pop(pid) as link, suppress(BrokenPipeError):
                link.send(json.dumps({"status": status}).encode())


def _become(request: _Request, path: list[str]) -> Callable[[], object]:
    """Be the process that was asked for. Return its program, to be run outside of this function."""
    try:
        program = _set_up(request, path)
    except BaseException as error:  # noqa: BLE001  (told to who asked)
        request.link.send(json.dumps({"error": repr(error)}).encode())
        os._exit(1)
    request.link.send(json.dumps({"pid": os.getpid()}).encode())
    request.link.detach()
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    return program


def _set_up(request: _Request, path: list[str]) -> Callable[[], object]:
    """Return the program."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request.new_session:
        os.setsid()
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    sys.stdin, sys.stdout, sys.stderr = map(_reopened, range(3), (sys.stdin, sys.stdout, sys.stderr))
    sys.path[:] = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *path]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    first, *rest = request.command[1:] if request.command[0] == sys.executable else request.command
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        return partial(exec, compile(rest[0], "<string>", "exec"), main.__dict__)
    if first == "-m":
        sys.argv = ["-m", *rest[1:]]
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
        return partial(runpy._run_module_as_main, rest[0])  # type: ignore[attr-defined]  # noqa: SLF001
    sys.argv = [first, *rest]
    sys.path.insert(0, os.path.dirname(os.path.realpath(first)))  # noqa: PTH120
    main.__file__ = os.path.abspath(first)  # noqa: PTH100
    return partial(exec, compile(Path(first).read_bytes(), first, "exec"), main.__dict__)


def _reopened(number: int, stream: Any) -> io.TextIOWrapper:  # noqa: ANN401  (a standard stream)
    """A standard stream as an interpreter opens it."""
    raw = io.FileIO(number, stream.mode, closefd=False)
    raw.name = stream.name
    unbuffered = stream.mode == "w" and bool(os.environ.get("PYTHONUNBUFFERED"))
    buffer = raw if unbuffered else io.BufferedReader(raw) if stream.mode == "r" else io.BufferedWriter(raw)
    new = io.TextIOWrapper(
        buffer,
        stream.encoding,
        stream.errors,
        newline=None if stream.mode == "r" else "\n",
        line_buffering=raw.isatty() or number == 2,
        write_through=unbuffered,
    )
    new.mode = stream.mode  # type: ignore[misc]
    return new


def _import_all() -> None:
    """A process that ends takes its modules to pieces: it shall not do so with these, which takes 100 ms."""
    before = set(sys.modules)
    atexit.register(lambda: [sys.modules.pop(name, None) for name in imported])  # runs last
    gc.disable()
    for name in IMPORTED:
        importlib.import_module(name)
    gc.enable()
    gc.collect()
    gc.freeze()
    imported = set(sys.modules) - before


if __name__ == "__main__":
    _server = sys.modules["__main__"]  # goes on while the program is the main module
    _path = list(sys.path)
    with socket.socket(fileno=int(sys.argv[1])) as _listener:
        _request = _serve(_listener)
    _become(_request, _path)()
