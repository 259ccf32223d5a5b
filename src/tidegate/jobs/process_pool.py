"""A pool of processes on this machine that run jobs, each one job at a time.

The processes are spoken to through a socket each, rather than by `multiprocessing`: one that hangs or dies
can be ended and replaced alone, at once, and the event loop and its files are not inherited, as they would be
by a fork. Nor are they started by the event loop: uvloop forks, which copies the page tables of this process
and stopped the loop for 30 ms with 230 MB; `subprocess` uses vfork.
"""

import asyncio
import os
import socket
import subprocess
import sys
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.jobs.job import JOB_PROCESS, Job
from tidegate.jobs.job_process import HEADER, FunctionCall, FunctionReply
from tidegate.jobs.port import JobExecutor
from tidegate.jobs.record import JobCrashed, JobDone, JobFailed, JobOutcome, JobRecord, JobState
from tidegate.jobs.values import pack_values, unpack_values
from tidegate.tasks import BackgroundTasks

IDLE_SECONDS: Final = 60.0  # that a process is kept without a job


class ProcessDiedError(Exception):
    """The process ended while it had a job. Never leaves this module."""


class PoolProcess:
    """One process. `run` gives it one job at a time."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.idle_timer: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls) -> "PoolProcess":
        started = asyncio.ensure_future(asyncio.to_thread(_spawn))
        try:
            process, link = await asyncio.shield(started)
        except asyncio.CancelledError:
            started.add_done_callback(_discard)  # the thread goes on
            raise
        return cls(process, *await asyncio.open_connection(sock=link))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        if self._process.poll() is None:
            return True
        self._writer.close()  # one that has died is forgotten
        return False

    async def run(self, call: FunctionCall) -> FunctionReply:
        """Raises ProcessDiedError. If this is cancelled, end the process: it has not stopped."""
        data = msgspec.msgpack.encode(call)
        try:
            self._writer.write(HEADER.pack(len(data)) + data)
            await self._writer.drain()
            [length] = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            return msgspec.msgpack.decode(await self._reader.readexactly(length), type=FunctionReply)
        except (OSError, asyncio.IncompleteReadError):
            self._process.kill()  # of no use without its socket; the code of one that has ended stays
            self._writer.close()
            code = await asyncio.to_thread(self._process.wait)
            raise ProcessDiedError(_describe_exit(code)) from None

    async def end(self) -> None:
        """Kill it, whatever it does, and wait for its end."""
        if self.idle_timer is not None:
            self.idle_timer.cancel()
        self._process.kill()
        self._writer.close()
        await asyncio.to_thread(self._process.wait)


def _spawn() -> "tuple[subprocess.Popen[bytes], socket.socket]":
    """Start a process; return it with our end of the socket that is its standard input and output. Blocks."""
    ours, theirs = socket.socketpair()
    with theirs:
        command, end = (sys.executable, "-m", JOB_PROCESS), theirs.fileno()
        try:
            return subprocess.Popen(command, stdin=end, stdout=end), ours  # noqa: S603  (this Python)
        except BaseException:
            ours.close()
            raise


def _discard(started: "asyncio.Future[tuple[subprocess.Popen[bytes], socket.socket]]") -> None:
    if not started.cancelled() and started.exception() is None:
        process, link = started.result()
        link.close()  # its end: the process reads it
        process.kill()
        process.wait()  # a moment: it has been killed


class ProcessPool(JobExecutor):
    """At most `size` processes, started when they are needed and ended when they are not."""

    claims_as = JobState.RUNNING

    def __init__(self, jobs: "dict[str, Job[..., object]]", clock: Clock, size: int | None = None) -> None:
        self._jobs = jobs
        self._clock = clock
        self._size = size or os.cpu_count() or 1
        self._idle: list[PoolProcess] = []
        self._busy: set[PoolProcess] = set()
        self._taken = 0  # jobs that run, or are about to
        self._tasks = BackgroundTasks()

    @property
    def room(self) -> int:
        return self._size - self._taken

    @property
    def pids(self) -> list[int]:
        """The processes that run now."""
        return [one.pid for one in (*self._idle, *self._busy)]

    def problems(self) -> list[str]:
        return []

    async def run(self, job: JobRecord) -> JobOutcome:
        """A job that takes longer than its timeout fails, and its process is ended; so is a cancelled one."""
        call = FunctionCall(self._jobs[job.name].place, sys.path, pack_values([list(job.args), job.kwargs]))
        self._taken += 1
        try:
            process = await self._take()
            try:
                async with self._clock.timeout(job.timeout):
                    return _outcome_of(await process.run(call))
            except ProcessDiedError as error:
                return JobCrashed(str(error))
            except TimeoutError:
                await process.end()
                return JobFailed(f"it took longer than {job.timeout:g} s, and was ended")
            except asyncio.CancelledError:
                await process.end()
                raise
            finally:
                self._give_back(process)
        finally:
            self._taken -= 1

    async def stop(self) -> None:
        processes = [*self._idle, *self._busy]
        self._idle.clear()
        for process in processes:
            await process.end()
        await self._tasks.join()

    async def _take(self) -> PoolProcess:
        self._idle = [process for process in self._idle if process.is_alive]
        # Taken before anything is awaited: another may come back while one is started.
        process = self._idle.pop() if self._idle else await PoolProcess.start()
        if process.idle_timer is not None:
            process.idle_timer.cancel()
        self._busy.add(process)
        return process

    def _give_back(self, process: PoolProcess) -> None:
        self._busy.discard(process)
        if process.is_alive:
            process.idle_timer = self._clock.call_later(IDLE_SECONDS, lambda: self._dismiss(process))
            self._idle.append(process)

    def _dismiss(self, process: PoolProcess) -> None:
        if process in self._idle:
            self._idle.remove(process)
            self._tasks.start(process.end(), "end of a job process")


def _outcome_of(reply: FunctionReply) -> JobOutcome:
    if reply.error is not None:
        return JobFailed(reply.error, reply.final)
    return JobDone(None if reply.result is None else unpack_values(reply.result))


def _describe_exit(code: int) -> str:
    return f"its process was killed by signal {-code}" if code < 0 else f"its process ended with code {code}"
