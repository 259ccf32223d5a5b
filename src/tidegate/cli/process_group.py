"""Several processes of one command behind one socket: started again if they end, replaced on SIGHUP."""

import asyncio
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Annotated, Final, NamedTuple

import typer

from tidegate.clock import Clock
from tidegate.errors import BadInputError, TidegateError
from tidegate.failure import pause_after
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate")

READY_WITHIN: Final = 60.0  # seconds for a process to start
STOP_WITHIN: Final = 30.0  # seconds for a process to end its requests; then it is killed
STEADY_AFTER: Final = 30.0  # seconds after which a process that ends counts as started well
HOPELESS_AFTER: Final = 5  # processes in a row that did not
METRICS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"  # in which processes add up what they count

Processes = Annotated[
    int,
    typer.Option("--processes", min=1, max=64, metavar="N", help="Processes behind the one address."),
]
# Given by the parent of several processes.
ListenFd = Annotated[int | None, typer.Option("--listen-fd", hidden=True)]
ReadyFd = Annotated[int | None, typer.Option("--ready-fd", hidden=True)]
ParentFd = Annotated[int | None, typer.Option("--parent-fd", hidden=True)]


class MemberPipes(NamedTuple):
    """The socket and the pipes that the parent gives to one of several processes: see `ProcessGroup`."""

    listening: int
    ready: int
    parent: int

    @contextmanager
    def joined(self) -> Iterator[socket.socket]:
        """Yield the socket to serve. When the parent has ended, this process gets a SIGTERM."""
        end = partial(os.kill, os.getpid(), signal.SIGTERM)
        asyncio.get_running_loop().add_reader(self.parent, end)  # it can be read when it is closed
        with socket.socket(fileno=self.listening) as listening:
            yield listening

    def say_ready(self, _: object = None) -> None:
        """Tell the parent that this process serves."""
        os.write(self.ready, b"1")
        os.close(self.ready)


def member_pipes(listen_fd: int | None, ready_fd: int | None, parent_fd: int | None) -> MemberPipes | None:
    """Return what the parent has given; None: this process was started by a person."""
    if listen_fd is None or ready_fd is None or parent_fd is None:
        return None
    return MemberPipes(listen_fd, ready_fd, parent_fd)


class _Member(NamedTuple):
    process: asyncio.subprocess.Process
    started_at: float  # monotonic


class ProcessGroup:
    """`run` keeps `count` processes of a command alive until it is told to stop.

    The parent holds the socket, so that no connection is refused while a process is replaced. The command is
    called with three more options: `--listen-fd`, the number of that socket; `--ready-fd`, a pipe to which it
    writes a byte as soon as it serves; and `--parent-fd`, a pipe that is closed when the parent has ended,
    however that happened: then the process has to end, too. `environment` is added to that of
    this process.
    """

    def __init__(
        self,
        command: Sequence[str],
        listening: socket.socket,
        count: int,
        clock: Clock,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = command
        self._listening = listening
        self._count = count
        self._clock = clock
        self._members: dict[int, _Member] = {}  # by place
        self._replacing = [asyncio.Lock() for _ in range(count)]  # of each place: one start at a time
        self._running: set[asyncio.subprocess.Process] = set()  # also those that start, or are replaced
        self._tasks = BackgroundTasks()
        self._environment = os.environ | (environment or {})
        self._stopping = False
        self._failures = 0  # in a row
        self._hopeless: asyncio.Future[bool]
        self._alive = os.pipe()  # closed by the system if this process is killed

    async def run(self, stop: asyncio.Event, on_ready: Callable[[], Awaitable[object]] | None = None) -> None:
        """Return when `stop` is set and all have ended. Raises TidegateError if they cannot be started.

        `on_ready` is called once all of them serve.
        """
        self._hopeless = asyncio.get_running_loop().create_future()
        try:
            starts = (self._fill(place) for place in range(self._count))
            await asyncio.gather(*(self._tasks.start(work, "start", awaited=True) for work in starts))
            if on_ready is not None:
                await on_ready()
            stopped: asyncio.Future[bool] = asyncio.ensure_future(stop.wait())
            try:
                await asyncio.wait({stopped, self._hopeless}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopped.cancel()
            if self._hopeless.done():
                self._hopeless.result()
        finally:
            self._stopping = True
            await self._tasks.stop()
            await asyncio.gather(*map(self._end, self._running))
            for end in self._alive:
                os.close(end)

    def reload(self) -> None:
        """Replace the processes one by one: each new one serves before its predecessor ends its requests."""
        self._tasks.start(self._reload(), "reload")

    async def _reload(self) -> None:
        log.info("replacing %d processes", self._count)
        for place in range(self._count):
            async with self._replacing[place]:  # another reload may be on its way
                before = self._members.get(place)
                try:
                    await self._replace(place)
                except TidegateError as error:
                    log.error("not replaced, the old process goes on: %s", error)  # noqa: TRY400
                    return
                if before is not None:
                    await self._end(before.process)
        log.info("all processes are replaced")

    async def _fill(self, place: int) -> None:
        async with self._replacing[place]:
            await self._replace(place)

    async def _replace(self, place: int) -> None:
        """Start a process for this place, whose lock the caller holds. Raises TidegateError if it fails."""
        self._members[place] = member = await self._start()
        self._tasks.start(self._watch(place, member), f"process {member.process.pid}")

    async def _start(self) -> _Member:
        reading, writing = os.pipe()
        try:
            given = {
                "--listen-fd": self._listening.fileno(),
                "--ready-fd": writing,
                "--parent-fd": self._alive[0],
            }
            options = [text for name, number in given.items() for text in (name, str(number))]
            process = await asyncio.create_subprocess_exec(
                *self._command,
                *options,
                pass_fds=tuple(given.values()),
                env=self._environment,
            )
            self._running = {other for other in self._running if other.returncode is None} | {process}
            os.close(writing)
            writing = -1
            await self._wait_until_ready(process, reading)
        finally:
            os.close(reading)
            if writing >= 0:
                os.close(writing)
        return _Member(process, self._clock.monotonic())

    async def _wait_until_ready(self, process: asyncio.subprocess.Process, reading: int) -> None:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(reading, ready.set)
        try:
            async with self._clock.timeout(READY_WITHIN):
                await ready.wait()
        except TimeoutError:
            process.kill()
            raise TidegateError(f"process {process.pid} did not serve within {READY_WITHIN:g} s") from None
        finally:
            loop.remove_reader(reading)
        if not os.read(reading, 1):  # closed without a byte: it has ended
            raise TidegateError(f"a process ended with {await process.wait()} before it served: see above")

    async def _watch(self, place: int, member: _Member) -> None:
        code = await member.process.wait()
        if self._stopping or self._members.get(place) is not member:
            return
        steady = self._clock.monotonic() - member.started_at > STEADY_AFTER
        self._failures = 1 if steady else self._failures + 1
        log.error("process %d ended with %d, and another one is started", member.process.pid, code)
        while not self._stopping:
            if self._failures >= HOPELESS_AFTER and not self._hopeless.done():
                text = f"{self._failures} processes in a row did not stay: see what they logged"
                self._hopeless.set_exception(TidegateError(text))
                return
            await self._clock.sleep(pause_after(self._failures))
            async with self._replacing[place]:
                if self._members.get(place) is not member:
                    return  # a reload was quicker
                try:
                    await self._replace(place)
                except TidegateError as error:
                    self._failures += 1
                    log.error("%s", error)  # noqa: TRY400
                else:
                    return

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
            try:
                async with self._clock.timeout(STOP_WITHIN):
                    await process.wait()
            except TimeoutError:
                log.error("process %d did not end within %g s: killed", process.pid, STOP_WITHIN)  # noqa: TRY400
                process.kill()
                await process.wait()


@contextmanager
def process_group(arguments: Sequence[str], listening: socket.socket, count: int) -> Iterator[ProcessGroup]:
    """Yield a group of Tidegate's own processes with these arguments, which add up their metrics."""
    if not hasattr(signal, "SIGHUP"):
        raise BadInputError("--processes needs a system with SIGHUP: start one process here")
    command = [sys.executable, "-m", "tidegate", *arguments]
    with tempfile.TemporaryDirectory(prefix="tidegate-metrics-") as folder:
        yield ProcessGroup(command, listening, count, Clock(), environment={METRICS_FOLDER: folder})
